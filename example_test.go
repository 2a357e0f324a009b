package segtier_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/objstore/dir"
	"github.com/segtier/segtier/segment"
)

// A segment was rolled: copy it, and read it back.
func Example() {
	work, err := os.MkdirTemp("", "segtier")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(work)
	partition := "testdata/partitions/sensor-readings.v2_raw-0"
	if err := embed(context.Background(), work, partition, 80); err != nil {
		log.Fatal(err)
	}
	// Output:
	// offsets 80 to 119 are readable
	// 100 to 119
	// next in the local log: 120
}

func embed(ctx context.Context, work, partition string, base int64) error {
	store, err := dir.Open(filepath.Join(work, "tier"), dir.Options{Create: true})
	if err != nil {
		return err
	}
	defer store.Close()
	meta, err := embedded.Open(filepath.Join(work, "segtier.db"), embedded.Options{})
	if err != nil {
		return err
	}
	defer meta.Close()
	tier, err := segtier.Open(ctx, segtier.Options{Store: store, Metadata: meta, MemoryBytes: 1 << 30})
	if err != nil {
		return err
	}
	defer tier.Close() // closes what it made: not the store, not the metadata

	src, err := segment.OpenDir(partition, base) // a segment was rolled
	if err != nil {
		return err
	}
	defer src.Close()
	seg, err := tier.Copy(ctx, src, metadata.Writer{BrokerID: 1, LeaderEpoch: 5})
	if err != nil {
		return err
	}
	fmt.Printf("offsets %d to %d are readable\n", seg.StartOffset, seg.EndOffset)

	var res fetch.Result // reused from fetch to fetch
	defer res.Release()
	req := fetch.Request{Partition: seg.Partition, LogStart: base, Offset: 106, MaxBytes: 1 << 20}
	for {
		err := tier.Fetch(ctx, req, &res)
		var end *fetch.EndOfTierError
		if errors.As(err, &end) {
			fmt.Println("next in the local log:", end.Next)
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println(res.FirstOffset(), "to", res.NextOffset()-1) // res.WriteTo(conn), or res.AppendTo(bufs)
		req.Offset = res.NextOffset()
	}
}

// A whole partition, from what is tiered: a Stream fetches ahead of its reader.
func ExampleTier_Stream() {
	work, err := os.MkdirTemp("", "segtier")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(work)
	if err := stream(context.Background(), work, "testdata/partitions/sensor-readings.v2_raw-0"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 40 records from offset 80 on
}

func stream(ctx context.Context, work, partition string) error {
	store, err := dir.Open(filepath.Join(work, "tier"), dir.Options{Create: true})
	if err != nil {
		return err
	}
	defer store.Close()
	meta, err := embedded.Open(filepath.Join(work, "segtier.db"), embedded.Options{})
	if err != nil {
		return err
	}
	defer meta.Close()
	tier, err := segtier.Open(ctx, segtier.Options{Store: store, Metadata: meta})
	if err != nil {
		return err
	}
	defer tier.Close()
	src, err := segment.OpenDir(partition, 80)
	if err != nil {
		return err
	}
	defer src.Close()
	seg, err := tier.Copy(ctx, src, metadata.Writer{BrokerID: 1, LeaderEpoch: 5})
	if err != nil {
		return err
	}

	reads := tier.Stream(fetch.Request{Partition: seg.Partition, LogStart: 80, Offset: 80, MaxBytes: 1 << 20})
	defer reads.Close() // what was fetched ahead is called off
	var res fetch.Result
	defer res.Release()
	records := 0
	for {
		err := reads.Next(ctx, &res)
		var end *fetch.EndOfTierError
		if errors.As(err, &end) {
			fmt.Println(records, "records from offset 80 on")
			return nil
		}
		if err != nil {
			return err
		}
		for h := range res.Batches() {
			records += int(h.Count)
		}
	}
}
