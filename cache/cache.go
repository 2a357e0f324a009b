package cache

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
)

// DefaultMemoryBytes is the budget that Options leaves unset.
const DefaultMemoryBytes = 256 << 20

// Options configures a Cache.
type Options struct {
	// MemoryBytes is the budget for chunks: resident, being filled, promised and
	// leased. 0 is DefaultMemoryBytes. It must hold the largest batch that is to
	// be read, with the chunks it begins and ends in.
	MemoryBytes int64
}

func (o Options) validate() (Options, error) {
	if o.MemoryBytes < 0 {
		return o, fmt.Errorf("cache: MemoryBytes is %d, want 0 (default) or more", o.MemoryBytes)
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	return o, nil
}

// Cache holds chunks. All methods may be called concurrently.
type Cache struct {
	shards [numShards]shard
	ledger ledger
	policy *policy
	hash   func(Key) (uint64, uint64) // hashes; tests force collisions
	close  sync.Once
}

// numShards spreads the locks: enough that two cores rarely meet, few enough to
// walk in Drop. A power of two.
const numShards = 64

type shard struct {
	mu     sync.Mutex
	closed bool
	chunks map[Key]*entry
	hits   int64
	joins  int64
	leads  int64
	_      [64]byte // its own cache line
}

// New makes an empty cache.
func New(o Options) (*Cache, error) {
	o, err := o.validate()
	if err != nil {
		return nil, err
	}
	c := &Cache{hash: hashes}
	c.ledger.budget = o.MemoryBytes
	c.ledger.windowMax = o.MemoryBytes / 4
	if c.policy, err = newPolicy(o.MemoryBytes/8*5, c.exit); err != nil {
		return nil, err
	}
	for i := range c.shards {
		c.shards[i].chunks = make(map[Key]*entry)
	}
	return c, nil
}

// MemoryBytes returns the budget.
func (c *Cache) MemoryBytes() int64 { return c.ledger.budget }

func (c *Cache) shard(k Key) *shard {
	// Ids are random, but tests and other hosts may count them: mix.
	h := binary.LittleEndian.Uint64(k.Object[:8]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(k.Object[8:]), 32)
	h = (h ^ uint64(k.Chunk)*0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93 // odd constants with well-spread bits
	return &c.shards[h>>(64-6)]
}

// Outcome is what Acquire found.
type Outcome uint8

const (
	Missing Outcome = iota // absent, and not enough reserved to lead; nothing was acquired
	Hit                    // resident: the lease has its bytes
	Joined                 // another's fill is on its way: Wait
	Led                    // absent: the Fill is yours to run or hand over, the lease to Wait for
)

// Acquire leases a chunk of size bytes into l, which it releases first. To
// lead, it takes size bytes from r, which may be nil. After Close it is always
// Missing.
func (c *Cache) Acquire(k Key, size int, r *Reservation, l *Lease) (Outcome, Fill) {
	l.Release()
	s := c.shard(k)
	s.mu.Lock()
	if e := s.chunks[k]; e != nil && e.tryRetain() {
		l.e, l.ready = e, e.ready
		if !e.ready {
			s.joins++
			s.mu.Unlock()
			return Joined, Fill{}
		}
		s.hits++
		if e.judged.Load() && !s.closed {
			c.policy.touch(e)
		}
		s.mu.Unlock()
		return Hit, Fill{}
	}
	if s.closed || r == nil || r.n < int64(size) {
		s.mu.Unlock()
		return Missing, Fill{}
	}
	s.leads++
	e := &entry{c: c, key: k, size: int64(size), id: identity(c.hash(k)), done: make(chan struct{})}
	e.refs.Store(2) // the run's and this lease
	s.chunks[k] = e
	c.policy.touch(e) // a miss is a use too: a chunk that keeps coming back is to be kept
	s.mu.Unlock()

	r.n -= e.size
	c.ledger.mu.Lock()
	c.ledger.reserved -= e.size
	c.ledger.bytes[filling] += e.size
	c.ledger.mu.Unlock()
	l.e = e
	return Led, Fill{e}
}

// publish makes a filled entry resident and wakes who waits for it.
func (c *Cache) publish(e *entry) {
	// On the ledger first: nobody can evict it before the lines below as long as
	// somebody waits for it, and if nobody does, nothing is lost.
	demoted := c.settle(e, true)
	s := c.shard(e.key)
	s.mu.Lock()
	e.ready = true
	s.mu.Unlock()
	close(e.done)
	for _, d := range demoted {
		if !c.policy.offer(d) {
			c.exit(d)
		}
	}
}

// fail frees the key, then tells who waits.
func (c *Cache) fail(e *entry, err error) {
	c.remove(e)
	e.err = err
	c.settle(e, false)
	close(e.done)
}

// exit is called when ristretto refuses or evicts an entry, sometimes late,
// sometimes for an entry that left long ago, sometimes with nothing.
func (c *Cache) exit(e *entry) {
	if e == nil {
		return
	}
	c.remove(e)
	if c.detach(e) == main {
		c.ledger.mu.Lock()
		c.ledger.refused++
		c.ledger.mu.Unlock()
	}
}

// remove takes an entry out of its shard, if it is the one there.
func (c *Cache) remove(e *entry) {
	s := c.shard(e.key)
	s.mu.Lock()
	if s.chunks[e.key] == e {
		delete(s.chunks, e.key)
	}
	s.mu.Unlock()
}

// unmap takes evicted entries, linked by next, out of their shards. Until then
// who finds one there cannot lease it and leads anew.
func (c *Cache) unmap(victims *entry) {
	for e := victims; e != nil; {
		next := e.next
		e.next = nil
		c.remove(e)
		if e.judged.Load() {
			c.policy.forget(e)
		}
		e = next
	}
}

// Drop forgets every chunk of an object. Leases stay valid; fills in flight
// reach those who wait for them and nobody else.
func (c *Cache) Drop(object [16]byte) {
	c.dropIf(func(k Key) bool { return k.Object == object })
}

func (c *Cache) dropIf(which func(Key) bool) {
	for i := range c.shards {
		s := &c.shards[i]
		var gone []*entry
		s.mu.Lock()
		for k, e := range s.chunks {
			if which(k) {
				delete(s.chunks, k)
				gone = append(gone, e)
			}
		}
		s.mu.Unlock()
		for _, e := range gone {
			if c.detach(e) == main {
				c.policy.forget(e)
			}
		}
	}
}

// Close forgets every chunk and fails who waits in Reserve with ErrClosed.
// Leases stay valid until they are released; fills in flight still reach those
// who wait for them. It may be called more than once.
func (c *Cache) Close() {
	c.close.Do(func() {
		for i := range c.shards {
			s := &c.shards[i]
			s.mu.Lock()
			s.closed = true
			s.mu.Unlock()
		}
		c.policy.shut()

		g := &c.ledger
		g.mu.Lock()
		g.closed = true
		for _, w := range g.queue {
			w.err = ErrClosed
			g.waiting.Add(-1)
			close(w.ready)
		}
		g.queue = nil
		g.mu.Unlock()

		c.dropIf(func(Key) bool { return true })
	})
}

// Stats is the state of a Cache at one moment. Bytes add up:
// Used = Reserved + Filling + Window + Main + Detached.
type Stats struct {
	Budget, Used                              int64 // bytes
	Reserved, Filling, Window, Main, Detached int64 // bytes
	Chunks                                    int   // findable: resident or in flight
	Waiting                                   int   // callers in Reserve
	Hits, Joins, Leads                        int64 // outcomes of Acquire so far
	Evicted                                   int64 // chunks evicted to make room
	Refused                                   int64 // chunks that ristretto refused or evicted
}

// Stats returns the state of the cache. Bytes are of one moment, the counters
// of one shard after the other.
func (c *Cache) Stats() Stats {
	var st Stats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		st.Chunks += len(s.chunks)
		st.Hits += s.hits
		st.Joins += s.joins
		st.Leads += s.leads
		s.mu.Unlock()
	}
	g := &c.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	st.Budget, st.Used, st.Reserved = g.budget, g.used(), g.reserved
	st.Filling, st.Window, st.Main, st.Detached = g.bytes[filling], g.bytes[window], g.bytes[main], g.bytes[detached]
	st.Waiting = len(g.queue)
	st.Evicted, st.Refused = g.evicted, g.refused
	return st
}
