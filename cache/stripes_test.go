package cache

import (
	"runtime"
	"testing"
)

// Who looks whether a chunk can be evicted and finds it leased leaves it as it
// was, for every processor.
func TestKillLeavesWhatIsLeased(t *testing.T) {
	for at := range uint8(numStripes) {
		e := new(entry)
		if _, ok := e.retain(at); !ok {
			t.Fatal("a new entry cannot be leased")
		}
		if e.kill() {
			t.Fatal("a leased entry was killed")
		}
		for i := range uint8(numStripes) {
			if _, ok := e.retain(i); !ok {
				t.Fatalf("stripe %d stays dead after one found a lease on stripe %d", i, at)
			}
			e.leases[i].n.Add(^uint64(0))
		}
		e.leases[at].n.Add(^uint64(0))
		if !e.kill() {
			t.Fatal("an entry that nobody leases was not killed")
		}
		for i := range uint8(numStripes) {
			if _, ok := e.retain(i); ok {
				t.Fatal("a dead entry was leased")
			}
		}
	}
}

// Who meets a stripe that is dead for now waits for the verdict: it neither leads
// a chunk that is there, nor misses it.
func TestAcquireWaitsForTheVerdict(t *testing.T) {
	c := open(t, 8)
	k := key(1, 0)
	var l Lease
	get(t, c, k, &l)
	l.Release()
	e := resident(c, k)
	mark := func(f func(n *stripe)) {
		for i := range e.leases {
			f(&e.leases[i])
		}
	}
	for range 100 { // if it does not wait, that shows in one of them
		// As kill does, which holds the ledger meanwhile.
		c.ledger.mu.Lock()
		mark(func(s *stripe) { s.n.Or(dead) })
		got := make(chan Outcome, 1)
		go func() {
			o, _ := c.Acquire(k, size, nil, &l)
			got <- o
		}()
		early := false
		for range 100 {
			runtime.Gosched()
			early = early || len(got) > 0
		}
		mark(func(s *stripe) { s.n.And(^uint64(dead)) })
		c.ledger.mu.Unlock()
		if o := <-got; o != Hit || early {
			t.Fatalf("outcome %d of a chunk that stays, want a hit; before that was known: %v", o, early)
		}
		l.Release()
	}
}
