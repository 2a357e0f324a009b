package bench

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/objstore/dir"
	"github.com/segtier/segtier/segment"
)

// bigSegment is about 16 MiB of batches of some 16 KiB.
func bigSegment() *testseg.Segment {
	value := make([]byte, 1<<10)
	for i := range value {
		value[i] = byte(i * i >> 3)
	}
	var batches []testseg.Batch
	for offset := int64(0); offset < 16<<10; offset += 16 {
		b := testseg.Batch{BaseOffset: offset}
		for i := range int64(16) {
			b.Records = append(b.Records, segment.Record{Offset: offset + i, Timestamp: 1700000000000 + offset + i, Value: value})
		}
		batches = append(batches, b)
	}
	return testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Batches: batches})
}

func open(b *testing.B, o segtier.Options) *segtier.Tier {
	b.Helper()
	work := b.TempDir()
	store, err := dir.Open(filepath.Join(work, "store"), dir.Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	meta, err := embedded.Open(filepath.Join(work, "metadata.db"), embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	o.Store, o.Metadata = store, meta
	tier, err := segtier.Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(tier.Close(), meta.Close(), store.Close()); err != nil {
			b.Error(err)
		}
	})
	return tier
}

func BenchmarkCopy(b *testing.B) {
	seg := bigSegment()
	b.SetBytes(int64(len(seg.Log)))
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		tier := open(b, segtier.Options{})
		b.StartTimer()
		if _, err := tier.Copy(b.Context(), seg, metadata.Writer{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFetchSequential(b *testing.B) {
	seg := bigSegment()
	for _, memory := range []struct {
		name  string
		bytes int64
	}{{"cold", 4 << 20}, {"hot", 256 << 20}} {
		b.Run(fmt.Sprintf("cache=%s", memory.name), func(b *testing.B) {
			tier := open(b, segtier.Options{MemoryBytes: memory.bytes})
			if _, err := tier.Copy(b.Context(), seg, metadata.Writer{}); err != nil {
				b.Fatal(err)
			}
			var res fetch.Result
			defer res.Release()
			walk := func() {
				var bufs net.Buffers
				got := 0
				for offset := int64(0); ; offset = res.NextOffset() {
					err := tier.Fetch(b.Context(), fetch.Request{Partition: seg.Info().Partition, Offset: offset, MaxBytes: 1 << 20}, &res)
					if errors.Is(err, fetch.ErrEndOfTier) {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					bufs = res.AppendTo(bufs[:0])
					got += res.Size()
				}
				if got != len(seg.Log) {
					b.Fatalf("%d bytes of %d", got, len(seg.Log))
				}
			}
			walk()
			before := tier.Stats().Endpoint
			b.SetBytes(int64(len(seg.Log)))
			b.ReportAllocs()
			for b.Loop() {
				walk()
			}
			gets := tier.Stats().Endpoint.Gets - before.Gets
			b.ReportMetric(float64(gets)/float64(b.N), "GET/op")
		})
	}
}

func BenchmarkOffsetForTime(b *testing.B) {
	seg := bigSegment()
	tier := open(b, segtier.Options{})
	if _, err := tier.Copy(b.Context(), seg, metadata.Writer{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	ts := int64(0)
	for b.Loop() {
		ts = (ts + 7919) % (16 << 10)
		pos, err := tier.OffsetForTime(b.Context(), fetch.TimeRequest{Partition: seg.Info().Partition, Time: 1700000000000 + ts})
		if err != nil || pos.Offset != ts {
			b.Fatalf("%+v, want %d: %v", pos, ts, err)
		}
	}
}
