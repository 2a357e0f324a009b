package fetch

import (
	"math/rand/v2"
	"testing"

	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// settled loads a tail of a size that three of fit.
func settled(ts *tails, id segment.UUID) {
	t, loaded, isNew := ts.join(id)
	if loaded || !isNew {
		return
	}
	ts.settle(t, &lo, nil)
}

// lo is the tail of an empty object, which takes 1 KiB.
var lo = loaded{tail: &object.Tail{}}

// Tails are found without the lock as long as they are kept, and not any more. Those
// that are found so are in use, and others go before them.
func TestTailsFoundWithoutTheLock(t *testing.T) {
	var ts tails
	ts.init(3 << 10)
	id := func(n byte) *segment.UUID { return &segment.UUID{8: n, 15: n} }
	join := func(n byte) {
		settled(&ts, *id(n))
		ts.join(*id(n))
	}
	for n := range byte(3) {
		join(n)
	}
	if ts.find(id(0)) == nil {
		t.Fatal("a tail that was joined is not found")
	}
	join(3)
	for n, kept := range []bool{true, false, true, true} {
		if got := ts.find(id(byte(n))); (got != nil) != kept {
			t.Errorf("tail %d found: %v, kept: %v", n, got != nil, kept)
		}
	}
	join(4) // all that are here are in use: one of them goes
	if n, size := ts.stats(); n != 3 || size != 3<<10 {
		t.Errorf("%d tails of %d bytes are kept", n, size)
	}
	for n := range byte(5) {
		ts.drop(*id(n))
		if ts.find(id(n)) != nil {
			t.Errorf("tail %d is found after it was dropped", n)
		}
	}
	if n, size := ts.stats(); n != 0 || size != 0 {
		t.Errorf("%d tails of %d bytes are left", n, size)
	}
}

// Where all tails are found again and again while there is too much of them, those go that
// would go if none were: nobody waits until they are let alone.
func TestTailsInUseAllTheTime(t *testing.T) {
	var ts tails
	ts.init(3 << 10)
	for n := range byte(3) {
		settled(&ts, segment.UUID{8: n, 15: n})
	}
	ts.limit = 2 << 10
	asked := 0
	ts.shrink(func(*tail) bool {
		if asked++; asked > 100 {
			t.Fatalf("tails that are in use are asked for the %dth time whether they are", asked)
		}
		return true // found once more since
	})
	for n, kept := range []bool{false, true, true} {
		if got := ts.has(segment.UUID{8: byte(n), 15: byte(n)}); got != kept {
			t.Errorf("tail %d is here: %v, want %v", n, got, kept)
		}
	}
}

// Whatever is joined, found and dropped, what is found is what is kept: also where two
// tails want the same place.
func TestTailsFoundAreKept(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var ts tails
	ts.init(8 << 10)
	for range 20_000 {
		var id segment.UUID
		id[8], id[0] = byte(r.IntN(4)), byte(r.IntN(8)) // the latter does not say where
		switch r.IntN(8) {
		case 0:
			ts.drop(id)
		case 1, 2, 3:
			settled(&ts, id)
			ts.join(id)
		default:
			found := ts.find(&id)
			if kept := ts.byID[id]; found != nil && found != kept {
				t.Fatalf("found %p, kept is %p", found, kept)
			}
		}
		if n, size := ts.stats(); n > 8 || size != int64(n)<<10 || n != len(ts.byID) {
			t.Fatalf("%d tails of %d bytes, %d by id", n, size, len(ts.byID))
		}
	}
}
