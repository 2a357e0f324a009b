package segment_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// TestTimes: the same records as Records, of every codec and shape, or the same
// refusal of a batch that is cut.
func TestTimes(t *testing.T) {
	type record struct{ offset, timestamp int64 }
	var whole, short segment.Decoder
	for seed := range uint64(30) {
		for _, s := range testseg.Random(seed, testseg.Options{}).Segments {
			for _, b := range s.Batches {
				raw := s.Log[b.Pos : b.Pos+int64(b.Header.Size)]
				var want, got []record
				if err := whole.Records(raw, func(r segment.Record) bool {
					want = append(want, record{r.Offset, r.Timestamp})
					return true
				}); err != nil {
					t.Fatal(err)
				}
				if err := short.Times(raw, func(offset, timestamp int64) bool {
					got = append(got, record{offset, timestamp})
					return true
				}); err != nil || !slices.Equal(got, want) {
					t.Fatalf("seed %d, batch at %d: %v, %v, want %v", seed, b.Header.BaseOffset, got, err, want)
				}
			}
		}
	}
}

// TestTimesOfLargeRecords: a small batch that holds a large record costs little
// memory as long as only times are asked for.
func TestTimesOfLargeRecords(t *testing.T) {
	const size = 64 << 20
	raw := testseg.Batch{Codec: segment.CodecGzip, Records: []segment.Record{
		{Offset: 0, Timestamp: 5, Value: make([]byte, size)}, {Offset: 1, Timestamp: 7},
	}}.Append(nil)
	var decoder segment.Decoder
	var times []int64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := decoder.Times(raw, func(_, timestamp int64) bool {
		times = append(times, timestamp)
		return true
	})
	runtime.ReadMemStats(&after)
	if err != nil || !slices.Equal(times, []int64{5, 7}) {
		t.Errorf("%v, %v", times, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated for the times of a record of %d", n, size)
	}
}
