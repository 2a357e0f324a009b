package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/objstore/endpoint"
)

// reader is a Reader over generated segments that are made in this process, at
// memory speed.
type reader struct {
	*fetch.Reader
	tier *weather.Tier
	ep   *endpoint.Endpoint
}

func openReader(b *testing.B, spec weather.Spec, memory int64) *reader {
	b.Helper()
	tier, err := spec.Tier()
	if err != nil {
		b.Fatal(err)
	}
	meta, err := tier.Metadata()
	if err != nil {
		b.Fatal(err)
	}
	store := subject.NewStore()
	ep, err := endpoint.New(store, endpoint.Options{})
	if err != nil {
		b.Fatal(err)
	}
	c, err := cache.New(cache.Options{MemoryBytes: memory})
	if err != nil {
		b.Fatal(err)
	}
	r, err := fetch.New(meta, ep, c, fetch.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		err := r.Close()
		c.Close()
		if err := errors.Join(err, ep.Close(), store.Close()); err != nil {
			b.Error(err)
		}
	})
	return &reader{r, tier, ep}
}

// fetch reads a MiB at a position of partition 0.
func (r *reader) fetch(b *testing.B, pos int64, res *fetch.Result, bufs net.Buffers) net.Buffers {
	req := fetch.Request{Partition: r.tier.Partition(0), Offset: r.tier.OffsetAt(pos), MaxBytes: 1 << 20}
	if err := r.Fetch(b.Context(), req, res); err != nil {
		b.Fatal(err)
	}
	bufs = res.AppendTo(bufs[:0])
	if res.FirstOffset() != req.Offset {
		b.Fatalf("fetch at %d begins at %d", req.Offset, res.FirstOffset())
	}
	res.Release()
	return bufs
}

// BenchmarkFetch is a Fetch of 1 MiB with AppendTo and Release: in sequence
// or anywhere, from memory (hit=100) or each from the store (hit=0).
func BenchmarkFetch(b *testing.B) {
	const size = 1 << 20
	for _, pattern := range []string{"seq", "random"} {
		for _, chunk := range []int64{256 << 10, 1 << 20, 4 << 20} {
			for _, hit := range []int{0, 100} {
				b.Run(fmt.Sprintf("pattern=%s/chunk=%s/hit=%d", pattern, bytesName(chunk), hit), func(b *testing.B) {
					// Cold: so much that nothing is met again while it is in memory.
					spec, memory := weather.Spec{SegmentBytes: 64 << 20, Segments: 256, ChunkBytes: chunk}, int64(16<<20)
					if hit == 100 {
						spec.Segments, memory = 1, 256<<20
					}
					r := openReader(b, spec, memory)
					pieces := r.tier.PartitionBytes()/size - 1
					var res fetch.Result
					var bufs net.Buffers
					if hit == 100 {
						for i := range pieces {
							bufs = r.fetch(b, i*size, &res, bufs)
						}
					}
					rng := rand.New(rand.NewPCG(1, 1))
					before := r.ep.Stats().Gets
					b.SetBytes(size)
					b.ReportAllocs()
					for i := int64(0); b.Loop(); i++ {
						at := i % pieces
						if pattern == "random" {
							at = rng.Int64N(pieces)
						}
						bufs = r.fetch(b, at*size, &res, bufs)
					}
					gets := r.ep.Stats().Gets - before
					if hit == 100 && gets > 0 {
						b.Fatalf("%d GETs for what is in memory", gets)
					}
					b.ReportMetric(float64(gets)/float64(b.N), "GET/op")
				})
			}
		}
	}
}

// BenchmarkFetchFollowers is a MiB to each of several consumers that read the
// same, none of it in memory before: fetched once, whoever comes first.
func BenchmarkFetchFollowers(b *testing.B) {
	const size = 1 << 20
	for _, followers := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("followers=%d", followers), func(b *testing.B) {
			r := openReader(b, weather.Spec{SegmentBytes: 64 << 20, Segments: 256}, 64<<20)
			pieces := r.tier.PartitionBytes()/size - 1
			results := make([]fetch.Result, followers)
			before := r.ep.Stats().Gets
			b.SetBytes(int64(followers) * size)
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				var running sync.WaitGroup
				errs := make([]error, followers)
				for f := range results {
					running.Go(func() {
						req := fetch.Request{Partition: r.tier.Partition(0), Offset: r.tier.OffsetAt(i % pieces * size), MaxBytes: size}
						errs[f] = r.Fetch(b.Context(), req, &results[f])
						results[f].Release()
					})
				}
				running.Wait()
				if err := errors.Join(errs...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(r.ep.Stats().Gets-before)/float64(b.N), "GET/op")
		})
	}
}

func bytesName(n int64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return fmt.Sprintf("%dKiB", n>>10)
}
