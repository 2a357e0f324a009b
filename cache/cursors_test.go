package cache

import (
	"math"
	"sync"
	"testing"
)

// fillAt fetches a chunk of a log: position i, a hundred offsets each.
func fillAt(t *testing.T, c *Cache, number, i int) {
	t.Helper()
	var l Lease
	f := lead(t, c, key(number+1, i), &l)
	f.Place(Place{Log: Log{Number: int32(number)}, First: int64(i * 100), Next: int64(i*100 + 100)})
	paint(f.Buf(), f.Key())
	f.Done()
	l.Release()
}

func here(c *Cache, number, i int) bool { return c.Has(key(number+1, i)) }

// What a cursor is on its way to outlives a scan of many times the budget.
func TestChunksAheadOfACursorStay(t *testing.T) {
	c := open(t, 32)
	cur := c.Announce(Log{}, 0)
	defer cur.Close()
	for i := range 8 {
		fillAt(t, c, 0, i)
	}
	scan := c.Announce(Log{Number: 1}, 0)
	defer scan.Close()
	for i := range 100 {
		fillAt(t, c, 1, i)
		scan.Read(int64(i*100), int64(i*100+100))
	}
	for i := range 8 {
		if !here(c, 0, i) {
			t.Fatalf("chunk %d, which the cursor needs, was evicted", i)
		}
	}
	// Behind the cursor nobody needs them.
	cur.Read(0, 800)
	for i := range 31 {
		fillAt(t, c, 2, i)
	}
	for i := range 8 {
		if here(c, 0, i) {
			t.Fatalf("chunk %d, which the cursor has passed, was kept", i)
		}
	}
}

// A cursor that closes, or is not heard of for long, keeps nothing.
func TestAGoneCursorKeepsNothing(t *testing.T) {
	for _, close := range []bool{true, false} {
		c := open(t, 32)
		cur := c.Announce(Log{}, 0)
		for i := range 8 {
			fillAt(t, c, 0, i)
		}
		if close {
			cur.Close()
			cur.Close()
		}
		budgets := 2
		if !close {
			budgets = 3 * forgottenAfter
		}
		for i := range budgets * 32 {
			fillAt(t, c, 1, i)
		}
		for i := range 8 {
			if here(c, 0, i) {
				t.Fatalf("closed %v: chunk %d is kept for nobody", close, i)
			}
		}
		cur.Close()
	}
}

// Of two cursors the one that is there sooner decides; distance alone does not.
func TestNextUse(t *testing.T) {
	const budget = 1600
	lc := new(logCursors)
	add := func(pos int64, rate float64, last int64) *Cursor {
		cur := &Cursor{log: lc, pos: pos, rate: rate, last: last}
		lc.cursors = append(lc.cursors, cur)
		return cur
	}
	p := Place{First: 1000, Next: 1100}
	use := func() float64 { return lc.nextUse(p, 100, budget) }
	if !math.IsInf(use(), 1) {
		t.Error("needed, but there is no cursor")
	}
	add(1100, 1, 100)
	if !math.IsInf(use(), 1) {
		t.Error("needed, but the only cursor has passed")
	}
	slow := add(-9000, 0.5, 100)
	if got := use(); got != 20_000 {
		t.Errorf("needed in %v, want 20000: far, but nobody is late", got)
	}
	slow.last -= forgottenAfter*budget + 1
	if got := use(); !math.IsInf(got, 1) {
		t.Errorf("needed in %v by one who is gone", got)
	}
	slow.pos, slow.last = -neverAfter*budget, 100
	if got := use(); !math.IsInf(got, 1) {
		t.Errorf("needed in %v, which is never", got)
	}
	add(900, 0.5, 100)
	if got := use(); got != 200 {
		t.Errorf("needed in %v, want 200", got)
	}
	fast := add(0, 10, 100)
	if got := use(); got != 100 {
		t.Errorf("needed in %v, want 100: the faster cursor is there first", got)
	}
	fast.last = 50 // late by 50
	if got := use(); got != 150 {
		t.Errorf("needed in %v, want 150: who is late is late for as long again", got)
	}
	fast.gap = 20 // it is between two reads, for 40 of those
	if got := use(); got != 110 {
		t.Errorf("needed in %v, want 110: one that reads now and then is not late at once", got)
	}
	fast.gap, fast.rate, fast.pos = 0, 0, 950
	if got := use(); got != 50 {
		t.Errorf("needed in %v, want 50: one that has only begun is not late, and as fast as who is known", got)
	}
	add(1050, 1, 100)
	if got := use(); got != 0 {
		t.Errorf("needed in %v, but it is being read", got)
	}
}

// A cursor moves with its reader, who may skip a little, or go elsewhere; then what is known of
// its speed is forgotten, and of what it has read.
func TestCursorMoves(t *testing.T) {
	c := open(t, 32)
	cur := c.Announce(Log{}, 0)
	defer cur.Close()
	other := c.Announce(Log{}, 0)
	defer other.Close()
	for i := range 8 {
		cur.Read(int64(i*100), int64(i*100+100))
		fillAt(t, c, 1, i)
	}
	if cur.pos != 800 || cur.start != 0 || cur.rate == 0 || other.pos != 0 {
		t.Fatalf("at %d from %d, %v offsets a byte; the other at %d", cur.pos, cur.start, cur.rate, other.pos)
	}
	cur.Read(850, 950) // skipped less than it reads
	if cur.pos != 950 || cur.start != 0 || cur.rate == 0 {
		t.Errorf("after a small skip: at %d from %d", cur.pos, cur.start)
	}
	cur.Read(5050, 5150)
	if cur.pos != 5150 || cur.start != 5050 || cur.rate != 0 {
		t.Errorf("after a seek: at %d from %d, %v offsets a byte", cur.pos, cur.start, cur.rate)
	}
	// Whoever has passed all of a chunk counts as one who has read it.
	if n := cur.log.passed(Place{First: 5060, Next: 5150}); n != 1 {
		t.Errorf("%d have read it", n)
	}
	if n := cur.log.passed(Place{First: 0, Next: 100}); n != 0 {
		t.Errorf("%d have read what was before the seek", n)
	}
}

// A cursor that went back to what it had read is expected to do so again where it
// did, until it reads on from there. What it has passed is needed when it comes round.
func TestCursorsGoRound(t *testing.T) {
	const budget = 1600
	at := func(first int64) Place { return Place{First: first, Next: first + 100} }
	lc := new(logCursors)
	cur := &Cursor{log: lc, start: 1000, pos: 1000, markPos: 1000}
	lc.cursors = append(lc.cursors, cur)
	now := int64(0)
	read := func(from, to int64) {
		for ; from < to; from += 100 {
			now += 100
			cur.move(from, from+100, now, budget)
		}
	}
	use := func(first int64, want float64) {
		t.Helper()
		if got := lc.nextUse(at(first), now, budget); math.Abs(got-want) > 1e-6 {
			t.Errorf("at %d, from %d back to %d: %d is needed in %v, want %v", cur.pos, cur.turn, cur.again, first, got, want)
		}
	}
	never := math.Inf(1)

	read(1000, 3000)
	use(1000, never) // nobody goes round so far
	read(1200, 2000)
	if cur.rate != 1 {
		t.Fatalf("%v offsets a byte after a jump back, want 1", cur.rate)
	}
	use(2500, 500)
	use(1200, 1000) // 1,000 until it goes back
	use(1900, 1700)
	use(1000, never) // before the round
	use(3000, 1000)  // or else it reads on

	read(1900, 2000) // a little jump changes nothing
	use(1200, 1000)
	read(2000, 3000)
	read(1200, 1300)
	use(1200, 1700)
	if cur.rate != 1 {
		t.Fatalf("%v offsets a byte, going round at the same speed", cur.rate)
	}

	read(1300, 2400)
	read(1200, 1300) // a shorter round
	use(2300, 1000)
	use(1200, 1100)

	read(1300, 2500) // it reads on
	use(1200, never)
	read(5000, 5100)
	read(3000, 3100) // back, but to where it never was
	use(3000, never)
}

// Logs of which nothing is here, and that nobody reads, are forgotten.
func TestLogsAreForgotten(t *testing.T) {
	c := open(t, 4)
	own := c.Announce(Log{Number: 5}, 0)
	defer own.Close()
	for i := range 5000 {
		c.Announce(Log{Number: int32(i)}, 0).Close()
	}
	n := 0
	for i := range c.logs {
		n += len(c.logs[i].logs)
	}
	if n > numLogShards*65 {
		t.Fatalf("%d logs are remembered", n)
	}
	other := c.Announce(Log{Number: 5}, 0)
	defer other.Close()
	if other.log != own.log {
		t.Fatal("a log that is being read was forgotten")
	}
}

// A chunk may be given up, and its memory be free, before whoever fills it says where it
// lies: its log is not kept for it.
func TestPlacedTooLate(t *testing.T) {
	c := open(t, 4)
	defer c.Close()
	var room Reservation
	if !c.TryReserve(4096, &room) {
		t.Fatal("no memory")
	}
	defer room.Release()
	var l Lease
	_, f := c.Acquire(key(1, 1), 4096, &room, &l)
	var failing sync.WaitGroup
	failing.Go(func() { // the race detector looks too
		f.Fail(ErrClosed)
		l.Release()
	})
	f.Place(Place{Log: Log{Number: 7}, Next: 10})
	failing.Wait()
	f.Release()
	log := c.logOf(Log{Number: 7})
	if n := log.held.Add(-1); n != 0 {
		t.Errorf("its log is kept for %d chunks", n)
	}

	if !c.TryReserve(4096, &room) {
		t.Fatal("no memory")
	}
	_, f = c.Acquire(key(1, 1), 4096, &room, &l)
	f.Fail(ErrClosed)
	l.Release()
	f.Place(Place{Log: Log{Number: 7}, Next: 10})
	f.Release()
	if n := log.held.Load(); n != 0 {
		t.Errorf("its log is kept for %d chunks that were freed", n)
	}
}
