package fetch_test

import (
	"net"
	"testing"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
)

// BenchmarkFetchHot is a Fetch of 1 MiB that is in memory, with AppendTo and
// Release, beside a bare ristretto.Get of the same run: the measure is the
// ratio.
func BenchmarkFetchHot(b *testing.B) {
	bare, err := ristretto.NewCache(&ristretto.Config[uint64, []byte]{NumCounters: 1000, MaxCost: 100, BufferItems: 64, IgnoreInternalCost: true})
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	bare.Set(1, make([]byte, 1), 1)
	bare.Wait()
	b.Run("ristretto.Get", func(b *testing.B) {
		for b.Loop() {
			if _, ok := bare.Get(1); !ok {
				b.Fatal("miss")
			}
		}
	})
	for name, size := range map[string]int{"batches-200B": 200, "batches-4KiB": 4 << 10, "batches-16KiB": 16 << 10, "batches-64KiB": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			var batches []testseg.Batch
			for i := range int64(8 << 20 / size) {
				batches = append(batches, record(i, i, 0, size-100))
			}
			s := testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Batches: batches})
			x := newTier(b, &testseg.Log{Partition: testseg.DefaultPartition, Epochs: s.Info().Epochs, Segments: []*testseg.Segment{s}},
				tierOptions{chunk: 1 << 20, notes: 4 << 10})
			defer x.close()
			x.walk(1 << 20)
			var res fetch.Result
			var bufs net.Buffers
			n := int64(len(batches))
			ctx := b.Context()
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				if err := x.reader.Fetch(ctx, x.request(i*17%(n*3/4), 1<<20), &res); err != nil {
					b.Fatal(err)
				}
				bufs = res.AppendTo(bufs[:0])
				res.Release()
			}
		})
	}
}
