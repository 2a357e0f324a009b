package metadata_test

import (
	"errors"
	"testing"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/segment"
)

// TestReceiptIsForOneSegment: a receipt finishes the segment it was made for,
// with the location it says, and no other.
func TestReceiptIsForOneSegment(t *testing.T) {
	p := segment.Partition{Topic: "orders", TopicID: segment.NewUUID(), Number: 1}
	w := metadata.Writer{BrokerID: 3, LeaderEpoch: 2}
	sample := metadatatest.NewSample(t, p, 10, 19, nil)
	receipt := sample.Receipt(t)
	ev, err := metadata.Finished(sample.Segment, receipt, w, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := ev.Publishable(); err != nil {
		t.Error(err)
	}
	got := ev.Segment()
	if got.State != metadata.CopySegmentFinished || string(got.Custom) != string(receipt.Facts().Location) || len(got.Custom) == 0 {
		t.Errorf("got %+v", got)
	}
	if got.BrokerID != 3 || got.LeaderEpoch != 2 || got.EventTimestamp != 7 {
		t.Errorf("got %+v", got)
	}

	for what, change := range map[string]func(s *metadata.Segment){
		"another segment":   func(s *metadata.Segment) { s.ID = segment.NewUUID() },
		"another partition": func(s *metadata.Segment) { s.Partition.Number++ },
		"another topic":     func(s *metadata.Segment) { s.Partition.TopicID = segment.NewUUID() },
		"another start":     func(s *metadata.Segment) { s.StartOffset++; s.Epochs[0].Start++ },
		"another end":       func(s *metadata.Segment) { s.EndOffset++ },
		"another size":      func(s *metadata.Segment) { s.SizeBytes++ },
	} {
		other := sample.Segment.Clone()
		change(other)
		if _, err := metadata.Finished(other, receipt, w, 7); !errors.Is(err, metadata.ErrUnproven) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
