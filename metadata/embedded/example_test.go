package embedded_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/segment"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "segtier")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	meta, err := embedded.Open(filepath.Join(dir, "segtier.db"), embedded.Options{})
	if err != nil {
		log.Fatal(err) // metadata.ErrLocked: another process has it
	}
	defer meta.Close()

	view, err := meta.View(segment.Partition{Topic: "orders", TopicID: segment.NewUUID()})
	if err != nil {
		log.Fatal(err)
	}
	_, readable := view.Lookup(nil, 106)
	fmt.Println("offset 106 is in the tier:", readable)
	// Output: offset 106 is in the tier: false
}
