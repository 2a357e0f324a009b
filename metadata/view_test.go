package metadata

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/segtier/segtier/segment"
)

// finish adds FINISHED segments to a view, through STARTED, in this order.
func finish(v *View, segs ...*Segment) *View {
	for _, s := range segs {
		started := *s
		started.State = CopySegmentStarted
		v = v.With(&started).With(s)
	}
	return v
}

func fin(id int, start, end int64, epochs ...int64) *Segment {
	return seg(id, CopySegmentFinished, start, end, epochs...)
}

// has checks which segment is found for offsets of a lineage; id 0 is none.
func has(t *testing.T, v *View, l segment.Lineage, id int, offsets ...int64) {
	t.Helper()
	for _, o := range offsets {
		s, ok := v.Lookup(l, o)
		switch {
		case !ok && id != 0:
			t.Errorf("offset %d: nothing found, want segment %d", o, id)
		case ok && (id == 0 || s.ID != testID(id)):
			t.Errorf("offset %d: found %d-%d", o, s.StartOffset, s.EndOffset)
		}
	}
}

// lists checks what All yields: "start-end" each.
func lists(t *testing.T, v *View, want string) {
	t.Helper()
	var got []string
	for s := range v.All() {
		got = append(got, fmt.Sprintf("%d-%d", s.StartOffset, s.EndOffset))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("all segments: got %v, want %s", got, want)
	}
}

func highest(t *testing.T, v *View, epoch int32, want int64) {
	t.Helper()
	if got, ok := v.HighestOffset(epoch); ok != (want >= 0) || ok && got != want {
		t.Errorf("highest offset of epoch %d: got %d, want %d", epoch, got, want)
	}
}

// TestOverlaps is Kafka's behaviour for overlapping segments of one epoch, in
// the order of FINISHED. Where a case says so, Kafka finds nothing although a
// segment covers the offset, or forgets an id; here both are right.
func TestOverlaps(t *testing.T) {
	empty := NewView(testPartition)
	del := func(s *Segment) *Segment {
		d := *s
		d.State = DeleteSegmentStarted
		return &d
	}
	t.Run("a longer one with an earlier start", func(t *testing.T) {
		v := finish(empty, fin(1, 10, 100), fin(2, 5, 150))
		has(t, v, nil, 2, 5, 50, 150)
		has(t, v, nil, 0, 4, 151)
		lists(t, v, "5-150 10-100")
		highest(t, v, 0, 150)
	})
	t.Run("a shorter one with an earlier start", func(t *testing.T) {
		// Kafka has 10..80 from the first; here the later FINISHED has all it covers.
		v := finish(empty, fin(1, 10, 100), fin(2, 5, 80))
		has(t, v, nil, 2, 5, 9, 10, 80)
		has(t, v, nil, 1, 81, 100)
		lists(t, v, "5-80 10-100")
		highest(t, v, 0, 100)
	})
	t.Run("the same range twice", func(t *testing.T) {
		v := finish(empty, fin(1, 0, 100), fin(2, 0, 100))
		has(t, v, nil, 2, 0, 50, 100)
		lists(t, v, "0-100 0-100")
		v = v.With(del(fin(1, 0, 100)))
		has(t, v, nil, 2, 0, 50, 100)
		v = v.With(seg(1, DeleteSegmentFinished, 0, 100))
		has(t, v, nil, 2, 0, 50, 100)
		lists(t, v, "0-100")
		highest(t, v, 0, 100)
	})
	t.Run("the same range twice and the later one deleted", func(t *testing.T) {
		v := finish(empty, fin(1, 0, 100), fin(2, 0, 100)).With(del(fin(2, 0, 100)))
		has(t, v, nil, 1, 0, 50, 100) // Kafka: none, the first was thrown out of its map
	})
	t.Run("a short one inside a long one", func(t *testing.T) {
		v := finish(empty, fin(1, 0, 200), fin(2, 50, 100))
		has(t, v, nil, 1, 25)
		has(t, v, nil, 2, 50, 100)
		has(t, v, nil, 1, 101, 150, 200) // Kafka: none
		lists(t, v, "0-200 50-100")
		highest(t, v, 0, 200)
	})
	t.Run("FINISHED again after it was superseded", func(t *testing.T) {
		v := finish(empty, fin(1, 10, 100), fin(2, 5, 150)).With(fin(1, 10, 100))
		has(t, v, nil, 2, 5, 50, 100, 101, 150) // Kafka: 50 and 100 from the first, none from 101 on
		lists(t, v, "5-150 10-100")
		highest(t, v, 0, 150)
	})
	t.Run("several, one of which is long", func(t *testing.T) {
		v := finish(empty, fin(1, 0, 49), fin(2, 50, 100), fin(3, 0, 200), fin(4, 101, 150))
		has(t, v, nil, 3, 25, 75)
		has(t, v, nil, 4, 125)
		has(t, v, nil, 3, 180) // Kafka: none until 151-260 arrives
		v = finish(v, fin(5, 151, 260))
		has(t, v, nil, 5, 180, 260)
		lists(t, v, "0-49 0-200 50-100 101-150 151-260")
		highest(t, v, 0, 260)
	})
	t.Run("one with the start of another", func(t *testing.T) {
		v := finish(empty, fin(1, 0, 100), fin(2, 101, 200), fin(3, 0, 150))
		has(t, v, nil, 3, 50, 101, 150) // Kafka: 101..150 from the second
		has(t, v, nil, 2, 151, 200)
		lists(t, v, "0-100 0-150 101-200") // KAFKA-20932: the first is missing by epoch
		highest(t, v, 0, 200)
	})
	t.Run("several, the last of which covers all", func(t *testing.T) {
		v := finish(empty, fin(1, 10, 100), fin(2, 5, 150), fin(3, 148, 155), fin(4, 4, 200))
		has(t, v, nil, 4, 4, 10, 100, 150, 155, 200)
		lists(t, v, "4-200 5-150 10-100 148-155") // the three that are superseded too
		highest(t, v, 0, 200)
	})
	t.Run("listed by start offset, whatever the state", func(t *testing.T) {
		v := empty.With(seg(1, CopySegmentStarted, 0, 20))
		v = finish(v, fin(2, 5, 10), fin(3, 11, 100), fin(4, 9, 150))
		lists(t, v, "0-20 5-10 9-150 11-100")
	})
	t.Run("a late FINISHED after DELETE_STARTED", func(t *testing.T) {
		v := finish(empty, fin(1, 0, 100)).With(del(fin(1, 0, 100)))
		if _, err := Step(del(fin(1, 0, 100)), event(fin(1, 0, 100), CopySegmentStarted)); err == nil {
			t.Error("Step takes it")
		}
		has(t, v, nil, 0, 0, 50, 100)
		lists(t, v, "0-100")
		highest(t, v, 0, 100)
	})
	t.Run("STARTED alone", func(t *testing.T) {
		v := empty.With(seg(1, CopySegmentStarted, 0, 100))
		has(t, v, nil, 0, 0, 50, 100)
		lists(t, v, "0-100")
		highest(t, v, 0, -1)
	})
	t.Run("STARTED and deleted", func(t *testing.T) {
		v := empty.With(seg(1, CopySegmentStarted, 0, 100)).With(seg(1, DeleteSegmentStarted, 0, 100))
		lists(t, v, "0-100")
		highest(t, v, 0, -1) // it never was in the tier: a copier must not go on behind it
	})
}

// TestRemoteLogSegmentLifecycle is Kafka's example with several epochs.
func TestRemoteLogSegmentLifecycle(t *testing.T) {
	s0 := fin(10, 0, 100, 0, 0, 1, 20, 2, 80)
	s1 := fin(11, 101, 200, 2, 101)
	s2 := fin(12, 201, 300, 2, 201, 3, 240)
	s3 := fin(13, 250, 400, 3, 250, 4, 370)
	v := finish(NewView(testPartition), s0, s1, s2, s3)
	in := func(epoch int64) segment.Lineage { return lineageOf(epoch, 0) }

	has(t, v, in(1), 10, 40)
	has(t, v, in(2), 11, 110)
	has(t, v, in(3), 12, 240)
	has(t, v, in(3), 13, 250)
	has(t, v, in(4), 13, 375)
	has(t, v, in(1), 0, 80, 110)
	has(t, v, in(4), 0, 401)
	has(t, v, in(5), 0, 301)
	for epoch, want := range []int64{19, 79, 239, 369, 400, -1} {
		highest(t, v, int32(epoch), want)
	}
	l := lineageOf(0, 0, 1, 20, 2, 80, 3, 240, 4, 370)
	has(t, v, l, 10, 0, 40, 100)
	has(t, v, l, 13, 250, 300, 400)
	if got := v.CopiedUpTo(l); got != 400 {
		t.Errorf("copied up to %d", got)
	}

	v = v.With(seg(10, DeleteSegmentStarted, 0, 100, 0, 0, 1, 20, 2, 80))
	has(t, v, in(1), 0, 40)
	v = v.With(seg(10, DeleteSegmentFinished, 0, 100, 0, 0, 1, 20, 2, 80))
	has(t, v, in(0), 0, 10)
	has(t, v, in(1), 0, 40)
	highest(t, v, 0, 19)
	highest(t, v, 1, 79)
	lists(t, v, "101-200 201-300 250-400")
	if s, ok := v.Get(testID(10)); !ok || s.State != DeleteSegmentFinished {
		t.Errorf("an id that has ended: %v", s)
	}
}

// TestFindHighestRemoteOffset is Kafka's table of where a leader goes on to copy.
func TestFindHighestRemoteOffset(t *testing.T) {
	v := finish(NewView(testPartition), fin(1, 0, 200))
	for _, test := range []struct {
		name string
		view *View
		l    segment.Lineage
		want int64
	}{
		{"OnEmptyRemoteStorage", NewView(testPartition), lineageOf(0, 0, 1, 500), -1},
		{"", v, lineageOf(0, 0, 1, 500), 200},
		{"WithUncleanLeaderElection", v, lineageOf(0, 0, 1, 150, 2, 300), 149},
	} {
		if got := test.view.CopiedUpTo(test.l); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

// TestUncleanElection: a segment copied by a leader whose last records were lost
// serves what is left of it (KAFKA-15241).
func TestUncleanElection(t *testing.T) {
	v := finish(NewView(testPartition), fin(1, 0, 200))
	l := lineageOf(0, 0, 1, 150, 2, 300)
	has(t, v, l, 1, 0, 149)
	has(t, v, l, 0, 150, 200)
	if got := v.CopiedUpTo(l); got != 149 {
		t.Errorf("copied up to %d, want 149: the rest must be copied again", got)
	}
	if s, ok := v.Next(l, 150); ok {
		t.Errorf("next is %d-%d", s.StartOffset, s.EndOffset)
	}
	v = finish(v, fin(2, 150, 350, 1, 150, 2, 300))
	has(t, v, l, 2, 150, 200, 350)
	has(t, v, nil, 2, 150, 200, 350)
	has(t, v, lineageOf(0, 0), 1, 150, 200) // a reader that still is in the old history
	if got := v.CopiedUpTo(l); got != 350 {
		t.Errorf("copied up to %d", got)
	}
}

// TestNext: over segment borders, gaps and other histories.
func TestNext(t *testing.T) {
	v := finish(NewView(testPartition),
		fin(1, 10, 19), fin(2, 20, 29), fin(3, 40, 49), fin(4, 45, 60, 7, 45), fin(5, 100, 109), fin(6, 30, 35, 9, 30))
	l := lineageOf(0, 0)
	next := func(offset int64, want int) {
		t.Helper()
		s, ok := v.Next(l, offset)
		if ok != (want != 0) || ok && s.ID != testID(want) {
			t.Errorf("next of %d: %v", offset, s)
		}
	}
	next(0, 1)
	next(19, 1)
	next(20, 2)
	next(30, 3) // over the gap, and over a segment of another history
	next(50, 5)
	next(109, 5)
	next(110, 0)
	if s, ok := v.Earliest(l); !ok || s.ID != testID(1) {
		t.Errorf("earliest: %v", s)
	}
	if s, ok := v.Latest(l); !ok || s.ID != testID(5) {
		t.Errorf("latest: %v", s)
	}
	if got := v.CopiedUpTo(l); got != 29 {
		t.Errorf("copied up to %d", got)
	}
	if s, ok := v.Latest(lineageOf(7, 0)); !ok || s.ID != testID(4) {
		t.Errorf("latest of epoch 7: %v", s)
	}
	if _, ok := v.Earliest(lineageOf(8, 0)); ok {
		t.Error("there is an earliest segment of an epoch that was never seen")
	}
	if got := v.CopiedUpTo(lineageOf(8, 0)); got != -1 {
		t.Errorf("copied up to %d in an epoch that was never seen", got)
	}
	if _, ok := v.Lookup(segment.Lineage{}, 10); ok {
		t.Error("an empty history, which is not nil, has offsets")
	}
}

// TestStarted finds what an earlier attempt of the same writer has announced.
func TestStarted(t *testing.T) {
	v := NewView(testPartition)
	add := func(id int, state State, start, end int64, broker, epoch int32) {
		s := seg(id, state, start, end)
		s.BrokerID, s.LeaderEpoch = broker, epoch
		v = v.With(s)
	}
	add(1, CopySegmentStarted, 10, 19, 1, 5)
	add(2, CopySegmentStarted, 10, 19, 1, 5) // of a crash between two attempts
	add(3, CopySegmentStarted, 10, 19, 2, 5) // another broker
	add(4, CopySegmentStarted, 10, 19, 1, 6) // another leadership
	add(5, CopySegmentStarted, 10, 20, 1, 5) // another range
	add(6, CopySegmentStarted, 9, 19, 1, 5)
	add(7, DeleteSegmentStarted, 10, 19, 1, 5)
	add(8, CopySegmentFinished, 10, 19, 1, 5)
	add(9, CopySegmentStarted, 10, 19, 1, -1) // of a store that does not keep epochs
	var got []int
	for _, s := range v.Started(Writer{BrokerID: 1, LeaderEpoch: 5}, 10, 19) {
		got = append(got, int(s.ID[15]))
	}
	slices.Sort(got)
	if !slices.Equal(got, []int{1, 2, 9}) {
		t.Errorf("got %v", got)
	}
}

// TestLookupsDoNotAllocate is the figure that is asked of every read.
func TestLookupsDoNotAllocate(t *testing.T) {
	v := NewView(testPartition)
	for i := range 1000 {
		v = finish(v, fin(i+1, int64(10*i), int64(10*i+9), 0, int64(10*i), 3, int64(10*i+5)))
	}
	l := lineageOf(0, 0, 3, 5005)
	for name, f := range map[string]func(){
		"Lookup":        func() { v.Lookup(l, 5555) },
		"Lookup of nil": func() { v.Lookup(nil, 5555) },
		"Reach":         func() { v.Reach(l, 5555) },
		"Next":          func() { v.Next(l, 5555) },
		"Latest offset": func() { v.LatestOffset(nil) },
		"Earliest":      func() { v.EarliestOffset(l) },
		"Deleting":      func() { v.Deleting(l, 5555, nil) },
		"Greatest":      func() { v.Greatest(l) },
		"Size":          func() { v.Size() },
		"Txn index":     func() { v.NextWithTxnIndex(l, 5000) },
		"HighestOffset": func() { v.HighestOffset(3) },
		"Latest":        func() { v.Latest(l) },
		"CopiedUpTo":    func() { v.CopiedUpTo(l) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestForeignPartition: a View never mixes partitions.
func TestForeignPartition(t *testing.T) {
	s := fin(1, 0, 9)
	s.Partition.Number++
	defer func() {
		if recover() == nil {
			t.Error("a segment of another partition was taken")
		}
	}()
	NewView(testPartition).With(s)
}
