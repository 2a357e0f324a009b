package segment_test

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/segtier/segtier/segment"
)

// The closed segments of a partition directory, written by a real broker.
func ExampleDir() {
	dir := segment.Dir{Path: "../testdata/partitions/sensor-readings.v2_raw-0"}
	bases, err := dir.Segments()
	if err != nil {
		log.Fatal(err)
	}
	for _, base := range bases[:len(bases)-1] { // the last one is active
		src, err := dir.Open(base)
		if err != nil {
			log.Fatal(err)
		}
		info := src.Info()
		fmt.Println(info.StartOffset, info.EndOffset, info.Epochs.Range(info.StartOffset, info.EndOffset))
		_ = src.Close()
	}
	// Output:
	// 0 39 [{0 0}]
	// 40 79 [{0 40}]
	// 80 119 [{0 80} {2 90}]
	// 120 159 [{2 120}]
	// 160 199 [{4 160}]
}

// A log is checked batch by batch while it streams by.
func ExampleWalker() {
	f, err := os.Open("../testdata/partitions/sensor-readings.v2_raw-0/00000000000000000080.log")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
		fmt.Printf("%d: offsets %d to %d, epoch %d, %v\n", pos, h.BaseOffset, h.LastOffset, h.LeaderEpoch, h.Codec())
		return nil
	}}
	if _, err := io.Copy(&w, f); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0: offsets 80 to 89, epoch 0, none
	// 2653: offsets 90 to 99, epoch 2, none
	// 5306: offsets 100 to 109, epoch 2, zstd
	// 7923: offsets 110 to 119, epoch 2, none
}

// Records are decompressed as far as they are read.
func ExampleDecoder() {
	raw, err := os.ReadFile("testdata/batch-200rec-zstd.bin")
	if err != nil {
		log.Fatal(err)
	}
	var d segment.Decoder
	err = d.Records(raw, func(r segment.Record) bool {
		fmt.Printf("offset %d: key %q, value of %d bytes\n", r.Offset, r.Key, len(r.Value))
		return r.Offset < 1002
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// offset 1000: key "", value of 0 bytes
	// offset 1001: key "key-1", value of 600 bytes
	// offset 1002: key "key-2", value of 600 bytes
}
