package cache

import (
	"math"
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
	for i := range 100 {
		fillAt(t, c, 1, i)
		c.Read(Log{Number: 1}, int64(i*100), int64(i*100+100))
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
	add := func(pos int64, rate float64, steps int, last int64) *Cursor {
		cur := &Cursor{log: lc, pos: pos, rate: rate, steps: steps, last: last}
		lc.cursors = append(lc.cursors, cur)
		return cur
	}
	p := Place{First: 1000, Next: 1100}
	use := func() float64 { return lc.nextUse(p, 100, budget) }
	if !math.IsInf(use(), 1) {
		t.Error("needed, but there is no cursor")
	}
	add(1100, 1, 10, 100)
	if !math.IsInf(use(), 1) {
		t.Error("needed, but the only cursor has passed")
	}
	add(990, 1, trustedAfter-1, 100)
	if !math.IsInf(use(), 1) {
		t.Error("needed, but nobody knows that the only cursor will go on")
	}
	add(900, 0.5, 10, 100)
	if got := use(); got != 200 {
		t.Errorf("needed in %v, want 200", got)
	}
	fast := add(0, 10, 10, 100)
	if got := use(); got != 100 {
		t.Errorf("needed in %v, want 100: the faster cursor is there first", got)
	}
	fast.last = 50 // late by 50
	if got := use(); got != 150 {
		t.Errorf("needed in %v, want 150: who is late is late for as long again", got)
	}
	add(1050, 1, 10, 100)
	if got := use(); got != 0 {
		t.Errorf("needed in %v, but it is being read", got)
	}
}

// Readers that do not say who they are are told apart by where they are.
func TestInference(t *testing.T) {
	c := open(t, 32)
	log := Log{Number: 5}
	lc := c.logOf(log, false)
	for i := range int64(20) {
		c.Read(log, 100*i, 100*i+100)
		c.Read(log, 5000+50*i, 5000+50*i+50)
	}
	if len(lc.cursors) != 2 || lc.cursors[0].pos != 2000 || lc.cursors[1].pos != 6000 {
		t.Fatalf("%d cursors were inferred of two readers", len(lc.cursors))
	}
	c.Read(log, 2050, 2150) // it skipped less than it reads
	if len(lc.cursors) != 2 || lc.cursors[0].pos != 2150 {
		t.Fatal("a small skip is another reader")
	}
	for i := range int64(1000) { // here and there
		c.Read(log, 100_000+i*i*10, 100_000+i*i*10+1)
	}
	if len(lc.cursors) > maxCursors {
		t.Fatalf("%d cursors", len(lc.cursors))
	}
	// One that was announced is not taken for others, nor others for it.
	own := c.Announce(log, 7)
	defer own.Close()
	c.Read(log, 7, 8)
	if own.pos != 7 {
		t.Fatal("another's read moved an announced cursor")
	}
	own.Read(7, 9)
	if own.pos != 9 {
		t.Fatal("its own read did not")
	}
}

// Logs that nobody reads any more are forgotten.
func TestLogsAreForgotten(t *testing.T) {
	c := open(t, 4)
	for i := range 5000 {
		c.Read(Log{Number: int32(i)}, 0, 1)
		if i%10 == 0 {
			fillAt(t, c, 100_000, i)
		}
	}
	n := 0
	for i := range c.logs {
		n += len(c.logs[i].logs)
	}
	if n > 3000 {
		t.Fatalf("%d logs are remembered", n)
	}
}
