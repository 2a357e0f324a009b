// A program outside the module that does what compiles. Everything it tries must
// be refused; it prints what was not.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/segment"
)

func main() {
	file, err := embedded.Open(os.Args[1], embedded.Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer file.Close()
	for name, store := range map[string]metadata.Store{"embedded": file, "memory": metadatatest.NewMem()} {
		try(name, store)
	}
	fmt.Println("done")
}

func try(name string, store metadata.Store) {
	ctx := context.Background()
	w := metadata.Writer{BrokerID: 1, LeaderEpoch: 1}
	seg := &metadata.Segment{
		Partition: segment.Partition{Topic: "orders", TopicID: segment.NewUUID()},
		ID:        segment.NewUUID(), EndOffset: 9, SizeBytes: 1,
		Epochs: segment.Lineage{{Epoch: 0, Start: 0}},
	}
	started, err := metadata.Started(seg, w, 1)
	if err == nil {
		err = store.Publish(ctx, started)
	}
	if err != nil {
		fmt.Println(name, "STARTED:", err)
	}

	var zero metadata.Receipt
	if ev, err := metadata.Finished(seg, zero, w, 2); !errors.Is(err, metadata.ErrUnproven) {
		fmt.Println(name, "zero receipt:", err)
	} else if err := store.Publish(ctx, ev); err == nil {
		fmt.Println(name, "the event that came with the error was published")
	}

	finished := *started.Segment()
	finished.State = metadata.CopySegmentFinished
	finished.Custom = []byte("nowhere")
	ev, err := metadata.Recorded(&finished)
	if err != nil {
		fmt.Println(name, "Recorded:", err)
	}
	if err := store.Publish(ctx, ev); !errors.Is(err, metadata.ErrUnproven) {
		fmt.Println(name, "a replay was published:", err)
	}

	var decoded metadata.Event
	_ = json.Unmarshal([]byte(`{"seg":{"State":1},"Segment":{"State":1},"from":0,"recorded":false}`), &decoded)
	if err := store.Publish(ctx, decoded); err == nil {
		fmt.Println(name, "an event out of JSON was published")
	}

	// Writing to what events and views hand out.
	giveUp, err := metadata.DeleteStarted(started.Segment(), w, 3)
	if err != nil {
		fmt.Println(name, "DELETE_STARTED:", err)
	}
	giveUp.Segment().State = metadata.CopySegmentFinished
	if next, err := metadata.Step(started.Segment(), giveUp); err == nil {
		next.State = metadata.CopySegmentFinished
	}
	if giveUp.To() != metadata.DeleteSegmentStarted {
		fmt.Println(name, "an event was changed to", giveUp.To())
	}
	if err := store.Publish(ctx, giveUp); err != nil {
		fmt.Println(name, "DELETE_STARTED:", err)
	}

	view, err := store.View(seg.Partition)
	if err != nil {
		fmt.Println(name, "View:", err)
		return
	}
	if got, ok := view.Get(seg.ID); !ok || got.State != metadata.DeleteSegmentStarted {
		fmt.Println(name, "the segment is", got)
	}
	if _, ok := view.Lookup(nil, 5); ok {
		fmt.Println(name, "an offset is readable that nobody has proven")
	}
}
