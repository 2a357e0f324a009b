package embedded

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// big makes a file of a partition with n FINISHED segments, without going
// through n events.
func big(t testing.TB, n int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "m.db")
	_ = mustOpen(t, path, Options{}).Close()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p := testPartition()
	pk := keyOf(p)
	const batch = 20_000
	for from := 0; from < n; from += batch {
		err := db.Update(func(tx *bolt.Tx) error {
			segments := tx.Bucket([]byte(segmentsBucket))
			for i := from; i < min(from+batch, n); i++ {
				s := &metadata.Segment{
					Partition: p, StartOffset: int64(10 * i), EndOffset: int64(10*i + 9), MaxTimestamp: int64(i), SizeBytes: 1 << 30,
					Epochs: segment.Lineage{{Epoch: 3, Start: int64(10 * i)}}, Custom: make([]byte, 31), State: metadata.CopySegmentFinished,
				}
				binary.BigEndian.PutUint64(s.ID[:], uint64(i+1))
				key := segmentKey(pk, s.ID)
				rec := segmentRecord{seg: s, order: uint64(i + 1)}
				if err := segments.Put(key, rec.encode(key)); err != nil {
					return err
				}
			}
			rec := partitionRecord{partition: p, finished: uint64(n)}
			return tx.Bucket([]byte(partitionsBucket)).Put(pk[:], rec.encode(pk[:]))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// loaded is what opening a file of n segments costs.
type loaded struct {
	kept, allocated float64 // bytes a segment: the heap grows by, all that was allocated
	peak            float64 // greatest bytes a segment seen on the heap meanwhile
	took            time.Duration
}

func measure(t testing.TB, n int) (l loaded) {
	t.Helper()
	path := big(t, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var top uint64
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			top = max(top, m.HeapAlloc)
			select {
			case <-tick.C:
			case <-stop:
				peak <- top
				return
			}
		}
	}()
	start := time.Now()
	s := mustOpen(t, path, Options{ReadOnly: true})
	l.took = time.Since(start)
	close(stop)
	top := <-peak
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := func(a, b uint64) float64 { return (float64(a) - float64(b)) / float64(n) }
	l.kept, l.allocated, l.peak = per(after.HeapAlloc, before.HeapAlloc), per(after.TotalAlloc, before.TotalAlloc), per(top, before.HeapAlloc)
	if got := s.mustView().CopiedUpTo(nil); got != int64(10*n-1) {
		t.Fatalf("copied up to %d", got)
	}
	_ = s.Close()
	return l
}

// TestLoadIsBounded: what opening allocates grows with the segments and no
// faster, and little more stays than a View takes.
func TestLoadIsBounded(t *testing.T) {
	small, large := measure(t, 20_000), measure(t, 80_000)
	for _, l := range []loaded{small, large} {
		if l.kept > 200 || l.allocated > 1500 {
			t.Errorf("%.0f bytes a segment stay, %.0f were allocated", l.kept, l.allocated)
		}
	}
	if large.allocated > 1.3*small.allocated {
		t.Errorf("%.0f bytes a segment were allocated for 80,000, %.0f for 20,000", large.allocated, small.allocated)
	}
}

// BenchmarkOpen opens files with up to a million segments.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			var l loaded
			for b.Loop() {
				l = measure(b, n)
			}
			b.ReportMetric(float64(l.took.Nanoseconds())/float64(n), "open-ns/segment")
			b.ReportMetric(l.kept, "B/segment")
			b.ReportMetric(l.peak, "peak-B/segment")
		})
	}
}
