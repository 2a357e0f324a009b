package endpoint

import (
	"slices"
	"testing"
	"testing/synctest"
)

// What was to be fetched ahead and is waited for now has its turn, and its slots, as
// what is waited for. What has its slot keeps it; what has left is left alone.
func TestRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

// However much is deleted and looked at, an eighth of the slots is all it has, and
// nobody else waits for it.
func TestUpkeepIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
