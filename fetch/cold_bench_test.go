package fetch_test

import (
	"testing"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
)

// BenchmarkFetchCold is a look at a place that is not in memory, of one chunk and
// of eight: what a cold fetch allocates, beside the bytes. There is a batch in each
// chunk.
func BenchmarkFetchCold(b *testing.B) {
	const chunks = 64
	var batches []testseg.Batch
	for i := range int64(chunks) {
		batches = append(batches, record(i, i, 0, 64<<10))
	}
	s := testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Batches: batches})
	log := &testseg.Log{Partition: testseg.DefaultPartition, Epochs: s.Info().Epochs, Segments: []*testseg.Segment{s}}
	chunk := int64(s.Batches[0].Header.Size)
	for name, n := range map[string]int64{"1-chunk": 1, "8-chunks": 8} {
		b.Run(name, func(b *testing.B) {
			x := newTier(b, log, tierOptions{chunk: chunk, notes: 4 << 10})
			defer x.close()
			var res fetch.Result
			b.SetBytes(n * chunk)
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				req := x.request(i*24%(chunks-n), int(n*chunk))
				req.Hint = fetch.TimeQuery
				if err := x.reader.Fetch(b.Context(), req, &res); err != nil {
					b.Fatal(err)
				}
				res.Release()
				b.StopTimer()
				x.cache.Drop(x.segs[0].ID)
				x.forget()
				b.StartTimer()
			}
		})
	}
}
