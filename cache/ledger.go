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
	// pressure is how many callers wait in Reserve, plus one while more is held
	// than the budget. It is read without mu when a lease is released; see
	// entry.release.
	pressure atomic.Int64

	// clock counts the bytes that became resident since the beginning. It is the
	// time of everything below: what is needed when, and how fast cursors move.
	clock atomic.Int64

	budgetNow atomic.Int64 // budget, for who does not hold mu

	mu     sync.Mutex
	budget int64
	closed bool
	over   bool // counted in pressure

	reserved int64
	bytes    [freed]int64 // by region
	taken    int64        // of those that are filled, bytes that have memory
	window   set
	main     set

	mainTarget int64 // bytes that main may have when both want more; see adapt
	largest    int64 // bytes of the largest that was main's
	pool       []*entry
	age        float64 // clock in half-lives, each of the budget of its time; see ranked
	rng        uint64
	ghosts     ghosts

	queue   []*waiter // first come, first served
	gone    *entry    // freed since unlock was last called, linked
	offers  []*entry  // moved to main since then
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

// move puts an entry on another account. The caller holds mu.
func (g *ledger) move(e *entry, to region) {
	g.bytes[e.region] -= e.size
	if l := g.set(e.region); l != nil {
		l.remove(e)
	}
	e.region = to
	if to == freed {
		e.link, g.gone = g.gone, e
		return
	}
	g.bytes[to] += e.size
	if l := g.set(to); l != nil {
		l.add(e)
	}
}

// take reserves n bytes if there is room or room can be made. The caller holds
// mu.
func (g *ledger) take(n int64) bool {
	if !g.make(n) {
		return false
	}
	g.reserved += n
	return true
}

// trim evicts what is above the budget, as far as nobody leases it, and keeps
// the pressure on as long as that is not enough. The caller holds mu.
func (g *ledger) trim() {
	if !g.over && g.used() > g.budget {
		g.over = true
		g.pressure.Add(1) // before looking for something to evict; see entry.release
	}
	for g.used() > g.budget && g.evict() {
	}
	if g.over && g.used() <= g.budget {
		g.over = false
		g.pressure.Add(-1)
	}
}

// unlock ends a critical section of the ledger and does what must not be done
// within: it takes what was freed out of the shards, gives its memory back, and
// has ristretto judge what was moved to main. Until then who finds a freed entry
// cannot lease it, and leads anew.
func (c *Cache) unlock() {
	g := &c.ledger
	gone, offers, share, due := g.gone, g.offers, max(g.mainTarget, 1), g.due()
	g.gone, g.offers = nil, nil
	g.mu.Unlock()
	c.bury(gone, due)
	for _, e := range offers {
		if !c.policy.offer(e, share) {
			c.exit(e)
		}
	}
}

// due returns how many bytes were promised that nobody has taken memory for yet: what is
// freed is what they will take. The caller holds mu.
func (g *ledger) due() int64 { return g.reserved + g.bytes[filling] - g.taken }

// bury ends freed entries, when so many bytes are due.
func (c *Cache) bury(gone *entry, due int64) {
	for e := gone; e != nil; {
		next := e.link
		e.link = nil
		c.remove(e)
		if e.evicted && e.state.Load()&judged != 0 {
			c.policy.forget(e)
		}
		if e.log != nil {
			e.log.held.Add(-1)
		}
		if e.bound { // else a late caller of Buf may be looking
			e.buf = nil // a stale header in ristretto must not keep the memory
			c.slabs.free(e.slab, due)
		}
		e = next
	}
}

// TryReserve adds n bytes to r if that is possible at once without overtaking
// anybody in Reserve.
func (c *Cache) TryReserve(n int64, r *Reservation) bool {
	if n < 0 {
		return false
	}
	g := &c.ledger
	g.mu.Lock()
	ok := !g.closed && len(g.queue) == 0 && g.take(n)
	c.unlock()
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
	if n < 0 {
		return fmt.Errorf("cache: %d bytes cannot be reserved", n)
	}
	g := &c.ledger
	g.mu.Lock()
	switch {
	case g.closed:
		g.mu.Unlock()
		return ErrClosed
	case n > g.budget:
		err := tooLarge(n, g.budget)
		g.mu.Unlock()
		return err
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	g.pressure.Add(1) // before looking for something to evict; see entry.release
	g.queue = append(g.queue, w)
	g.serve()
	c.unlock()

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

func tooLarge(n, budget int64) error {
	return fmt.Errorf("%d bytes, the budget is %d: %w", n, budget, ErrTooLarge)
}

// leave takes a waiter out of the queue; false if it is not there any more.
func (c *Cache) leave(w *waiter) bool {
	g := &c.ledger
	g.mu.Lock()
	found := false
	for i, q := range g.queue {
		if q == w {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			g.pressure.Add(-1)
			found = true
			break
		}
	}
	g.serve() // those behind it may fit
	c.unlock()
	return found
}

// serve grants memory to those who wait, in order. The caller holds mu.
func (g *ledger) serve() {
	if g.over {
		g.trim()
	}
	for len(g.queue) > 0 && g.take(g.queue[0].n) {
		w := g.queue[0]
		g.queue = g.queue[1:]
		g.pressure.Add(-1)
		close(w.ready)
	}
}

// grant lets those who wait have what has become free.
func (c *Cache) grant() {
	c.ledger.mu.Lock()
	c.ledger.serve()
	c.unlock()
}

// unreserve gives reserved bytes back.
func (c *Cache) unreserve(n int64) {
	c.ledger.mu.Lock()
	c.ledger.reserved -= n
	c.ledger.serve()
	c.unlock()
}

// finish frees an orphan if its last lease is gone; nobody has done so before, or
// it is freed already.
func (c *Cache) finish(e *entry) {
	c.ledger.mu.Lock()
	if e.region == detached && e.kill() {
		c.ledger.move(e, freed)
	}
	c.ledger.serve()
	c.unlock()
}

// detach ends a residency that somebody may still lease: it gives the cache's
// reference back, once, however often it is called. An entry that is still
// being filled will not become resident.
func (c *Cache) detach(e *entry) (was region) {
	g := &c.ledger
	g.mu.Lock()
	defer c.unlock()
	was = g.detach(e)
	g.serve()
	return was
}

func (g *ledger) detach(e *entry) (was region) {
	if was = e.region; was == filling {
		e.dropped = true
	} else if g.set(was) != nil {
		g.move(e, detached)
		g.drop(e)
	}
	return was
}

// drop gives the reference back that is not a lease's. The caller holds mu.
func (g *ledger) drop(e *entry) {
	e.state.Or(orphan)
	if e.kill() {
		g.move(e, freed)
	}
}

// settle ends the filling of e: resident if it is good and was not dropped.
func (c *Cache) settle(e *entry, good bool) {
	g := &c.ledger
	g.mu.Lock()
	defer c.unlock()
	if good {
		e.letGo = true
	}
	if e.bound {
		g.taken -= e.size
	}
	stays := good && !e.dropped && !g.closed
	if good { // else whoever fills it may be writing the note still, as it may the bytes
		g.annotate(e, stays)
	}
	switch {
	case stays:
		e.seq = g.clock.Add(e.size)
		g.age += float64(e.size) / (halfLife * float64(g.budget))
		g.adapt(e)
		g.move(e, window) // the run's reference is now the cache's
	case e.bound && !e.letGo:
		// A read may still write into the memory: it stays on the books, and is nobody
		// else's, until Fill.Release.
		g.move(e, detached)
		e.owed = true
	default:
		g.move(e, detached)
		g.drop(e)
	}
	g.serve()
}

// letGo notes that nobody writes into e's memory any more.
func (c *Cache) letGo(e *entry) {
	g := &c.ledger
	g.mu.Lock()
	defer c.unlock()
	e.letGo = true
	if e.owed {
		e.owed = false
		g.drop(e)
		g.serve()
	}
}

// annotate puts the note of e on the account of e, or takes it away from e where
// there is no room. It may overtake who waits for memory: that e will be evicted
// for them, note and all. The caller holds mu; e is being filled still, so that
// it is not evicted for its own note.
func (g *ledger) annotate(e *entry, stays bool) {
	if e.noteSize == 0 {
		return
	}
	if !stays || !g.make(e.noteSize) {
		e.note, e.noteSize = nil, 0
		return
	}
	g.bytes[e.region] += e.noteSize
	e.size += e.noteSize
}
