package metadata

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// Scenarios of Kafka's own unit tests, under their names. Where Kafka keeps a
// cache, here is a View.

// divided is what Referenced says: "start-end" each, in order.
func divided(v *View, epoch int32) (referenced, unreferenced []string) {
	name := func(segs []*Segment) (names []string) {
		for _, s := range segs {
			names = append(names, fmt.Sprintf("%d-%d", s.StartOffset, s.EndOffset))
		}
		return names
	}
	r, u := v.Referenced(epoch)
	return name(r), name(u)
}

func TestRemoteLogLeaderEpochState(t *testing.T) {
	empty := NewView(testPartition)
	list := func(v *View) (ids []int) {
		for _, s := range v.ByEpoch(0) {
			ids = append(ids, int(s.ID[15]))
		}
		return ids
	}
	del := func(s *Segment, to State) *Segment {
		d := s.Clone()
		d.State = to
		return d
	}
	t.Run("list on empty", func(t *testing.T) {
		if got := list(empty); got != nil {
			t.Errorf("got %v", got)
		}
		if r, u := empty.Referenced(3); len(r)+len(u) != 0 || empty.EpochSize(3) != 0 {
			t.Errorf("got %v, %v", r, u)
		}
	})
	t.Run("unknown id", func(t *testing.T) {
		if s, ok := empty.Get(testID(1)); ok || s != nil {
			t.Errorf("got %v", s)
		}
	})
	t.Run("sorted list", func(t *testing.T) {
		v := empty.With(seg(1, CopySegmentStarted, 0, 4))
		v = finish(v, fin(2, 5, 10), fin(3, 11, 100), fin(4, 9, 150))
		if got := list(v); !slices.Equal(got, []int{1, 2, 4, 3}) {
			t.Errorf("got %v", got)
		}
	})
	for _, test := range []struct {
		name                     string
		view                     *View
		referenced, unreferenced []string
		highest                  int64
	}{
		{"STARTED is unreferenced", empty.With(seg(1, CopySegmentStarted, 0, 9)), nil, []string{"0-9"}, -1},
		{"FINISHED is referenced", finish(empty, fin(1, 0, 9)), []string{"0-9"}, nil, 9},
		{"overlapping", finish(empty, fin(1, 10, 100), fin(2, 5, 150)), []string{"5-150"}, []string{"10-100"}, 150},
		{
			"multiple overlapping", finish(empty, fin(1, 10, 100), fin(2, 5, 150), fin(3, 148, 155), fin(4, 4, 200)),
			[]string{"4-200"},
			[]string{"5-150", "10-100", "148-155"},
			200,
		},
		{"duplicates", finish(empty, fin(1, 0, 100), fin(2, 0, 100)), []string{"0-100"}, []string{"0-100"}, 100},
		// KAFKA-20932: Kafka forgets the first one.
		{"same start", finish(empty, fin(1, 0, 100), fin(2, 101, 200), fin(3, 0, 150)), []string{"0-150", "101-200"}, []string{"0-100"}, 200},
		{"one behind the other", finish(empty, fin(1, 0, 200), fin(2, 50, 100)), []string{"0-200", "50-100"}, nil, 200},
		{"two together", finish(empty, fin(1, 5, 14), fin(2, 0, 9), fin(3, 10, 20)), []string{"0-9", "10-20"}, []string{"5-14"}, 20},
		{"DELETE_STARTED is unreferenced", finish(empty, fin(1, 0, 9)).With(del(fin(1, 0, 9), DeleteSegmentStarted)), nil, []string{"0-9"}, 9},
		{"DELETE_FINISHED is gone", finish(empty, fin(1, 0, 9)).With(del(fin(1, 0, 9), DeleteSegmentFinished)), nil, nil, 9},
		{
			"the last one deleted brings the one before back",
			finish(empty, fin(1, 0, 100), fin(2, 0, 100)).With(del(fin(2, 0, 100), DeleteSegmentStarted)),
			[]string{"0-100"},
			[]string{"0-100"},
			100,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, u := divided(test.view, 0)
			if !slices.Equal(r, test.referenced) || !slices.Equal(u, test.unreferenced) {
				t.Errorf("referenced %v, unreferenced %v", r, u)
			}
			highest(t, test.view, 0, test.highest)
		})
	}
}

func TestRemoteLogMetadataCache(t *testing.T) {
	t.Run("add with another state", func(t *testing.T) {
		for _, to := range []State{CopySegmentFinished, DeleteSegmentStarted, DeleteSegmentFinished} {
			v := NewView(testPartition)
			if n, err := v.Apply(event(seg(1, to, 0, 9), None)); !errors.Is(err, ErrTransition) {
				t.Errorf("%s: %v, %v", to, n, err)
			}
		}
	})
	t.Run("update to STARTED", func(t *testing.T) {
		v := finish(NewView(testPartition), fin(1, 0, 9))
		if _, err := v.Apply(event(seg(1, CopySegmentStarted, 0, 9), CopySegmentFinished)); !errors.Is(err, ErrTransition) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("update of an unknown id", func(t *testing.T) {
		v := finish(NewView(testPartition), fin(1, 0, 9))
		if _, err := v.Apply(event(seg(2, DeleteSegmentStarted, 0, 9), CopySegmentFinished)); !errors.Is(err, ErrTransition) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("invalid transitions are dropped and nothing changes", func(t *testing.T) {
		in := map[State]*View{None: NewView(testPartition)}
		in[CopySegmentStarted] = in[None].With(seg(1, CopySegmentStarted, 0, 9))
		in[CopySegmentFinished] = in[CopySegmentStarted].With(fin(1, 0, 9))
		in[DeleteSegmentStarted] = in[CopySegmentFinished].With(seg(1, DeleteSegmentStarted, 0, 9))
		in[DeleteSegmentFinished] = in[DeleteSegmentStarted].With(seg(1, DeleteSegmentFinished, 0, 9))
		n := 0
		for have, v := range in {
			before, known := v.Get(testID(1))
			for to := CopySegmentStarted; to <= DeleteSegmentFinished; to++ {
				if have.CanBecome(to) {
					continue
				}
				ev, err := Recorded(seg(1, to, 0, 9)) // as Kafka replays them
				if err != nil {
					t.Fatal(err)
				}
				if _, err := v.Apply(ev); !errors.Is(err, ErrTransition) {
					t.Errorf("%s to %s: %v", have, to, err)
				}
				n++
			}
			if after, still := v.Get(testID(1)); still != known || !reflect.DeepEqual(before, after) {
				t.Errorf("%s: was %v, is %v", have, before, after)
			}
		}
		if n != 11 { // Kafka's test has eight of them
			t.Errorf("%d transitions", n)
		}
	})
}

// TestRemoteLogSegmentInEachState: what finds a segment in which state.
func TestRemoteLogSegmentInEachState(t *testing.T) {
	v := NewView(testPartition)
	for _, test := range []struct {
		to                                      State
		lookup, list, byEpoch, highest, deleted bool
	}{
		{CopySegmentStarted, false, true, true, false, false},
		{CopySegmentFinished, true, true, true, true, false},
		{DeleteSegmentStarted, false, true, true, true, true},
		{DeleteSegmentFinished, false, false, false, true, false},
	} {
		v = v.With(seg(1, test.to, 0, 9))
		_, lookup := v.Lookup(nil, 5)
		_, highest := v.HighestOffset(0)
		_, deleted := v.Deleting(nil, 5, nil)
		list := len(slices.Collect(v.All())) == 1
		byEpoch := len(v.ByEpoch(0)) == 1
		if lookup != test.lookup || list != test.list || byEpoch != test.byEpoch || highest != test.highest || deleted != test.deleted {
			t.Errorf("%s: lookup %v, list %v, by epoch %v, highest %v, being deleted %v", test.to, lookup, list, byEpoch, highest, deleted)
		}
	}
}

// TestRemoteLogSize is Kafka's accounting, which counts a segment in each of its
// epochs and in every state (KAFKA-15479, KAFKA-17062), beside ours.
func TestRemoteLogSize(t *testing.T) {
	sized := func(s *Segment, bytes int64) *Segment { s.SizeBytes = bytes; return s }
	v := finish(NewView(testPartition),
		sized(fin(1, 0, 99), 1), sized(fin(2, 100, 199), 10), sized(fin(3, 200, 299, 0, 200, 1, 250), 100))
	for epoch, want := range []int64{111, 100, 0} {
		if got := v.EpochSize(int32(epoch)); got != want {
			t.Errorf("epoch %d: %d bytes, want %d", epoch, got, want)
		}
	}
	if got, n := v.Size(); got != 111 || n != 3 {
		t.Errorf("%d bytes in %d segments", got, n)
	}
}

func TestSizeRetentionShouldFilterOutCopySegmentStartState(t *testing.T) {
	v := finish(NewView(testPartition), fin(1, 0, 99)).With(seg(2, CopySegmentStarted, 100, 199)).With(seg(3, CopySegmentStarted, 100, 199))
	v = v.With(seg(4, CopySegmentStarted, 200, 299)).With(seg(4, DeleteSegmentStarted, 200, 299))
	if got := v.EpochSize(0); got != 400 {
		t.Errorf("Kafka's size is %d", got)
	}
	for _, size := range []func() (int64, int){v.Size, func() (int64, int) { return v.SizeWithin(nil) }} {
		if got, n := size(); got != 100 || n != 1 {
			t.Errorf("%d bytes in %d segments", got, n)
		}
	}
	// Beginning the same deletion twice subtracts once.
	gone := seg(1, DeleteSegmentStarted, 0, 99)
	if got, n := v.With(gone).With(gone).Size(); got != 0 || n != 0 {
		t.Errorf("%d bytes in %d segments after the deletion", got, n)
	}
}

func TestFindNextSegmentWithTxnIndex(t *testing.T) {
	without := func(s *Segment) *Segment { s.TxnIndexEmpty = true; return s }
	l := lineageOf(0, 0, 1, 25)
	v := finish(NewView(testPartition),
		without(fin(1, 0, 9)), without(fin(2, 10, 19)), fin(3, 20, 29, 0, 20, 1, 25), without(fin(4, 30, 39, 1, 30)), fin(5, 50, 59, 1, 50))
	check := func(name string, offset int64, id int, upTo int64) {
		t.Helper()
		s, at, ok := v.NextWithTxnIndex(l, offset)
		if ok != (id != 0) || at != upTo || ok && s.ID != testID(id) {
			t.Errorf("%s: from %d: %s at %d, %v", name, offset, brief(&s), at, ok)
		}
	}
	check("FindNextSegmentWithTxnIndex", 0, 3, 20)
	check("", 15, 3, 20)
	check("TraversesNextEpoch", 26, 3, 26)
	check("a gap ends it", 30, 0, 40)
	check("behind the gap", 50, 5, 50)
	check("behind all", 60, 0, 60)
}

func TestFindLogStartOffset(t *testing.T) {
	v := finish(NewView(testPartition), fin(1, 500, 539, 0, 500), fin(2, 540, 599, 0, 540))
	if got, epoch, ok := v.EarliestOffset(lineageOf(0, 0, 1, 1000)); !ok || got != 500 || epoch != 0 {
		t.Errorf("got %d in epoch %d, %v", got, epoch, ok)
	}
	// FallbackToLocal: the host's own log start counts.
	if _, _, ok := NewView(testPartition).EarliestOffset(lineageOf(0, 0)); ok {
		t.Error("an empty tier has an earliest offset")
	}
	if _, _, ok := v.EarliestOffset(lineageOf(7, 0)); ok {
		t.Error("another history has an earliest offset")
	}
}

func TestLogStartOffsetUpdatedOnStartup(t *testing.T) {
	v := finish(NewView(testPartition), fin(1, 500, 539, 0, 500), fin(2, 540, 599, 0, 540)).WithInfo(PartitionInfo{LogStart: 550})
	if got, _, ok := v.EarliestOffset(nil); !ok || got != 550 {
		t.Errorf("got %d, %v", got, ok)
	}
	if got := v.WithInfo(PartitionInfo{LogStart: 520}).LogStart(); got != 550 {
		t.Errorf("the log start went back to %d", got) // KAFKA-16890
	}
	if _, _, ok := v.WithInfo(PartitionInfo{LogStart: 600}).EarliestOffset(nil); ok {
		t.Error("there is an earliest offset below the log start")
	}
}

// TestListOffsets is Kafka's scenario for its special timestamps, as far as the
// tier answers them: segments of epoch 0 and 1, the last record is local.
func TestListOffsets(t *testing.T) {
	at := func(s *Segment, ts int64) *Segment { s.MaxTimestamp = ts; return s }
	v := finish(NewView(testPartition), at(fin(1, 0, 1), 1), at(fin(2, 2, 3, 0, 2, 1, 3), 3))
	l := lineageOf(0, 0, 1, 3)
	check := func(v *View, earliest, earliestEpoch, latest, latestEpoch int64) {
		t.Helper()
		o, e, _ := v.EarliestOffset(l)
		if o != earliest || int64(e) != earliestEpoch {
			t.Errorf("earliest %d in epoch %d", o, e)
		}
		o, e, _ = v.LatestOffset(l)
		if o != latest || int64(e) != latestEpoch {
			t.Errorf("latest tiered %d in epoch %d", o, e)
		}
	}
	check(v, 0, 0, 3, 1)
	check(v.WithInfo(PartitionInfo{LogStart: 3}), 3, 1, 3, 1) // after deleteRecords(3)
	if s, ok := v.Greatest(l); !ok || s.MaxTimestamp != 3 {   // KAFKA-17552
		t.Errorf("greatest timestamp: %s", brief(&s))
	}
	if _, ok := NewView(testPartition).Greatest(l); ok {
		t.Error("an empty tier has a greatest timestamp")
	}
	for epoch, want := range []int64{3, 4, -1} {
		if got, ok := v.EpochEnd(int32(epoch)); ok != (want >= 0) || ok && got != want {
			t.Errorf("epoch %d ends at %d, %v", epoch, got, ok)
		}
	}
	if end, ok := NewView(testPartition, seg(1, CopySegmentStarted, 0, 9)).EpochEnd(0); ok {
		t.Errorf("an epoch of which nothing is in the tier ends at %d", end)
	}
}

// TestForget: only what has ended is forgotten, and what it leaves stays.
func TestForget(t *testing.T) {
	v := finish(NewView(testPartition), fin(1, 0, 9), fin(2, 10, 19)).With(seg(3, CopySegmentStarted, 20, 29))
	v = v.With(seg(2, DeleteSegmentStarted, 10, 19)).With(seg(2, DeleteSegmentFinished, 10, 19)).With(seg(4, CopySegmentStarted, 30, 39)).With(seg(4, DeleteSegmentStarted, 30, 39))
	for id := range 6 {
		n := v.Forget(testID(id))
		_, known := v.Get(testID(id))
		if _, still := n.Get(testID(id)); still != (known && id != 2) {
			t.Errorf("segment %d is known: %v, before: %v", id, still, known)
		}
		highest(t, n, 0, 19)
	}
}
