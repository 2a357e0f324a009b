package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Errors of reservations.
var (
	// ErrClosed: the cache was closed.
	ErrClosed = errors.New("cache is closed")
	// ErrTooLarge: more than the whole budget was asked for at once.
	ErrTooLarge = errors.New("more memory than the cache's budget")
)

// A Reservation is memory that was granted and not used yet. The zero
// Reservation is empty. It is not safe for concurrent use.
type Reservation struct {
	c *Cache
	n int64
}

// Bytes returns what is left of the reservation.
func (r *Reservation) Bytes() int64 { return r.n }

// Release gives back what is left.
func (r *Reservation) Release() {
	if r.n == 0 {
		return
	}
	n := r.n
	r.n = 0
	r.c.unreserve(n)
}

// ledger accounts for every byte and makes room.
type ledger struct {
	// waiting is how many callers wait in Reserve. It is read without mu when a
	// lease is released; see entry.release.
	waiting atomic.Int64

	mu     sync.Mutex
	budget int64
	closed bool

	reserved int64
	bytes    [freed]int64 // by region

	windowMax int64
	window    list // oldest first
	main      list

	queue   []*waiter // first come, first served
	evicted int64     // chunks evicted to make room
	refused int64     // chunks that ristretto refused or evicted
}

// waiter is one caller in Reserve.
type waiter struct {
	n     int64
	ready chan struct{} // closed when granted or when the cache closes
	err   error
}

// used is what counts against the budget. The caller holds mu.
func (g *ledger) used() int64 {
	n := g.reserved
	for _, b := range g.bytes {
		n += b
	}
	return n
}

// list returns the list of the entries of a region, nil if it has none.
func (g *ledger) list(r region) *list {
	if r == window {
		return &g.window
	}
	if r == main {
		return &g.main
	}
	return nil
}

// move puts an entry on another account. The caller holds mu.
func (g *ledger) move(e *entry, to region) {
	g.bytes[e.region] -= e.size
	if l := g.list(e.region); l != nil {
		l.remove(e)
	}
	e.region = to
	if to == freed {
		if e.filled {
			e.buf = nil // a stale header in ristretto must not keep the memory
		}
		return
	}
	g.bytes[to] += e.size
	if l := g.list(to); l != nil {
		l.push(e)
	}
}

// take reserves n bytes if there is room or room can be made, and returns the
// evicted entries, linked by next, which the caller must unmap after unlocking.
// The caller holds mu.
func (g *ledger) take(n int64) (ok bool, victims *entry) {
	need := g.used() + n - g.budget
	if need > 0 {
		// Look before evicting: what does not suffice would be evicted in vain.
		if g.main.idle(need)+g.window.idle(need) < need {
			return false, nil
		}
		for _, l := range []*list{&g.main, &g.window} {
			for e, i := l.head, l.len; e != nil && i > 0 && need > 0; i-- {
				next := e.next
				// From one to zero: from here on nobody can lease it.
				if e.refs.CompareAndSwap(1, 0) {
					g.move(e, freed)
					e.next, victims = victims, e
					need -= e.size
					g.evicted++
				}
				e = next
			}
		}
	}
	if need > 0 {
		return false, victims // somebody leased one meanwhile
	}
	g.reserved += n
	return true, victims
}

// TryReserve adds n bytes to r if that is possible at once without overtaking
// anybody in Reserve.
func (c *Cache) TryReserve(n int64, r *Reservation) bool {
	g := &c.ledger
	g.mu.Lock()
	ok, victims := false, (*entry)(nil)
	if !g.closed && len(g.queue) == 0 {
		ok, victims = g.take(n)
	}
	g.mu.Unlock()
	c.unmap(victims)
	if ok {
		r.c, r.n = c, r.n+n
	}
	return ok
}

// Reserve gives back what r holds and reserves n bytes, waiting for its turn and
// for memory. The caller must not hold leases of this cache meanwhile: two that
// did could wait for each other. It fails with ErrTooLarge, ErrClosed or the
// cause of ctx.
func (c *Cache) Reserve(ctx context.Context, n int64, r *Reservation) error {
	r.Release()
	g := &c.ledger
	g.mu.Lock()
	switch {
	case g.closed:
		g.mu.Unlock()
		return ErrClosed
	case n > g.budget:
		g.mu.Unlock()
		return fmt.Errorf("%d bytes, the budget is %d: %w", n, g.budget, ErrTooLarge)
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	g.waiting.Add(1) // before looking for something to evict; see entry.release
	g.queue = append(g.queue, w)
	victims := g.serve()
	g.mu.Unlock()
	c.unmap(victims)

	select {
	case <-w.ready:
	case <-ctx.Done():
		if c.leave(w) {
			return context.Cause(ctx)
		}
		<-w.ready // granted, or closed, at the same moment
	}
	if w.err != nil {
		return w.err
	}
	r.c, r.n = c, n
	return nil
}

// leave takes a waiter out of the queue; false if it is not there any more.
func (c *Cache) leave(w *waiter) bool {
	g := &c.ledger
	g.mu.Lock()
	found := false
	for i, q := range g.queue {
		if q == w {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			g.waiting.Add(-1)
			found = true
			break
		}
	}
	victims := g.serve() // those behind it may fit
	g.mu.Unlock()
	c.unmap(victims)
	return found
}

// serve grants memory to those who wait, in order, and returns the entries
// evicted for it. The caller holds mu.
func (g *ledger) serve() (victims *entry) {
	for len(g.queue) > 0 {
		w := g.queue[0]
		ok, v := g.take(w.n)
		victims = join(victims, v)
		if !ok {
			return victims
		}
		g.queue = g.queue[1:]
		g.waiting.Add(-1)
		close(w.ready)
	}
	return victims
}

// grant lets those who wait have what has become free.
func (c *Cache) grant() {
	c.ledger.mu.Lock()
	victims := c.ledger.serve()
	c.ledger.mu.Unlock()
	c.unmap(victims)
}

// unreserve gives reserved bytes back.
func (c *Cache) unreserve(n int64) {
	c.ledger.mu.Lock()
	c.ledger.reserved -= n
	victims := c.ledger.serve()
	c.ledger.mu.Unlock()
	c.unmap(victims)
}

// finish frees an entry whose last reference is gone. It had been detached:
// a resident entry has the cache's reference.
func (c *Cache) finish(e *entry) {
	c.ledger.mu.Lock()
	c.ledger.move(e, freed)
	victims := c.ledger.serve()
	c.ledger.mu.Unlock()
	c.unmap(victims)
}

// detach ends a residency that somebody may still lease: it gives the cache's
// reference back, once, however often it is called. An entry that is still
// being filled will not become resident.
func (c *Cache) detach(e *entry) (was region) {
	g := &c.ledger
	g.mu.Lock()
	if was = e.region; was == filling {
		e.dropped = true
	} else if g.list(was) != nil {
		g.move(e, detached)
		if e.refs.Add(-1) == 0 {
			g.move(e, freed)
		}
	}
	victims := g.serve()
	g.mu.Unlock()
	c.unmap(victims)
	return was
}

// settle ends the filling of e: resident if it is good and was not dropped. It
// returns what fell out of the window, for ristretto to judge.
func (c *Cache) settle(e *entry, good bool) (demoted []*entry) {
	g := &c.ledger
	g.mu.Lock()
	e.filled = good
	stays := good && !e.dropped && !g.closed
	var victims *entry
	if good { // else whoever fills it may be writing the note still, as it may the bytes
		victims = g.annotate(e, stays)
	}
	if stays {
		g.move(e, window) // the run's reference is now the cache's
		for g.bytes[window] > g.windowMax {
			old := g.window.head
			g.move(old, main)
			old.judged.Store(true)
			demoted = append(demoted, old)
		}
	} else {
		g.move(e, detached)
		if e.refs.Add(-1) == 0 {
			g.move(e, freed)
		}
	}
	victims = join(victims, g.serve())
	g.mu.Unlock()
	c.unmap(victims)
	return demoted
}

// annotate puts the note of e on the account of e, or takes it away from e where
// there is no room. It may overtake who waits for memory: that e will be evicted
// for them, note and all. The caller holds mu; e is being filled still, so that
// it is not evicted for its own note.
func (g *ledger) annotate(e *entry, stays bool) (victims *entry) {
	if e.noteSize == 0 {
		return nil
	}
	ok := false
	if stays {
		ok, victims = g.take(e.noteSize)
	}
	if !ok {
		e.note, e.noteSize = nil, 0
		return victims
	}
	g.reserved -= e.noteSize
	g.bytes[e.region] += e.noteSize
	e.size += e.noteSize
	return victims
}

// list is a FIFO of entries, linked through them.
type list struct {
	head, tail *entry
	len        int
}

func (l *list) push(e *entry) {
	e.prev, e.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = e
	} else {
		l.head = e
	}
	l.tail = e
	l.len++
}

func (l *list) remove(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.tail = e.prev
	}
	e.prev, e.next = nil, nil
	l.len--
}

// idle returns how many bytes nobody leases, counting no further than enough.
func (l *list) idle(enough int64) (n int64) {
	for e := l.head; e != nil && n < enough; e = e.next {
		if e.refs.Load() == 1 {
			n += e.size
		}
	}
	return n
}

// join links the entries of b in front of those of a.
func join(a, b *entry) *entry {
	for b != nil {
		next := b.next
		b.next, a = a, b
		b = next
	}
	return a
}
