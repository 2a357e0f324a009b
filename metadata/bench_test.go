package metadata

import (
	"fmt"
	"runtime"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/segtier/segtier/segment"
)

// TestMemoryOfASegment: a View of many segments, of one leader epoch and with the
// location of an object each, takes no more than 200 bytes for each.
func TestMemoryOfASegment(t *testing.T) {
	const n, limit = 200_000, 200
	if got := memoryOf(n); got > limit {
		t.Errorf("%.1f bytes a segment, the limit is %d", got, limit)
	}
}

// memoryOf returns how much the heap grows for each segment of a View.
func memoryOf(n int) float64 {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	v := bigView(n)
	after := heap()
	runtime.KeepAlive(v)
	return (after - before) / float64(n)
}

func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(memoryOf(1_000_000), "B/segment")
	}
}

// BenchmarkLoad makes a View of a million segments.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		bigView(1_000_000)
	}
}

// BenchmarkLookup measures a lookup against a map lookup plus sort.Search: a
// partition's segments found in a map, and one of them by binary search in their
// packed start offsets. The two take turns, A B B A, and the medians count: vs-map
// is their ratio.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			v, l := bigView(n), lineageOf(0, 0)
			reference := newMapAndSearch(n)
			const calls = 20_000
			i := 0
			offset := func() int64 { i++; return int64(i * 7919 % (10 * n)) }
			lookup := func() {
				for range calls {
					if s, ok := v.Lookup(l, offset()); !ok || s.State != CopySegmentFinished {
						b.Fatal("not found")
					}
				}
			}
			search := func() {
				for range calls {
					if s := reference.find(offset()); s == nil || s.State != CopySegmentFinished {
						b.Fatal("not found")
					}
				}
			}
			b.ReportAllocs()
			var a, r []float64
			for b.Loop() {
				a = append(a, took(lookup))
				r = append(r, took(search), took(search))
				a = append(a, took(lookup))
			}
			b.ReportMetric(median(a)/calls, "lookup-ns")
			b.ReportMetric(median(r)/calls, "map-ns")
			b.ReportMetric(median(a)/median(r), "vs-map")
		})
	}
}

func took(f func()) float64 {
	start := time.Now()
	f()
	return float64(time.Since(start).Nanoseconds())
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// mapAndSearch finds segments as simply as it can be done.
type mapAndSearch map[segment.Partition]*sortedSegments

type sortedSegments struct {
	starts []int64
	segs   []*Segment
}

func newMapAndSearch(n int) mapAndSearch {
	p := &sortedSegments{}
	for i := range n {
		s := bigSegment(i)
		p.starts, p.segs = append(p.starts, s.StartOffset), append(p.segs, s)
	}
	return mapAndSearch{testPartition: p}
}

func (m mapAndSearch) find(offset int64) *Segment {
	p := m[testPartition]
	at := sort.Search(len(p.starts), func(i int) bool { return p.starts[i] > offset }) - 1
	if s := p.segs[at]; s.EndOffset >= offset {
		return s
	}
	return nil
}

// BenchmarkCopiedUpTo asks for the frontier of a million segments.
func BenchmarkCopiedUpTo(b *testing.B) {
	v := bigView(1_000_000)
	b.ReportAllocs()
	for b.Loop() {
		if got := v.CopiedUpTo(nil); got != 10_000_000-1 {
			b.Fatal(got)
		}
	}
}

// BenchmarkWith adds a segment to a View.
func BenchmarkWith(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			v := bigView(n)
			s := bigSegment(n)
			b.ReportAllocs()
			for b.Loop() {
				v.With(s)
			}
		})
	}
}

func bigView(n int) *View {
	l := NewLoader(testPartition)
	for i := range n {
		l.Add(bigSegment(i), uint64(i+1))
	}
	return l.View()
}

func bigSegment(i int) *Segment {
	s := fin(1, int64(10*i), int64(10*i+9))
	s.Custom = make([]byte, 31) // as long as an object's location
	s.ID = segment.UUID{byte(i * 37), byte(i >> 16), byte(i >> 8), byte(i), 1}
	return s
}
