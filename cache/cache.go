package cache

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Options configures a Cache.
type Options struct {
	// MemoryBytes is the budget for chunks: resident, being filled, promised and
	// leased, in bytes. 0 is DefaultMemoryBytes; more than a PiB counts as that. It must hold
	// the largest batch that is to be read, with the chunks it begins and ends in, or that is
	// ErrTooLarge. How long chunks are is their reader's to know: segtier.Options has a least.
	MemoryBytes int64

	// OnHeap has chunks lie in Go's heap, where the garbage collector counts them
	// and the process becomes up to twice as large. Otherwise they lie in mappings
	// of the system's, which GOMEMLIMIT does not see; on Linux only.
	OnHeap bool
}

// mostMemoryBytes is more than there is: some budgets of it are still a number of bytes.
const mostMemoryBytes = 1 << 50

func (o Options) validate() (Options, error) {
	if o.MemoryBytes < 0 {
		return o, fmt.Errorf("cache: MemoryBytes is %d, want 0 (default) or more", o.MemoryBytes)
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes()
	}
	o.MemoryBytes = min(o.MemoryBytes, mostMemoryBytes)
	return o, nil
}

// Cache holds chunks. All methods may be called concurrently.
type Cache struct {
	shards [numShards]shard
	logs   [numLogShards]logShard
	slabs  slabs

	stripes    sync.Pool // of *uint8 in numbers: each processor finds its own again
	numbers    [numStripes]uint8
	nextNumber atomic.Uint32

	leaks  atomic.Int64 // leases that were never released; counted with the tag segtier_poison
	ledger ledger
	policy *policy
	hash   func(Key) (uint64, uint64) // hashes; tests force collisions
	close  sync.Once
}

// New makes an empty cache.
func New(o Options) (*Cache, error) {
	o, err := o.validate()
	if err != nil {
		return nil, err
	}
	c := &Cache{hash: hashes}
	c.ledger.budget = o.MemoryBytes
	c.ledger.budgetNow.Store(o.MemoryBytes)
	c.ledger.mainTarget = o.MemoryBytes / 10
	for i := range c.numbers {
		c.numbers[i] = uint8(i)
	}
	c.stripes.New = func() any { return &c.numbers[c.nextNumber.Add(1)%numStripes] }
	c.slabs.heap = !offHeap || o.OnHeap
	if c.policy, err = newPolicy(o.MemoryBytes, c.exit); err != nil {
		return nil, err
	}
	for i := range c.shards {
		c.shards[i].tab.Store(newTable(16))
	}
	return c, nil
}

// MemoryBytes returns the budget.
func (c *Cache) MemoryBytes() int64 { return c.ledger.budgetNow.Load() }

// Outcome is what Acquire found.
type Outcome uint8

const (
	Missing Outcome = iota // absent, and not enough reserved to lead, or no size at all; nothing was acquired
	Hit                    // resident: the lease has its bytes
	Joined                 // another's fill is on its way: Wait
	Led                    // absent: the Fill is yours to run or hand over, the lease to Wait for
)

// Acquire leases a chunk of size bytes into l, which it releases first. To
// lead, it takes size bytes from r, which may be nil. After Close it is always
// Missing.
func (c *Cache) Acquire(k Key, size int, r *Reservation, l *Lease) (Outcome, Fill) {
	l.Release()
	hash := hashOf(&k)
	s := c.shardOf(hash)
	// Without the lock first: a hit writes to nothing but its entry. What is evicted
	// between the lookup and the retaining is not retained: it has no reference left.
	if e := s.tab.Load().find(&k, hash); e != nil {
		if o := c.join(s, e, l); o != Missing {
			return o, Fill{}
		}
	}
	return c.lead(&k, hash, int64(size), r, l)
}

// stripe returns the stripe of the processor that we run on, nearly always.
func (c *Cache) stripe() uint8 {
	n := c.stripes.Get().(*uint8)
	at := *n
	c.stripes.Put(n)
	return at
}

// join leases an entry, if it is still alive.
func (c *Cache) join(s *shard, e *entry, l *Lease) Outcome {
	at := c.stripe()
	state, ok := e.retain(at)
	switch {
	case !ok:
		return Missing
	case state&ready == 0:
		s.joins.Add(1)
		l.line, l.e, l.at, l.ready = l.line.begin(e), e, at, false
		return Joined
	case state&(judged|touched) == judged:
		c.policy.touch(e)
	}
	l.line, l.e, l.at, l.ready = l.line.begin(e), e, at, true
	return Hit
}

// lead looks again, under the shard's lock, and leads what is not there.
func (c *Cache) lead(k *Key, hash uint64, size int64, r *Reservation, l *Lease) (Outcome, Fill) {
	s := c.shardOf(hash)
	s.mu.Lock()
	var lost *entry // cannot be leased any more, though it is still there
	for e := s.tab.Load().find(k, hash); e != nil && e != lost && e.state.Load()&gone == 0; e = s.tab.Load().find(k, hash) {
		o := c.join(s, e, l)
		s.mu.Unlock()
		if o == Missing {
			// Somebody looks whether it can be evicted, and has marked this stripe dead, maybe
			// for nothing. Under their lock the answer stands: leased, or gone for good.
			c.ledger.mu.Lock()
			o = c.join(s, e, l)
			c.ledger.mu.Unlock()
		}
		if o != Missing {
			return o, Fill{}
		}
		lost = e
		s.mu.Lock()
	}
	if s.closed || r == nil || size <= 0 || r.n < size {
		s.mu.Unlock()
		return Missing, Fill{}
	}
	s.leads++
	e := &entry{c: c, key: *k, hash: hash, size: size, id: identity(c.hash(*k)), done: make(chan struct{})}
	at := c.stripe()
	e.leases[at].n.Store(1)
	s.put(e)
	s.mu.Unlock()

	r.n -= e.size
	c.ledger.mu.Lock()
	c.ledger.reserved -= e.size
	c.ledger.bytes[filling] += e.size
	c.ledger.mu.Unlock()
	c.policy.missed(e)
	l.line, l.e, l.at = l.line.begin(e), e, at
	return Led, Fill{e}
}

// bind takes memory for a fill. One that has failed meanwhile gets some that
// nobody will see.
func (c *Cache) bind(e *entry) []byte {
	g := &c.ledger
	g.mu.Lock()
	late := e.region != filling
	if !late { // else it may be freed, which bury reads without the lock
		e.bound = true
		g.taken += e.size
	}
	size := int(e.size)
	g.mu.Unlock()
	if late {
		return make([]byte, size)
	}
	e.slab = c.slabs.alloc(size)
	e.buf = e.slab.buf
	return e.buf
}

// publish makes a filled entry resident and wakes who waits for it.
func (c *Cache) publish(e *entry) {
	// Leased by nobody it may be evicted at once: it is never ready without being on
	// the books, but may be on the books without being ready.
	c.settle(e, true)
	e.state.Or(ready)
	close(e.done)
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
	g := &c.ledger
	g.mu.Lock()
	if e.region == main {
		g.refused++
		g.count(e)
		g.ghosts.add(e, true, g.ghostsMax())
	}
	g.detach(e)
	g.serve()
	// Ristretto's own goroutine must not wait for ristretto: what is to be offered
	// is offered by the next who unlocks.
	gone, due := g.gone, g.due()
	g.gone = nil
	g.mu.Unlock()
	c.bury(gone, due)
}

// remove takes an entry out of its shard, if it is the one there.
func (c *Cache) remove(e *entry) {
	s := c.shardOf(e.hash)
	s.mu.Lock()
	s.remove(e)
	s.mu.Unlock()
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
		for e := range s.each {
			if which(e.key) {
				s.remove(e)
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
			g.pressure.Add(-1)
			close(w.ready)
		}
		g.queue = nil
		g.mu.Unlock()

		c.dropIf(func(Key) bool { return true })
		c.slabs.close()
	})
}

// Stats is the state of a Cache at one moment. Bytes add up:
// Used = Reserved + Filling + Window + Main + Detached.
type Stats struct {
	Budget, Used                              int64 // bytes
	Reserved, Filling, Window, Main, Detached int64 // bytes
	Bound                                     int64 // of Filling, bytes whose memory is taken: a read has come to them
	Chunks                                    int   // findable: resident or in flight
	Waiting                                   int   // callers in Reserve
	Hits, Joins, Leads                        int64 // outcomes of Acquire so far
	Evicted                                   int64 // chunks evicted to make room
	Refused                                   int64 // chunks that ristretto refused or evicted
	Mapped                                    int64 // bytes of address space of arenas; what is free there is not all resident
	Leaked                                    int64 // leases found unreleased; looked for with the build tag segtier_poison
}

// Stats returns the state of the cache. Bytes are of one moment, the counters
// of one shard after the other.
func (c *Cache) Stats() Stats {
	var st Stats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for e := range s.each {
			s.count(e)
		}
		st.Chunks += s.live
		st.Hits += s.hits
		st.Joins += s.joins.Load()
		st.Leads += s.leads
		s.mu.Unlock()
	}
	st.Mapped, _ = c.slabs.stats()
	st.Leaked = c.leaks.Load()
	g := &c.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	st.Budget, st.Used, st.Reserved = g.budget, g.used(), g.reserved
	st.Filling, st.Window, st.Main, st.Detached = g.bytes[filling], g.bytes[window], g.bytes[main], g.bytes[detached]
	st.Bound, st.Waiting = g.taken, len(g.queue)
	st.Evicted, st.Refused = g.evicted, g.refused
	return st
}
