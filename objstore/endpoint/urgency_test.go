package endpoint

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/segtier/segtier/internal/bubble"
)

// What was to be fetched ahead and is waited for now has its turn, and its slots, as
// what is waited for. What has its slot keeps it; what has left is left alone.
func TestRaise(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{8, 1 << 30}, bound{})
		for range 7 { // all but the one that is kept for the tail
			hold(t, s, backfill(1))
		}
		first, second, third := ask(s, ahead(1).of(1)), ask(s, ahead(1).of(2)), ask(s, ahead(1).of(3))
		second.raise(BackfillDemand)
		if second.served() {
			t.Error("demand of a backfill has the tail's slot")
		}
		second.raise(TailDemand)
		second.raise(Prefetch) // never back
		if first.served() || !second.served() || third.served() {
			t.Errorf("served: %v, %v, %v; the second was raised", first.served(), second.served(), third.served())
		}
		second.u.Raise(TailDemand)
		second.giveBack(s)
		first.leave()
		first.raise(TailDemand)
		if third.served() {
			t.Error("what was not raised was served")
		}
		for range 7 {
			s.release(backfill(1))
		}
		synctest.Wait()
		third.giveBack(s)

		late := NewUrgency(Prefetch)
		late.Raise(BackfillDemand) // before it is asked for
		w, err := s.acquireAs(t.Context(), ahead(1), late)
		if err != nil || w.line != line(BackfillDemand) {
			t.Errorf("%+v, %v", w, err)
		}
		s.release(w)
		nothingLeft(t, s)
	})
}

// A Read whose tenant has all it may have becomes that of another who waits for it too,
// if he may have more; and is held to his bound from then on. It keeps its place if that
// changes nothing.
func TestRaiseForAnother(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{8, 1 << 30}, bound{requests: 1})
		by := func(tenant string) want {
			w := tail(1)
			w.tenant = tenant
			return w
		}
		hold(t, s, by("a"))
		hold(t, s, by("b"))
		first, second, third := ask(s, by("a")), ask(s, by("a")), ask(s, by("a"))
		first.u.RaiseFor(TailDemand, "b") // who has all he may have too: it stays a's, and first
		s.release(by("a"))
		if synctest.Wait(); !first.served() || second.served() {
			t.Fatal("what waited first is not served first")
		}
		second.u.RaiseFor(TailDemand, "c")
		third.u.RaiseFor(TailDemand, "c") // has that one now
		if synctest.Wait(); !second.served() || third.served() {
			t.Fatal("c waits for a's bound, or passes his own")
		}
		if w := s.tenants["c"]; w == nil || w.taken.requests != 1 || s.tenants["a"].taken.requests != 1 {
			t.Errorf("c has %+v, a %+v", w, s.tenants["a"])
		}
		second.giveBack(s)
		third.leave()
		first.giveBack(s)
		s.release(by("b"))

		hold(t, s, by("a"))
		late := NewUrgency(TailDemand)
		late.RaiseFor(TailDemand, "") // before it is asked for, by nobody in particular
		w, err := s.acquireAs(t.Context(), by("a"), late)
		if err != nil || w.tenant != "" {
			t.Errorf("%+v, %v", w, err)
		}
		s.release(w)
		s.release(by("a"))

		for range 8 {
			hold(t, s, tail(1))
		}
		short := ask(s, by("a")) // of slots, not of what a may have: it stays a's
		short.u.RaiseFor(TailDemand, "c")
		s.release(tail(1))
		if synctest.Wait(); !short.served() || s.tenants["a"] == nil || s.tenants["c"] != nil {
			t.Errorf("served: %v, of %v", short.served(), s.tenants)
		}
		short.giveBack(s)
		for range 7 {
			s.release(tail(1))
		}
		nothingLeft(t, s)
	})
}

// However much is deleted and looked at, an eighth of the slots is all it has, and
// nobody else waits for it.
func TestUpkeepIsLast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{16, 1 << 40}, bound{})
		var upkeep []*asking
		for i := range uint64(40) {
			upkeep = append(upkeep, ask(s, removal().of(i)), ask(s, look().of(i)))
		}
		served := 0
		for _, a := range upkeep {
			if a.served() {
				served++
			}
		}
		if served != 2 {
			t.Errorf("%d of 16 slots for upkeep, want 2", served)
		}
		read := ask(s, ahead(1))
		written := ask(s, part(1))
		if !read.served() || !written.served() {
			t.Error("deletes hold up who reads or writes")
		}
		read.giveBack(s)
		written.giveBack(s)
		for served := true; served; { // and all of it comes to its end
			served = false
			for i, a := range upkeep {
				if a.served() {
					a.giveBack(s)
					upkeep = slices.Delete(upkeep, i, i+1)
					served = true
					break
				}
			}
		}
		if len(upkeep) > 0 {
			t.Errorf("%d were never served", len(upkeep))
		}
		nothingLeft(t, s)
	})
}
