package dir_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/dir"
)

func ExampleOpen() {
	root, err := os.MkdirTemp("", "segtier")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)

	store, err := dir.Open(filepath.Join(root, "store"), dir.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	data := "bytes of a segment"
	ev, err := store.Upload(context.Background(), objstore.UploadRequest{
		Key: "orders/0/segment", Body: strings.NewReader(data), Size: int64(len(data)), PartSize: 16 << 20,
		PartSums: []checksum.Sum{{Len: int64(len(data)), CRC32C: checksum.CRC32C([]byte(data))}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ev.Size, "bytes,", ev.Parts[0].Level)
	_, body, err := store.Get(context.Background(), "orders/0/segment", 9, 9, objstore.GetOptions{IfMatch: ev.Identity})
	if err != nil {
		log.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	fmt.Printf("%s %v\n", b, err)
	// Output:
	// 18 bytes, read back
	// a segment <nil>
}
