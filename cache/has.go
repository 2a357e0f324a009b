package cache

// Has reports whether a chunk is here or on its way, at this moment. It counts
// as no use of the chunk.
func (c *Cache) Has(k Key) bool {
	hash := hashOf(&k)
	e := c.shardOf(hash).tab.Load().find(&k, hash)
	return e != nil && e.state.Load()&gone == 0
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
