package cache

// Has reports whether a chunk is here or on its way, at this moment. It counts
// as no use of the chunk.
func (c *Cache) Has(k Key) bool {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chunks[k] != nil
}

// Ready reports whether the bytes are there: that Wait would not wait.
func (l *Lease) Ready() bool {
	if l.ready || l.e == nil {
		return l.ready
	}
	select {
	case <-l.e.done:
		return true
	default:
		return false
	}
}
