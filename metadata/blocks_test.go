package metadata

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/segtier/segtier/segment"
)

// TestCopiedUpToOverBlocks compares the way that takes whole blocks at once with
// a walk from segment to segment: over changes of the leader epoch, gaps,
// overlaps and histories that leave the segments somewhere.
func TestCopiedUpToOverBlocks(t *testing.T) {
	for seed := range uint64(soak(40, 2000)) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var segs []*Segment
		history := lineageOf(0, 0)
		at, epoch := int64(0), int32(0)
		n := fillBlock*2 + rng.IntN(3*fillBlock)
		gap, overlap := rng.IntN(2*n), rng.IntN(2*n)
		for i := range n {
			if i == gap {
				at++
			}
			start := at
			if i == overlap && i > 0 {
				start--
			}
			end := at + rng.Int64N(4)
			if rng.IntN(150) == 0 {
				epoch++
				history = append(history, segment.EpochStart{Epoch: epoch, Start: at + rng.Int64N(end-at+1)})
			}
			s := fin(1, start, end)
			s.ID = segment.UUID{byte(i), byte(i >> 8), 1}
			s.Epochs = history.Range(start, end)
			segs = append(segs, s)
			at = end + 1
		}
		v := NewView(testPartition, segs...)
		for range rng.IntN(20) { // blocks that were changed since
			i := rng.IntN(n)
			gone := segs[i].Clone()
			gone.State = DeleteSegmentStarted
			if v = v.With(gone); rng.IntN(2) == 0 {
				again := segs[i].Clone()
				again.ID[3] = 9
				v = v.With(again)
			}
		}
		other := slices.Clone(history)
		other = append(other, segment.EpochStart{Epoch: epoch + 1, Start: max(other[len(other)-1].Start, rng.Int64N(at))})
		for _, l := range []segment.Lineage{nil, history, history[:1+rng.IntN(len(history))], history[rng.IntN(len(history)):], other, lineageOf(99, 0)} {
			want := walkUpTo(v, v.resolve(l))
			if got := v.CopiedUpTo(l); got != want {
				t.Fatalf("seed %d: copied up to %d in %v, want %d", seed, got, l, want)
			}
		}
	}
}

// walkUpTo is CopiedUpTo from segment to segment.
func walkUpTo(v *View, l segment.Lineage) int64 {
	end := int64(-1)
	r, at, ok := v.next(l, 0)
	for ok && (end < 0 || at == end+1) {
		_, end, _ = r.along(l, at)
		r, at, ok = v.next(l, end+1)
	}
	return end
}

// TestCopiedUpToTakesBlocks: a million segments must not be walked on each call.
func TestCopiedUpToTakesBlocks(t *testing.T) {
	v := bigView(10 * fillBlock)
	for i := range v.finished.dirs {
		if v.finished.dirs[i].block.history == nil {
			t.Fatalf("block %d is not known to be one history", i)
		}
	}
	if got := v.skipBlocks(v.Lineage(), 9); got != 100*fillBlock-1 {
		t.Errorf("it goes to %d at once", got)
	}
}

// TestRowIsSmall: what a segment takes in a View, but for its epochs and custom
// metadata: the row, its place in the searched arrays, and the index of ids.
func TestRowIsSmall(t *testing.T) {
	if got := reflect.TypeFor[row]().Size() + 8 + 16; got > 120 {
		t.Errorf("%d bytes", got)
	}
}

// TestIDsWithOneHash: ids that the index cannot tell apart are told apart.
func TestIDsWithOneHash(t *testing.T) {
	x := idIndex{}
	var ids []segment.UUID
	for i := range 3 * maxBlock {
		ids = append(ids, testID(i))
		x = x.with(&ids[i], int64(i))
	}
	// Many entries of one hash, over several blocks.
	same := make([]idEntry, 2*maxBlock)
	for i := range same {
		same[i] = idEntry{hashID(&ids[7]), int64(10_000 + i)}
	}
	x = newIDIndex(slices.Concat(same, flatten(x)))
	find := func(want int64) bool {
		found := false
		x.starts(&ids[7], func(start int64) bool { found = start == want; return found })
		return found
	}
	for _, start := range []int64{7, 10_000, 10_000 + 2*maxBlock - 1} {
		if !find(start) {
			t.Errorf("start %d is not tried", start)
		}
		x = x.without(&ids[7], start)
		if find(start) {
			t.Errorf("start %d is still there", start)
		}
	}
	if n := len(flatten(x)); n != 5*maxBlock-3 {
		t.Errorf("%d entries are left", n)
	}
	x = x.with(&ids[7], 42)
	if !find(42) || !slices.IsSortedFunc(flatten(x), func(a, b idEntry) int { return cmp.Compare(a.hash, b.hash) }) {
		t.Error("not sorted any more")
	}
	if got := x.without(&ids[8], math.MaxInt64); len(flatten(got)) != len(flatten(x)) {
		t.Error("what is not there was removed")
	}
}

func flatten(x idIndex) (entries []idEntry) {
	for _, d := range x {
		entries = append(entries, d.entries...)
	}
	return entries
}
