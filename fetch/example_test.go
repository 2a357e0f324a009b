package fetch_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// exampleTier tiers a small partition.
func exampleTier() *tier {
	log := testseg.Random(1, testseg.Options{Start: 100, Segments: 2, Batches: 8, Plain: true, Codecs: []segment.Codec{segment.CodecNone}})
	return newTier(loud{}, log, tierOptions{})
}

// loud fails examples.
type loud struct{}

func (loud) Helper()                      {}
func (loud) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (loud) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

// A consumer reads from the log start until the tier ends, and goes on in the
// local log.
func ExampleReader_Fetch() {
	x := exampleTier()
	defer x.close()
	reader, partition := x.reader, x.log.Partition

	ctx := context.Background()
	var res fetch.Result // used again and again
	defer res.Release()
	for offset := int64(100); ; offset = res.NextOffset() {
		err := reader.Fetch(ctx, fetch.Request{Partition: partition, LogStart: 100, Offset: offset, MaxBytes: 1 << 20}, &res)
		var end *fetch.EndOfTierError
		if errors.As(err, &end) {
			fmt.Println("go on in the local log at", end.Next)
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		records := 0
		for header := range res.Batches() {
			records += int(header.Count)
		}
		fmt.Printf("offsets %d to %d, %d records\n", res.FirstOffset(), res.NextOffset()-1, records)
	}
	// Output:
	// offsets 100 to 162, 63 records
	// go on in the local log at 163
}

func ExampleReader_OffsetForTime() {
	x := exampleTier()
	defer x.close()
	reader, partition := x.reader, x.log.Partition

	pos, err := reader.OffsetForTime(context.Background(), fetch.TimeRequest{Partition: partition, LogStart: 100, Time: 1_700_000_000_300})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pos.Offset, pos.Timestamp, pos.LeaderEpoch)
	// Output: 109 1700000000364 2
}
