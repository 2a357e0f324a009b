package cache

import (
	"context"
	"errors"
	"sync/atomic"
)

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
	window                 // resident, in the FIFO of new chunks
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

	// refs counts the leases, plus one: the run's while it fills, then the
	// cache's for the residency. It never rises from zero.
	refs atomic.Int32

	buf     []byte        // size bytes; allocated by the run, constant from done until freed
	done    chan struct{} // closed when buf is complete or err is set
	err     error         // constant after done
	settled atomic.Bool   // Done or Fail was called

	note     any   // what the filler knows of buf; constant after done
	noteSize int64 // its bytes, beside size until settled, part of it from then on

	ready  bool        // guarded by the shard's mu: done is closed without err
	judged atomic.Bool // in main: hits count for ristretto

	// Guarded by ledger.mu.
	region     region
	dropped    bool // while filling: must not become resident
	filled     bool // Done was called: nobody writes to buf any more
	prev, next *entry
}

// tryRetain adds a reference unless none is left.
func (e *entry) tryRetain() bool {
	for {
		n := e.refs.Load()
		if n < 1 {
			return false
		}
		if e.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release gives a lease's reference back.
func (e *entry) release() {
	switch e.refs.Add(-1) {
	case 0:
		e.c.finish(e)
	case 1:
		// Only the cache is left: who waits for memory may have it. A waiter
		// announces itself before it looks for something to evict, and we let go
		// before we look for waiters: one of the two sees the other.
		if e.c.ledger.waiting.Load() > 0 {
			e.c.grant()
		}
	}
}

// A Lease keeps one chunk in memory. The zero Lease is empty. A Lease must not
// be copied while it holds something, and is not safe for concurrent use.
type Lease struct {
	e     *entry
	ready bool
}

// errEmpty is a mistake of the program, not of the data.
var errEmpty = errors.New("cache: Wait on an empty lease")

// Wait returns when the bytes are there, at once after a Hit. If the fill
// fails or ctx ends first, it releases the lease and returns why: the error
// given to Fill.Fail, or the cause of ctx. The fill goes on without us.
func (l *Lease) Wait(ctx context.Context) error {
	if l.ready {
		return nil
	}
	e := l.e
	if e == nil {
		return errEmpty
	}
	select {
	case <-e.done: // data that is there wins over a context that has ended
	default:
		select {
		case <-e.done:
		case <-ctx.Done():
			l.Release()
			return context.Cause(ctx)
		}
	}
	if e.err != nil {
		l.Release()
		return e.err
	}
	l.ready = true
	return nil
}

// Bytes returns the chunk after a Hit or a Wait without error, otherwise nil.
// The bytes are shared: they must not be modified, and not be used after
// Release.
func (l *Lease) Bytes() []byte {
	if !l.ready {
		return nil
	}
	return l.e.buf
}

// Note returns what was attached to the chunk by Fill.Note, nil if nothing was.
// Like Bytes it is shared, and is there after a Hit or a Wait without error; it
// may be kept after Release.
func (l *Lease) Note() any {
	if !l.ready {
		return nil
	}
	return l.e.note
}

// Release lets the chunk go and empties the lease. On an empty lease it does
// nothing.
func (l *Lease) Release() {
	e := l.e
	if e == nil {
		return
	}
	*l = Lease{}
	e.release()
}

// A Fill is the duty to provide a chunk: exactly one of Done and Fail must be
// called in the end, from any goroutine; only the first call counts.
type Fill struct{ e *entry }

// Key returns the chunk to provide.
func (f Fill) Key() Key { return f.e.key }

// Buf returns the memory to fill, of the size given to Acquire. It belongs to
// whoever holds the Fill until Done or Fail. The first call allocates it.
func (f Fill) Buf() []byte {
	if f.e.buf == nil {
		f.e.buf = make([]byte, f.e.size)
	}
	return f.e.buf
}

// Note attaches to the chunk what whoever filled it learned of its bytes, so that
// those who lease it need not find out again. v must not change from now on (a
// pointer costs no allocation when it is read); bytes is the memory that it
// takes, which counts against the budget as long as the chunk does. Where there
// is no memory for it, the chunk comes without: a reader must do without it. It
// is called at most once, before Done, by whoever holds the Fill.
func (f Fill) Note(v any, bytes int) {
	f.e.note, f.e.noteSize = v, int64(bytes)
}

// Done says that Buf is complete and verified. Everybody who waits gets it.
func (f Fill) Done() {
	e := f.e
	if !e.settled.CompareAndSwap(false, true) {
		return
	}
	f.Buf()
	e.c.publish(e)
}

// Fail gives the chunk up. Everybody who waits gets err, as it is; the next
// Acquire leads anew. It may be called while a read that hangs still holds Buf:
// nobody else will ever use that memory, and the collector takes it once the
// read lets go; the ledger counts it as free from now on.
func (f Fill) Fail(err error) {
	e := f.e
	if !e.settled.CompareAndSwap(false, true) {
		return
	}
	if err == nil {
		err = errors.New("cache: fill failed without a reason")
	}
	e.c.fail(e, err)
}
