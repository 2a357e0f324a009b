package metadata

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/segment"
)

// lineageOf takes pairs of epoch and start.
func lineageOf(pairs ...int64) segment.Lineage {
	l := segment.Lineage{}
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, segment.EpochStart{Epoch: int32(pairs[i]), Start: pairs[i+1]})
	}
	return l
}

// TestRemoteSegmentWithinLeaderEpochs is Kafka's table; the comparison with the
// log end is the host's.
func TestRemoteSegmentWithinLeaderEpochs(t *testing.T) {
	l := lineageOf(0, 0, 1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 7, 70)
	tests := []struct {
		lineage    segment.Lineage
		start, end int64
		epochs     []int64
		want       bool
	}{
		{l, 15, 35, []int64{1, 15, 2, 20, 3, 30}, true},
		{l, 15, 19, []int64{1, 15}, true},
		{l, 0, 5, []int64{0, 0}, true},
		{l, 70, 75, []int64{7, 70}, true},
		{l, 15, 29, []int64{1, 15, 2, 20}, true},
		{l, 55, 85, []int64{5, 55, 6, 60, 7, 70}, false},  // 6 is unknown
		{l, 15, 45, []int64{1, 15, 2, 20, 4, 40}, false},  // 3 is missing
		{l, 5, 25, []int64{1, 5, 2, 20}, false},           // begins before epoch 1
		{l, 15, 35, []int64{1, 15, 2, 20}, false},         // ends beyond epoch 2
		{l, 80, 90, []int64{8, 80}, false},                // above the history
		{l, 60, 69, []int64{5, 60}, true},                 // up to the very end of an epoch
		{l, 60, 70, []int64{5, 60}, false},                // one beyond
		{l, 65, 85, []int64{5, 65, 7, 70, 8, 80}, false},  // goes on where the history ends
		{l, 10, 29, []int64{0, 10, 1, 10, 2, 20}, true},   // an epoch without offsets does not count
		{l[1:], 0, 25, []int64{0, 0, 1, 10, 2, 20}, true}, // the log start has moved into it

		{lineageOf(7, 51, 9, 100), 14, 150, []int64{5, 14, 7, 15, 9, 100}, true},
		{lineageOf(7, 51, 9, 100), 2, 7, []int64{2, 5, 3, 6}, false},
		{lineageOf(7, 51, 9, 100), 75, 100, []int64{8, 75}, false},
		{lineageOf(7, 51, 9, 100), 15, 150, []int64{7, 15, 9, 101}, false},
		{lineageOf(7, 51, 9, 100), 99, 150, []int64{9, 99}, false},
		{lineageOf(7, 51, 9, 100), 15, 250, []int64{7, 15, 9, 100, 10, 200}, false},
		{nil, 0, 10, []int64{0, 0}, false},
	}
	for _, test := range tests {
		s := seg(1, CopySegmentFinished, test.start, test.end, test.epochs...)
		if got := s.Within(test.lineage); got != test.want {
			t.Errorf("%d-%d %v in %v: got %v", test.start, test.end, s.Epochs, test.lineage, got)
		}
	}
}

// TestBuildFilteredLeaderEpochMap is Kafka's example.
func TestBuildFilteredLeaderEpochMap(t *testing.T) {
	got := withoutEmpty(lineageOf(0, 0, 1, 0, 2, 0, 3, 30, 4, 40, 5, 60, 6, 60, 7, 70, 8, 70))
	if want := lineageOf(2, 0, 3, 30, 4, 40, 6, 60, 8, 70); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestAlong: which offsets of a segment a reader may see.
func TestAlong(t *testing.T) {
	const none = -1
	tests := []struct {
		name        string
		start, end  int64
		epochs      []int64
		lineage     segment.Lineage
		from        int64
		first, last int64
	}{
		{"whole", 0, 100, []int64{0, 0, 1, 20, 2, 80}, lineageOf(0, 0, 1, 20, 2, 80), 0, 0, 100},
		{"from the middle", 0, 100, []int64{0, 0, 1, 20}, lineageOf(0, 0, 1, 20), 50, 50, 100},
		{"from before", 10, 100, []int64{0, 10}, lineageOf(0, 0), 3, 10, 100},
		{"from beyond", 10, 100, []int64{0, 10}, lineageOf(0, 0), 101, none, none},
		{"cut by an unclean election", 0, 200, []int64{0, 0}, lineageOf(0, 0, 1, 150, 2, 300), 0, 0, 149},
		{"beyond the cut", 0, 200, []int64{0, 0}, lineageOf(0, 0, 1, 150, 2, 300), 150, none, none},
		{"log start moved into it", 14, 150, []int64{5, 14, 7, 15, 9, 100}, lineageOf(7, 51, 9, 100), 0, 51, 150},
		{"an epoch that begins elsewhere", 15, 150, []int64{7, 15, 9, 101}, lineageOf(7, 51, 9, 100), 51, 51, 99},
		{"behind it", 15, 150, []int64{7, 15, 9, 101}, lineageOf(7, 51, 9, 100), 100, 101, 150},
		{"an unknown epoch in between", 55, 85, []int64{5, 55, 6, 60, 7, 70}, lineageOf(5, 50, 7, 70), 55, 55, 59},
		{"another history", 75, 100, []int64{8, 75}, lineageOf(7, 51, 9, 100), 0, none, none},
		{"no history", 75, 100, []int64{8, 75}, nil, 0, none, none},
		{"epochs without offsets", 0, 9, []int64{0, 0, 1, 5, 2, 5}, lineageOf(0, 0, 1, 5, 2, 5), 0, 0, 9},
	}
	for _, test := range tests {
		s := seg(1, CopySegmentFinished, test.start, test.end, test.epochs...)
		first, last, ok := s.Along(test.lineage, test.from)
		if ok != (test.first != none) || ok && (first != test.first || last != test.last) {
			t.Errorf("%s: got %d to %d, %v", test.name, first, last, ok)
		}
	}
}

// covers says by the definition whether s may serve an offset to a reader.
func covers(s *Segment, l segment.Lineage, offset int64) bool {
	if offset < s.StartOffset || offset > s.EndOffset {
		return false
	}
	have, ok := s.Epochs.EpochFor(offset)
	want, known := l.EpochFor(offset)
	return ok && known && have == want
}

func drawLineage(t *rapid.T, label string, start int64) segment.Lineage {
	l := segment.Lineage{}
	epoch, at := int32(0), start
	for range rapid.IntRange(1, 4).Draw(t, label) {
		epoch += rapid.Int32Range(0, 2).Draw(t, "epoch")
		l = append(l, segment.EpochStart{Epoch: epoch, Start: at})
		epoch++
		at += rapid.Int64Range(0, 8).Draw(t, "length")
	}
	return l
}

// TestAlongIsBruteForce compares Along, lastAlong and Within with what walking
// all offsets says.
func TestAlongIsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLineage(t, "history", rapid.Int64Range(0, 5).Draw(t, "begin"))
		start := rapid.Int64Range(0, 10).Draw(t, "start")
		end := start + rapid.Int64Range(0, 15).Draw(t, "size")
		s := seg(1, CopySegmentFinished, start, end)
		s.Epochs = drawLineage(t, "segment", start).Range(start, end)
		if rapid.Bool().Draw(t, "of this history") {
			if clip := l.Range(start, end); len(clip) > 0 && clip[0].Start == start {
				s.Epochs = clip
			}
		}
		for from := range int64(30) {
			wantFirst, wantLast, want := int64(0), int64(0), false
			for o := from; o <= end; o++ {
				if covers(s, l, o) {
					if !want {
						wantFirst, want = o, true
					}
					wantLast = o
				} else if want {
					break
				}
			}
			first, last, ok := s.Along(l, from)
			if ok != want || ok && (first != wantFirst || last != wantLast) {
				t.Fatalf("%v %v along %v from %d: got %d to %d %v, want %d to %d %v", s.EndOffset, s.Epochs, l, from, first, last, ok, wantFirst, wantLast, want)
			}
		}
		want, any := int64(0), false
		for o := start; o <= end; o++ {
			if covers(s, l, o) {
				want, any = o, true
			}
		}
		if got, ok := lastAlong(s.Epochs, s.EndOffset, l); ok != any || ok && got != want {
			t.Fatalf("last offset of %v in %v: got %d %v, want %d %v", s.Epochs, l, got, ok, want, any)
		}
		// What Kafka lets retention count agrees with the history from the first
		// epoch on that the history knows.
		if s.Within(l) {
			begin := l[0].Start
			for _, e := range slices.Backward(withoutEmpty(s.Epochs)) {
				if e.Epoch >= withoutEmpty(l)[0].Epoch {
					begin = max(l[0].Start, e.Start)
				}
			}
			for o := begin; o <= end; o++ {
				if !covers(s, l, o) {
					t.Fatalf("%v is within %v but differs at %d", s.Epochs, l, o)
				}
			}
		}
	})
}

// TestNewestHistory: the history that metadata itself tells.
func TestNewestHistory(t *testing.T) {
	tests := []struct {
		name string
		segs []*Segment
		want segment.Lineage
	}{
		{"nothing", nil, lineageOf()},
		{"one history", []*Segment{
			seg(1, CopySegmentFinished, 0, 100, 0, 0, 1, 20, 2, 80), seg(2, CopySegmentFinished, 101, 200, 2, 101),
		}, lineageOf(0, 0, 1, 20, 2, 80)},
		{"an unclean election cuts what was copied", []*Segment{
			seg(1, CopySegmentFinished, 0, 200, 0, 0), seg(2, CopySegmentFinished, 150, 300, 1, 150),
		}, lineageOf(0, 0, 1, 150)},
		{"as soon as the new leader begins to copy", []*Segment{
			seg(1, CopySegmentFinished, 0, 200, 0, 0), seg(2, CopySegmentStarted, 150, 300, 1, 150),
		}, lineageOf(0, 0, 1, 150)},
		{"and still after what it copied has ended", []*Segment{
			seg(1, CopySegmentFinished, 0, 200, 0, 0), seg(2, DeleteSegmentFinished, 150, 300, 1, 150),
		}, lineageOf(0, 0, 1, 150)},
		{"an epoch begins where the earliest segment says", []*Segment{
			seg(1, CopySegmentFinished, 50, 99, 3, 50), seg(2, CopySegmentFinished, 0, 49, 2, 0, 3, 40),
		}, lineageOf(2, 0, 3, 40)},
		{"an epoch without offsets is left out", []*Segment{
			seg(1, CopySegmentStarted, 10, 19, 0, 10), seg(2, CopySegmentFinished, 10, 19, 1, 10),
		}, lineageOf(1, 10)},
		{"a later epoch that begins earlier removes those between", []*Segment{
			seg(1, CopySegmentFinished, 0, 99, 0, 0, 1, 50, 2, 60), seg(2, CopySegmentFinished, 40, 99, 5, 40),
		}, lineageOf(0, 0, 5, 40)},
	}
	for _, test := range tests {
		if got := NewView(testPartition, test.segs...).Lineage(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestLineageWithoutEnd(t *testing.T) {
	s := seg(1, CopySegmentFinished, 5, math.MaxInt64)
	if first, last, ok := s.Along(lineageOf(0, 0), 7); first != 7 || last != math.MaxInt64 || !ok {
		t.Errorf("got %d to %d, %v", first, last, ok)
	}
	if got := NewView(testPartition, s).CopiedUpTo(nil); got != math.MaxInt64 {
		t.Errorf("copied up to %d", got)
	}
}
