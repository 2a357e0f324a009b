package cache

import "sync/atomic"

// Key names a chunk: the object it belongs to (a segment id) and its number
// there. Objects are immutable, so a key always means the same bytes.
type Key struct {
	Object [16]byte
	Chunk  uint32
}

// region says on whose account in the ledger an entry's bytes are.
type region uint8

const (
	filling  region = iota // a run writes them
	window                 // resident, kept for the cursors that will reach it
	main                   // resident, judged by ristretto
	detached               // no longer findable, kept alive by leases
	freed                  // no reference is left
)

// entry is the header of one residency of a chunk. It is never recycled: a
// stale pointer to it, in ristretto or anywhere, finds refs at zero and stays
// away. Only the garbage collector ends it.
type entry struct {
	c    *Cache
	key  Key
	size int64
	id   string // the two hashes under which ristretto knows it

	hash uint64 // of the key, for the table

	// state is references, flags and hits in one word, so that a hit writes but
	// once. The references are the leases, plus one: the run's while it fills, then
	// the cache's for the residency. They never rise from zero.
	state atomic.Uint64

	slab    slab          // what buf is cut from
	buf     []byte        // size bytes; taken by the run, constant from done until freed
	done    chan struct{} // closed when buf is complete or err is set
	err     error         // constant after done
	settled atomic.Bool   // Done or Fail was called

	note     any   // what the filler knows of buf; constant after done
	noteSize int64 // its bytes, beside size until settled, part of it from then on

	counted uint32 // hits that the shard has counted; guarded by its mu
	told    uint32 // hits that ristretto knows; guarded by policy.mu

	log   *logCursors // nil: not told; constant once settled
	place Place       // in that log

	// Guarded by ledger.mu.
	region  region
	index   int    // in the set of its region
	link    *entry // in ledger.gone
	dropped bool   // while filling: must not become resident
	bound   bool   // Buf was called: somebody may write to it
	letGo   bool   // nobody writes to it any more
	owed    bool   // failed, but not let go: the run's reference is still out
	evicted bool
	again   bool   // it had been evicted, and came back
	seen    uint32 // hits when it was last looked at for eviction
	seq     int64  // clock when it was new, or had new hits then
}

// What entry.state is made of.
const (
	refsMask = 1<<28 - 1
	ready    = 1 << 28 // the bytes are there: done is closed without err, or just about to be
	judged   = 1 << 29 // in main: hits count for ristretto
	touched  = 1 << 30 // hits since it was last told wait for ristretto already
	oneHit   = 1 << 32 // hits since the beginning, modulo 2^32
)

func (e *entry) refs() uint64 { return e.state.Load() & refsMask }
func (e *entry) hits() uint32 { return uint32(e.state.Load() >> 32) }

// retain adds a reference unless none is left, and a hit if the bytes are there.
// It returns the state before.
func (e *entry) retain() (state uint64, ok bool) {
	for {
		s := e.state.Load()
		if s&refsMask == 0 {
			return s, false
		}
		next := s + 1
		if s&ready != 0 {
			next += oneHit
		}
		if e.state.CompareAndSwap(s, next) {
			return s, true
		}
	}
}

// drop gives a reference back and returns how many are left.
func (e *entry) drop() uint64 { return e.state.Add(^uint64(0)) & refsMask }

// kill takes the last reference if it is the only one: from then on nobody can
// lease the entry.
func (e *entry) kill() bool {
	for {
		s := e.state.Load()
		if s&refsMask != 1 {
			return false
		}
		if e.state.CompareAndSwap(s, s-1) {
			return true
		}
	}
}

// release gives a lease's reference back.
func (e *entry) release() {
	switch e.drop() {
	case 0:
		e.c.finish(e)
	case 1:
		// Only the cache is left: who waits for memory may have it. A waiter
		// announces itself before it looks for something to evict, and we let go
		// before we look for waiters: one of the two sees the other.
		if e.c.ledger.pressure.Load() > 0 {
			e.c.grant()
		}
	}
}
