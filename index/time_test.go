package index_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// Made by Kafka's own classes, with base offset 100.
func TestTimeGolden(t *testing.T) {
	x, err := index.ParseTime(unhex(t, "0000018bcfe568000000000a0000018bcfe569f40000003c"), 100)
	if err != nil {
		t.Fatal(err)
	}
	const t0 = 1_700_000_000_000
	if got, want := timeEntries(x), []pair{{t0, 110}, {t0 + 500, 160}}; !slices.Equal(got, want) {
		t.Errorf("entries %v, want %v", got, want)
	}
	for _, c := range []struct{ ts, found, offset int64 }{
		{t0 - 1, -1, 100},
		{-1, -1, 100},
		{t0, t0, 110},
		{t0 + 499, t0, 110},
		{t0 + 500, t0 + 500, 160},
		{math.MaxInt64, t0 + 500, 160},
	} {
		if ts, o := x.Lookup(c.ts); ts != c.found || o != c.offset {
			t.Errorf("Lookup(%d) = %d, %d, want %d, %d", c.ts, ts, o, c.found, c.offset)
		}
	}
}

// Kafka's TimeIndexTest: entries up to timestamp 90 in steps of 10, with offsets
// in steps of 10.
func TestTimeLookupIsKafkas(t *testing.T) {
	const base = 45
	empty, err := index.ParseTime(nil, base)
	if err != nil {
		t.Fatal(err)
	}
	if ts, o := empty.Lookup(100); ts != -1 || o != base {
		t.Errorf("an empty index: %d, %d", ts, o)
	}
	var entries []pair
	for i := int64(1); i < 10; i++ {
		entries = append(entries, pair{i * 10, i*10 + base})
	}
	x, err := index.ParseTime(timeFile(base, entries...), base)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ts, found, offset int64 }{
		{9, -1, base}, {10, 10, 10 + base}, {25, 20, 20 + base}, {30, 30, 30 + base}, {90, 90, 90 + base}, {1000, 90, 90 + base},
	} {
		if ts, o := x.Lookup(c.ts); ts != c.found || o != c.offset {
			t.Errorf("Lookup(%d) = %d, %d, want %d, %d", c.ts, ts, o, c.found, c.offset)
		}
	}
}

func TestParseTime(t *testing.T) {
	zeros := func(n int) []byte { return make([]byte, n) }
	some := timeFile(0, pair{5, 10}, pair{9, 70})
	for _, c := range []struct {
		name  string
		base  int64
		b     []byte
		n     int
		entry int64
		want  string
	}{
		{"empty", 0, nil, 0, 0, ""},
		{"time 0 at relative offset 0", 7, zeros(12), 1, 0, ""},
		{"nothing but a tail", 7, zeros(12 * 100), 0, 0, ""},
		{"two and a tail", 0, append(slices.Clone(some), zeros(12*1000)...), 2, 0, ""},
		{"offset repeated", 0, timeFile(0, pair{5, 10}, pair{6, 10}), 2, 0, ""},
		{"greatest", 0, timeFile(0, pair{math.MaxInt64, math.MaxInt32}), 1, 0, ""},
		{"odd length", 0, some[:13], 0, -1, "13 bytes are not a multiple of 12"},
		{"time repeated", 0, timeFile(0, pair{5, 10}, pair{5, 11}), 0, 1, "timestamp does not follow"},
		{"time descends", 0, timeFile(0, pair{5, 10}, pair{4, 11}), 0, 1, "timestamp does not follow"},
		{"offset descends", 0, timeFile(0, pair{5, 10}, pair{6, 9}), 0, 1, "offset is lower"},
		{"negative time", 0, timeFile(0, pair{-1, 10}), 0, 0, "timestamp is negative"},
		{"negative offset", 0, timeFile(0, pair{5, -1}), 0, 0, "out of range"},
		{"offset overflows", math.MaxInt64, timeFile(0, pair{5, 1}), 0, 0, "out of range"},
		{"entry behind the tail", 0, slices.Concat(some, zeros(24), some), 0, 2, "does not follow"},
	} {
		x, err := index.ParseTime(c.b, c.base)
		if c.want != "" {
			refused(t, c.name, err, segment.TimeIndex, c.entry, c.want)
			continue
		}
		if err != nil || x.Len() != c.n {
			t.Errorf("%s: %d entries, %v, want %d", c.name, x.Len(), err, c.n)
		}
	}
}

func TestTimeLookupEqualsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		var entries []pair
		ts, offset := int64(0), base
		for range rapid.IntRange(0, 40).Draw(t, "entries") {
			ts += rapid.Int64Range(1, 30).Draw(t, "time")
			offset += rapid.Int64Range(0, 30).Draw(t, "offset")
			entries = append(entries, pair{ts, offset})
		}
		x, err := index.ParseTime(timeFile(base, entries...), base)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(timeEntries(x), entries) {
			t.Fatalf("entries %v, want %v", timeEntries(x), entries)
		}
		for target := int64(-1); target < 1300; target++ {
			want := pair{-1, base}
			for _, e := range entries {
				if e[0] <= target {
					want = e
				}
			}
			if ts, o := x.Lookup(target); (pair{ts, o}) != want {
				t.Fatalf("Lookup(%d) = %d, %d, want %v", target, ts, o, want)
			}
		}
	})
}
