package transfer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// A segment is scanned once, uploaded, and proven to be there. In between,
// lifecycle makes the STARTED record durable, of which the header is made.
func ExampleUpload() {
	ctx := context.Background()
	src := testseg.Random(1, testseg.Options{Segments: 1, Plain: true}).Segments[0] // or segment.OpenDir
	ep, err := endpoint.New(storetest.NewMem(), endpoint.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ep.Close()

	plan, err := transfer.Scan(ctx, src, transfer.ScanOptions{})
	if err != nil {
		log.Fatal(err)
	}
	info := plan.Info()
	started := object.Header{
		Partition:     info.Partition,
		SegmentID:     segment.NewUUID(),
		StartOffset:   info.StartOffset,
		EndOffset:     info.EndOffset,
		MaxTimestamp:  plan.MaxTimestamp(),
		SizeBytes:     plan.LogSize(),
		Epochs:        info.Epochs.Range(info.StartOffset, info.EndOffset),
		TxnIndexEmpty: plan.TxnIndexEmpty(),
	}
	receipt, err := transfer.Upload(ctx, ep, src, plan, started, transfer.UploadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("all bytes are there:", receipt.Facts().Object.Len == plan.Size())

	// Later, from metadata alone: every byte again.
	loc, err := object.ParseLocation(receipt.Facts().Location)
	if err != nil {
		log.Fatal(err)
	}
	again, err := transfer.Confirm(ctx, ep, started, loc, transfer.ConfirmOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(again.Facts().Evidence)
	// Output:
	// all bytes are there: true
	// full read
}
