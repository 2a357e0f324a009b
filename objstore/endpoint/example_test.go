package endpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

func ExampleEndpoint_Read() {
	ctx := context.Background()
	data := []byte("the first chunk|the second chunk")
	sums := checksum.NewCutter(16, int64(len(data))) // chunks of 16 bytes, and all as one part
	_, _ = sums.Write(data)

	store := storetest.NewMem() // or dir.Open, or s3.Open
	ep, err := endpoint.New(store, endpoint.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ep.Close()
	if _, err := ep.Upload(ctx, objstore.UploadRequest{
		Key: "orders/segment", Body: bytes.NewReader(data), Size: int64(len(data)),
		PartSize: int64(len(data)), PartSums: sums.Pieces(1),
	}); err != nil {
		log.Fatal(err)
	}

	req := endpoint.ReadRequest{Key: "orders/segment", ObjectSize: int64(len(data))}
	for _, sum := range sums.Pieces(0) {
		req.Pieces = append(req.Pieces, endpoint.Piece{Buf: make([]byte, sum.Len), CRC32C: sum.CRC32C})
	}
	req.Done = func(i int) { fmt.Printf("chunk %d is verified: %s\n", i, req.Pieces[i].Buf) }
	if _, err := ep.Read(ctx, req); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ep.Stats().Gets, "GET")
	// Output:
	// chunk 0 is verified: the first chunk|
	// chunk 1 is verified: the second chunk
	// 1 GET
}
