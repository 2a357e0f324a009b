package index_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// pair is an entry of an offset index (offset, position) or of a time index
// (timestamp, offset).
type pair [2]int64

// offsetFile writes an offset index.
func offsetFile(base int64, entries ...pair) (b []byte) {
	for _, e := range entries {
		b = binary.BigEndian.AppendUint32(b, uint32(e[0]-base))
		b = binary.BigEndian.AppendUint32(b, uint32(e[1]))
	}
	return b
}

// timeFile writes a time index.
func timeFile(base int64, entries ...pair) (b []byte) {
	for _, e := range entries {
		b = binary.BigEndian.AppendUint64(b, uint64(e[0]))
		b = binary.BigEndian.AppendUint32(b, uint32(e[1]-base))
	}
	return b
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func offsetEntries(x index.Offset) (out []pair) {
	for i := range x.Len() {
		o, p := x.Entry(i)
		out = append(out, pair{o, p})
	}
	return out
}

func timeEntries(x index.Time) (out []pair) {
	for i := range x.Len() {
		ts, o := x.Entry(i)
		out = append(out, pair{ts, o})
	}
	return out
}

// Made by Kafka's own classes, with base offset 100.
func TestOffsetGolden(t *testing.T) {
	x, err := index.ParseOffset(unhex(t, "0000000a0000000000000032000010000000006300002328"), 100)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := offsetEntries(x), []pair{{110, 0}, {150, 4096}, {199, 9000}}; !slices.Equal(got, want) {
		t.Errorf("entries %v, want %v", got, want)
	}
	for _, c := range []struct{ target, offset, pos int64 }{
		{105, 100, 0},
		{150, 150, 4096},
		{198, 150, 4096},
		{0, 100, 0},
		{109, 100, 0},
		{110, 110, 0},
		{199, 199, 9000},
		{math.MaxInt64, 199, 9000},
	} {
		if o, p := x.Lookup(c.target); o != c.offset || p != c.pos {
			t.Errorf("Lookup(%d) = %d, %d, want %d, %d", c.target, o, p, c.offset, c.pos)
		}
	}
}

// Kafka's OffsetIndexTest.fetchUpperBoundOffset.
func TestOffsetUpperBoundIsKafkas(t *testing.T) {
	const b = 1000
	x, err := index.ParseOffset(offsetFile(b, pair{b, 0}, pair{b + 1, 10}, pair{b + 2, 23}, pair{b + 3, 37}), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, size, want int64 }{ // want -1: none
		{0, 5, b + 1},
		{0, 10, b + 1},
		{0, 22, b + 2},
		{0, 23, b + 2},
		{10, 24, b + 3},
		{37, 1, -1},
		{0, 200, -1},
		{10, 200, -1},
		{0, 0, b},
		{37, 0, b + 3},
		{1, math.MaxInt64, -1},
		{37, math.MaxInt64, -1},
	} {
		got, ok := x.UpperBound(c.from, c.size)
		if ok != (c.want >= 0) || ok && got != c.want {
			t.Errorf("UpperBound(%d, %d) = %d, %v, want %d", c.from, c.size, got, ok, c.want)
		}
	}
	var empty index.Offset
	if _, ok := empty.UpperBound(0, 0); ok {
		t.Error("an empty index has a bound")
	}
}

// refused checks that err is an *Error of the given kind and entry.
func refused(t *testing.T, name string, err error, kind segment.FileKind, entry int64, want string) {
	t.Helper()
	e, ok := errors.AsType[*index.Error](err)
	if !ok || !errors.Is(err, index.ErrCorrupt) || e.Kind != kind || e.Entry != entry || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: err = %v, want an *Error of %v at entry %d with %q", name, err, kind, entry, want)
	}
}

func TestParseOffset(t *testing.T) {
	zeros := func(n int) []byte { return make([]byte, n) }
	some := offsetFile(0, pair{5, 0}, pair{9, 70})
	for _, c := range []struct {
		name  string
		base  int64
		b     []byte
		n     int   // entries
		entry int64 // of the error
		want  string
	}{
		{"empty", 0, nil, 0, 0, ""},
		{"one at relative offset 0", 7, zeros(8), 1, 0, ""}, // Kafka has a test for it
		{"nothing but a tail", 7, zeros(8 * 100), 0, 0, ""},
		{"two", 0, some, 2, 0, ""},
		{"two and a tail", 0, append(slices.Clone(some), zeros(8*1000)...), 2, 0, ""},
		{"relative offset 0 and another", 3, offsetFile(3, pair{3, 0}, pair{4, 70}), 2, 0, ""},
		{"greatest", 0, offsetFile(0, pair{math.MaxInt32, math.MaxInt32}), 1, 0, ""},
		{"odd length", 0, some[:13], 0, -1, "13 bytes are not a multiple of 8"},
		{"odd tail", 0, append(slices.Clone(some), zeros(9)...), 0, -1, "multiple of 8"},
		{"offset repeated", 0, offsetFile(0, pair{5, 0}, pair{5, 70}), 0, 1, "offset does not follow"},
		{"offset descends", 0, offsetFile(0, pair{5, 0}, pair{4, 70}), 0, 1, "offset does not follow"},
		{"position repeated", 0, offsetFile(0, pair{5, 70}, pair{6, 70}), 0, 1, "position does not follow"},
		{"position descends", 0, offsetFile(0, pair{5, 70}, pair{6, 69}), 0, 1, "position does not follow"},
		{"negative offset", 0, offsetFile(0, pair{-1, 0}), 0, 0, "offset is out of range"},
		{"negative position", 0, offsetFile(0, pair{5, -1}), 0, 0, "position is negative"},
		{"offset overflows", math.MaxInt64, offsetFile(0, pair{5, 0}), 0, 0, "out of range"},
		{"entry behind the tail", 0, slices.Concat(some, zeros(16), some), 0, 2, "does not follow"},
		{"entry behind zeros", 0, slices.Concat(zeros(16), some), 0, 1, "does not follow"},
	} {
		x, err := index.ParseOffset(c.b, c.base)
		if c.want != "" {
			refused(t, c.name, err, segment.OffsetIndex, c.entry, c.want)
			if x.Len() != 0 {
				t.Errorf("%s: %d entries of a bad index", c.name, x.Len())
			}
			continue
		}
		if err != nil || x.Len() != c.n {
			t.Errorf("%s: %d entries, %v, want %d", c.name, x.Len(), err, c.n)
		}
	}
}

// drawOffsets draws entries of an offset index.
func drawOffsets(t *rapid.T, base int64) (out []pair) {
	offset, pos := base, int64(0)
	for range rapid.IntRange(0, 40).Draw(t, "entries") {
		offset += rapid.Int64Range(1, 30).Draw(t, "offset")
		pos += rapid.Int64Range(1, 9000).Draw(t, "position")
		out = append(out, pair{offset, pos})
	}
	return out
}

func TestOffsetLookupsEqualBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		entries := drawOffsets(t, base)
		b := append(offsetFile(base, entries...), make([]byte, 8*rapid.IntRange(0, 3).Draw(t, "tail"))...)
		x, err := index.ParseOffset(b, base)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) > 0 && !slices.Equal(offsetEntries(x), entries) {
			t.Fatalf("entries %v, want %v", offsetEntries(x), entries)
		}
		for target := base - 2; target < base+1300; target++ {
			wantOffset, wantPos := base, int64(0)
			for _, e := range entries {
				if e[0] <= target {
					wantOffset, wantPos = e[0], e[1]
				}
			}
			if o, p := x.Lookup(target); o != wantOffset || p != wantPos {
				t.Fatalf("Lookup(%d) = %d, %d, want %d, %d", target, o, p, wantOffset, wantPos)
			}
		}
		pos, size := rapid.Int64Range(0, 200_000).Draw(t, "from"), rapid.Int64Range(0, 200_000).Draw(t, "size")
		want := int64(-1)
		for _, e := range slices.Backward(entries) {
			if e[1] >= pos+size {
				want = e[0]
			}
		}
		if got, ok := x.UpperBound(pos, size); ok != (want >= 0) || ok && got != want {
			t.Fatalf("UpperBound(%d, %d) = %d, %v, want %d", pos, size, got, ok, want)
		}
	})
}

func TestLookupsDoNotAllocate(t *testing.T) {
	offsets, err := index.ParseOffset(offsetFile(0, pair{5, 0}, pair{9, 70}), 0)
	if err != nil {
		t.Fatal(err)
	}
	times, err := index.ParseTime(timeFile(0, pair{5, 0}, pair{9, 70}), 0)
	if err != nil {
		t.Fatal(err)
	}
	txns, err := index.ParseTxn(kafkasTxns(), 0)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]index.AbortedTxn, 0, 10)
	n := testing.AllocsPerRun(100, func() {
		offsets.Lookup(7)
		offsets.UpperBound(7, 100)
		times.Lookup(7)
		dst, _ = txns.Collect(dst[:0], 0, 100)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// largest is the number of entries of a full index of a 1 GiB segment.
const largest = 1 << 18

func BenchmarkOffsetLookup(b *testing.B) {
	var entries []pair
	for i := range int64(largest) {
		entries = append(entries, pair{10 + i*37, i * 4096})
	}
	x, err := index.ParseOffset(offsetFile(0, entries...), 0)
	if err != nil {
		b.Fatal(err)
	}
	target := func(i int) int64 { return int64(i*7_368_787) % (largest * 37) }
	b.Run(fmt.Sprintf("view/entries=%d", largest), func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			x.Lookup(target(i))
		}
	})
	b.Run(fmt.Sprintf("sort.Search/entries=%d", largest), func(b *testing.B) {
		b.ReportAllocs()
		i, sink := 0, 0
		for b.Loop() {
			i++
			t := target(i)
			sink += sort.Search(len(entries), func(k int) bool { return entries[k][0] > t })
		}
	})
}

func BenchmarkTimeLookup(b *testing.B) {
	var entries []pair
	for i := range int64(largest) {
		entries = append(entries, pair{1_700_000_000_000 + i*37, 10 + i*20})
	}
	x, err := index.ParseTime(timeFile(0, entries...), 0)
	if err != nil {
		b.Fatal(err)
	}
	target := func(i int) int64 { return 1_700_000_000_000 + int64(i*7_368_787)%(largest*37) }
	b.Run(fmt.Sprintf("view/entries=%d", largest), func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			x.Lookup(target(i))
		}
	})
	b.Run(fmt.Sprintf("sort.Search/entries=%d", largest), func(b *testing.B) {
		b.ReportAllocs()
		i, sink := 0, 0
		for b.Loop() {
			i++
			t := target(i)
			sink += sort.Search(len(entries), func(k int) bool { return entries[k][0] > t })
		}
	})
}
