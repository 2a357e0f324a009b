package object_test

import (
	"fmt"
	"os"

	"github.com/segtier/segtier/object"
)

// A reader that knows an object's location reads its tail and has everything
// that it needs to ask for data.
func ExampleParseTail() {
	obj, err := os.ReadFile("testdata/golden.seg") // an object store
	if err != nil {
		fmt.Println(err)
		return
	}
	loc, err := object.LocationOf(obj[11627:]) // from metadata, with object.ParseLocation
	if err != nil {
		fmt.Println(err)
		return
	}
	tail, err := object.ParseTail(obj[loc.TailOffset:], loc)
	if err != nil {
		fmt.Println(err)
		return
	}
	i := tail.Table.ForOffset(115)
	c := tail.Table.Chunks[i]
	fmt.Printf("%s, offsets %d to %d\n", tail.Header.Partition.Topic, tail.Header.StartOffset, tail.Header.EndOffset)
	fmt.Printf("look for offset 115 in chunk %d, bytes [%d,%d), from position %d on\n",
		i, tail.Table.Start(i), tail.Table.Start(i)+tail.Table.Len(i), c.FirstBatch)
	// Output:
	// orders.eu, offsets 100 to 139
	// look for offset 115 in chunk 1, bytes [4096,8192), from position 5083 on
}
