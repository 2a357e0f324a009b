package index_test

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// Where in a log to begin a search for an offset.
func ExampleOffset_Lookup() {
	b, err := os.ReadFile("testdata/00000000000000000100.index")
	if err != nil {
		log.Fatal(err)
	}
	x, err := index.ParseOffset(b, 100)
	if err != nil {
		log.Fatal(err)
	}
	for _, target := range []int64{101, 114, 120} {
		offset, pos := x.Lookup(target)
		fmt.Printf("%d: from position %d (offset %d)\n", target, pos, offset)
	}
	// Output:
	// 101: from position 0 (offset 100)
	// 114: from position 5083 (offset 114)
	// 120: from position 5083 (offset 114)
}

// One pass over a segment checks its batches and that its indexes agree.
func ExampleChecker() {
	src, err := segment.OpenDir("../testdata/partitions/payments.tx_commit-abort-0", 248)
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	stream := func(kind segment.FileKind) io.Reader {
		r, size := src.File(kind)
		if r == nil {
			return nil
		}
		return io.NewSectionReader(r, 0, size)
	}
	info := src.Info()
	checker := index.NewChecker(info.StartOffset, info.EndOffset, stream(segment.OffsetIndex), stream(segment.TimeIndex), stream(segment.TxnIndex))
	walker := segment.Walker{Batch: checker.Batch}
	if _, err := io.Copy(&walker, stream(segment.Log)); err != nil {
		log.Fatal(err)
	}
	if err := walker.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(checker.Close())
	// Output: <nil>
}
