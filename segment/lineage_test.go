package segment_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/segment"
)

// lineage makes a Lineage of epoch, start, epoch, start...
func lineage(v ...int64) segment.Lineage {
	var l segment.Lineage
	for i := 0; i < len(v); i += 2 {
		l = append(l, segment.EpochStart{Epoch: int32(v[i]), Start: v[i+1]})
	}
	return l
}

func TestLineageValidate(t *testing.T) {
	for _, c := range []struct {
		l    segment.Lineage
		want string
	}{
		{nil, ""},
		{lineage(0, 0), ""},
		{lineage(0, 0, 2, 100, 5, 180), ""},
		{lineage(0, 0, 1, 0), ""}, // nothing was written in epoch 0
		{lineage(-1, 0), "entry 0 (epoch -1 from offset 0) is negative"},
		{lineage(0, -1), "entry 0 (epoch 0 from offset -1) is negative"},
		{lineage(0, 0, 0, 5), "entry 1 (epoch 0 from offset 5) does not follow epoch 0"},
		{lineage(3, 0, 2, 5), "does not follow epoch 3"},
		{lineage(0, 5, 1, 4), "begins before offset 5, where epoch 0 began"},
	} {
		err := c.l.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.l, err, c.want)
		}
	}
}

func TestLineageQueries(t *testing.T) {
	l := lineage(0, 10, 2, 100, 5, 180)
	for _, c := range []struct {
		offset int64
		epoch  int32
		ok     bool
	}{{0, 0, false}, {9, 0, false}, {10, 0, true}, {99, 0, true}, {100, 2, true}, {179, 2, true}, {180, 5, true}, {math.MaxInt64, 5, true}} {
		if e, ok := l.EpochFor(c.offset); e != c.epoch || ok != c.ok {
			t.Errorf("EpochFor(%d) = %d, %v", c.offset, e, ok)
		}
	}
	for _, c := range []struct {
		epoch int32
		end   int64
		ok    bool
	}{{-1, 0, false}, {0, 100, true}, {1, 0, false}, {2, 180, true}, {3, 0, false}, {5, math.MaxInt64, true}, {6, 0, false}} {
		if end, ok := l.EndOf(c.epoch); end != c.end || ok != c.ok {
			t.Errorf("EndOf(%d) = %d, %v", c.epoch, end, ok)
		}
	}
	if _, ok := segment.Lineage(nil).EpochFor(0); ok {
		t.Error("an epoch of no history")
	}
	if _, ok := segment.Lineage(nil).EndOf(0); ok {
		t.Error("an end of no history")
	}
	if _, ok := lineage(math.MinInt32+1, 0, math.MaxInt32, 5).EndOf(math.MaxInt32); !ok {
		t.Error("epochs far apart")
	}
}

func TestLineageRange(t *testing.T) {
	// Kafka's own example: what is recorded of segment [50, 100], and what is its
	// LEADER_EPOCH index.
	history := lineage(0, 0, 1, 20, 2, 80)
	if got, want := history.Range(50, 100), lineage(1, 50, 2, 80); !slices.Equal(got, want) {
		t.Errorf("Range(50, 100) = %v, want %v", got, want)
	}
	if got := history.UpTo(100); !slices.Equal(got, history) {
		t.Errorf("UpTo(100) = %v, want all", got)
	}
	for _, c := range []struct {
		start, end int64
		want       segment.Lineage
	}{
		{0, 19, lineage(0, 0)},
		{0, 20, lineage(0, 0, 1, 20)},
		{20, 79, lineage(1, 20)},
		{20, 80, lineage(1, 20, 2, 80)},
		{19, 19, lineage(0, 19)},
		{500, 600, lineage(2, 500)},
		{50, 49, nil},
	} {
		if got := history.Range(c.start, c.end); !slices.Equal(got, c.want) {
			t.Errorf("Range(%d, %d) = %v, want %v", c.start, c.end, got, c.want)
		}
	}
	late := lineage(3, 10, 4, 30)
	if got, want := late.Range(0, 20), lineage(3, 10); !slices.Equal(got, want) {
		t.Errorf("Range from before the history = %v, want %v", got, want)
	}
	if got := late.Range(0, 9); got != nil {
		t.Errorf("Range before the history = %v", got)
	}
	same := lineage(0, 0, 1, 50, 2, 50)
	if got, want := same.Range(50, 60), lineage(2, 50); !slices.Equal(got, want) {
		t.Errorf("Range at two epochs = %v, want %v", got, want)
	}
	if got, want := same.Range(40, 60), lineage(0, 40, 1, 50, 2, 50); !slices.Equal(got, want) {
		t.Errorf("Range across two epochs = %v, want %v", got, want)
	}
	if !slices.Equal(history, lineage(0, 0, 1, 20, 2, 80)) {
		t.Errorf("Range changed the history: %v", history)
	}
	if prefix := history.UpTo(20); cap(prefix) != 2 {
		t.Errorf("appending to UpTo(20) = %v would change the history", prefix)
	}
}

func drawLineage(t *rapid.T) segment.Lineage {
	var l segment.Lineage
	epoch, start := int32(0), int64(0)
	for range rapid.IntRange(0, 8).Draw(t, "epochs") {
		epoch += int32(rapid.IntRange(1, 3).Draw(t, "epoch"))
		start += rapid.Int64Range(0, 10).Draw(t, "start")
		l = append(l, segment.EpochStart{Epoch: epoch, Start: start})
	}
	return l
}

// Kafka truncates a copy of the history from its start and from its end.
func TestLineageRangeIsKafkas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLineage(t)
		start := rapid.Int64Range(0, 80).Draw(t, "start")
		end := start + rapid.Int64Range(0, 80).Draw(t, "length")
		var want segment.Lineage
		removed := segment.EpochStart{Start: -1}
		for _, e := range l {
			if e.Start <= start {
				removed = e
				continue
			}
			if e.Start <= end {
				want = append(want, e)
			}
		}
		if removed.Start >= 0 {
			want = append(segment.Lineage{{Epoch: removed.Epoch, Start: start}}, want...)
		}
		got := l.Range(start, end)
		if !slices.Equal(got, want) {
			t.Fatalf("Range(%d, %d) of %v = %v, want %v", start, end, l, got, want)
		}
		// The epoch of any offset in it is the history's.
		for o := start; o <= end; o++ {
			e1, ok1 := l.EpochFor(o)
			e2, ok2 := got.EpochFor(o)
			if e1 != e2 || ok1 != ok2 {
				t.Fatalf("offset %d: epoch %d, %v in the history, %d, %v in the range", o, e1, ok1, e2, ok2)
			}
		}
	})
}

func TestLineageText(t *testing.T) {
	for text, l := range map[string]segment.Lineage{
		"0\n3\n0 0\n2 100\n5 180\n": lineage(0, 0, 2, 100, 5, 180),
		"0\n0\n":                    nil,
	} {
		b, err := l.AppendText([]byte("x"))
		if err != nil || string(b) != "x"+text {
			t.Errorf("AppendText(%v) = %q, %v", l, b, err)
		}
		got, err := segment.ParseLineage([]byte(text))
		if err != nil || !slices.Equal(got, l) {
			t.Errorf("ParseLineage(%q) = %v, %v", text, got, err)
		}
	}
}

func TestParseLineage(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // in the error; empty: accepted
	}{
		{"", ""},
		{"0", ""},
		{"0\n", ""},
		{"0\n1\n7 9", ""},           // the last line without an end
		{"0\r\n1\r\n7 9\r\n", ""},   // edited elsewhere
		{"0\n1\n 7\t9 \n", ""},      // any white space
		{"1\n0\n", "the version 0"}, // another version
		{"\n", "the version 0"},     //
		{"x\n0\n", "the version 0"}, //
		{"0\nx\n", "is no count"},   //
		{"0\n-1\n", "is no count"},  //
		{"0\n1\n", "says 1 entries, 0 are there"},
		{"0\n1\n0 0\n1 5\n", "says 1 entries, 2 are there"},
		{"0\n2000000000\n0 0\n", "says 2000000000 entries, 1 are there"},
		{"0\n1\n0\n", "line 3"},
		{"0\n1\n0 0 0\n", "line 3"},
		{"0\n2\n0 0\n\n", "line 4"},
		{"0\n1\nx 0\n", "line 3"},
		{"0\n1\n0 x\n", "line 3"},
		{"0\n1\n2147483648 0\n", "line 3"},
		{"0\n1\n-1 0\n", "is negative"},
		{"0\n2\n1 0\n1 5\n", "does not follow epoch 1"},
		{"0\n2\n0 5\n1 4\n", "begins before offset 5"},
	} {
		_, err := segment.ParseLineage([]byte(c.text))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("ParseLineage(%q): %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := segment.ParseLineage(make([]byte, 64<<20+1)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("64 MiB and a byte: %v", err)
	}
}

func TestParseLineageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLineage(t)
		b, err := l.AppendText(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := segment.ParseLineage(b)
		if err != nil || !slices.Equal(got, l) {
			t.Fatalf("%v became %v, %v", l, got, err)
		}
	})
}
