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
	// leases counts the leases, in stripes, and the hits. A count never rises once
	// its stripe is dead, and either all are or none is for good.
	leases [numStripes]stripe

	c    *Cache
	key  Key
	size int64
	id   string // the two hashes under which ristretto knows it

	hash uint64 // of the key, for the table

	state atomic.Uint32 // flags

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
	again   bool    // it had been evicted, and came back
	seen    uint32  // hits when it was last looked at for eviction
	rank    float64 // how much it was used, lately counting more; see ranked
	seq     int64   // clock when it was new, or had new hits then
}

// numStripes is how many counts the leases of a chunk are spread over. Two cores
// that lease the same chunk all the time would hand one count to and fro, which
// takes longer than the rest of a hit.
const numStripes = 4

// stripe is a part of an entry's leases, on a cache line of its own: in the lower
// half how many there are, and dead; in the upper half how often it was hit,
// modulo 2^32.
type stripe struct {
	n atomic.Uint64
	_ [56]byte
}

const (
	countMask = 1<<31 - 1
	dead      = 1 << 31 // nobody can lease it
	oneHit    = 1 << 32
)

// Flags of entry.state.
const (
	ready   = 1 << iota // the bytes are there: done is closed without err, or just about to be
	judged              // in main: hits count for ristretto
	touched             // hits since it was last told wait for ristretto already
	orphan              // the run's or the cache's reference is gone: freed with the last lease
	gone                // all stripes are dead for good; set under ledger.mu
)

// retain adds a lease, and a hit if the bytes are there, unless the stripe is
// dead. It returns the flags.
func (e *entry) retain(stripe uint8) (state uint32, ok bool) {
	n := &e.leases[stripe].n
	for {
		old := n.Load()
		if old&dead != 0 {
			return 0, false
		}
		// After dead was seen not to be set: flags of a life that has ended are not used.
		state := e.state.Load()
		next := old + 1
		if state&ready != 0 {
			next += oneHit
		}
		if n.CompareAndSwap(old, next) {
			return state, true
		}
	}
}

// leased reports whether somebody leases the entry.
func (e *entry) leased() bool {
	for i := range e.leases {
		if e.leases[i].n.Load()&countMask != 0 {
			return true
		}
	}
	return false
}

func (e *entry) hits() (n uint32) {
	for i := range e.leases {
		n += uint32(e.leases[i].n.Load() >> 32)
	}
	return n
}

// kill sees to it that nobody can lease the entry any more, if nobody does. Who
// tries meanwhile, on a stripe that is dead already, must ask again under
// ledger.mu, which the caller holds: it may come back to life.
func (e *entry) kill() bool {
	for i := range e.leases {
		n := &e.leases[i].n
		for {
			old := n.Load()
			if old&countMask != 0 {
				for j := range i {
					e.leases[j].n.And(^uint64(dead))
				}
				return false
			}
			if n.CompareAndSwap(old, old|dead) {
				break
			}
		}
	}
	e.state.Or(gone)
	return true
}

// release gives a lease back.
func (e *entry) release(stripe uint8) {
	if e.leases[stripe].n.Add(^uint64(0))&countMask != 0 {
		return
	}
	// Maybe the last one. An orphan is freed by whoever finds no lease any more: it
	// becomes one before that is looked at, and we let go before we look: one of
	// the two sees the other. So it is with those who wait for memory.
	if e.state.Load()&orphan != 0 {
		e.c.finish(e)
	} else if e.c.ledger.pressure.Load() > 0 {
		e.c.grant()
	}
}
