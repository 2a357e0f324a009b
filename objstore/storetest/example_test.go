package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// request describes an object of one part.
func request(key, data string) objstore.UploadRequest {
	return objstore.UploadRequest{
		Key: key, Body: bytes.NewReader([]byte(data)), Size: int64(len(data)), PartSize: 16 << 20,
		PartSums: []checksum.Sum{{Len: int64(len(data)), CRC32C: checksum.CRC32C([]byte(data))}},
	}
}

func ExampleAcceptance() {
	// In a test of your own store:
	_ = func(t *testing.T) {
		storetest.Acceptance(t, func(*testing.T) objstore.Store {
			return storetest.NewMem() // an empty store of yours: its own directory, bucket or prefix
		})
	}
	// Output:
}

func ExampleInject() {
	ctx := context.Background()
	store := storetest.Inject(storetest.NewMem(), storetest.Rules(
		storetest.Rule{Op: "get", Key: "orders/*", Fault: storetest.Fault{Kind: storetest.Cut, At: 5}},
	))
	_, err := store.Upload(ctx, request("orders/a", "all the bytes"))
	fmt.Println("upload:", err)
	for range 2 {
		_, body, _ := store.Get(ctx, "orders/a", 0, 13, objstore.GetOptions{})
		b, err := io.ReadAll(body)
		fmt.Printf("get: %q, %v\n", b, err)
		_ = body.Close()
	}
	// Output:
	// upload: <nil>
	// get: "all t", get orders/a bytes [0,13): unexpected EOF
	// get: "all the bytes", <nil>
}

// A program is stopped after each of its effects, and started again on what is
// left.
func ExampleEffects_StopAfter() {
	ctx := context.Background()
	program := func(store objstore.Store) error {
		if _, err := store.Upload(ctx, request("new", "bytes")); err != nil {
			return err
		}
		return store.Delete(ctx, "old")
	}
	whole := storetest.Inject(storetest.NewMem(), nil)
	fmt.Println(program(whole), whole.Effects().Names())
	for k := range whole.Effects().Count() {
		left := storetest.NewMem()
		crashing := storetest.Inject(left, nil)
		crashing.Effects().StopAfter(k)
		err := program(crashing)
		fmt.Println("stopped after", k, errors.Is(err, storetest.ErrStopped), "and again:", program(left))
	}
	// Output:
	// <nil> [upload new part 0 upload new delete old]
	// stopped after 0 true and again: <nil>
	// stopped after 1 true and again: <nil>
	// stopped after 2 true and again: <nil>
}

// The log is what golden files of whole paths are made of.
func ExampleLog() {
	ctx := context.Background()
	store := storetest.Log(storetest.NewMem(), func(line string) { fmt.Println(line) })
	_, _ = store.Upload(ctx, request("orders/a", "some bytes"))
	_, _ = store.Upload(ctx, request("orders/a", "some bytes"))
	_, _ = store.Upload(ctx, request("orders/a", "other bytes"))
	_, body, _ := store.Get(ctx, "orders/a", 1, 9, objstore.GetOptions{})
	_, _ = body.Read(make([]byte, 7))
	_ = body.Close()
	_, _, _ = store.Get(ctx, "orders/b", 0, 1, objstore.GetOptions{})
	for _, err := range store.List(ctx, "orders/", "") {
		_ = err
	}
	_ = store.Delete(ctx, "orders/a", "orders/b")
	_ = store.Close()
	// Output:
	// upload orders/a: 10 bytes in 1 parts
	// upload orders/a: 10 bytes in 1 parts, existed
	// upload orders/a: object exists with other content
	// get orders/a [1,10): 7 bytes
	// get orders/b [0,1): object does not exist
	// list "orders/": 1 objects
	// delete orders/a orders/b: done
	// close: done
}
