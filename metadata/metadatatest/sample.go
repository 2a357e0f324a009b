package metadatatest

import (
	"sync"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// Sample is a small real segment, with which events of all kinds can be made.
type Sample struct {
	// Segment is its record, to be given to metadata.Started.
	Segment *metadata.Segment

	src  *testseg.Segment
	plan *transfer.Plan

	upload  sync.Once
	receipt metadata.Receipt
}

// NewSample makes a segment of one batch for each epoch that has offsets from
// start to end, under a new id. Nil epochs are epoch 0.
func NewSample(t testing.TB, p segment.Partition, start, end int64, epochs segment.Lineage) *Sample {
	t.Helper()
	if epochs == nil {
		epochs = segment.Lineage{{Epoch: 0, Start: start}}
	}
	spec := testseg.Spec{Partition: p, Start: start, End: end, Epochs: epochs}
	own := epochs.Range(start, end)
	for i, e := range own {
		last := end
		if i+1 < len(own) {
			last = own[i+1].Start - 1
		}
		if last >= e.Start {
			spec.Batches = append(spec.Batches, testseg.Batch{
				BaseOffset: e.Start, LastOffset: last, LeaderEpoch: e.Epoch,
				Records: []segment.Record{{Offset: e.Start, Timestamp: 1_000 + e.Start, Value: []byte("sample")}},
			})
		}
	}
	s := &Sample{src: testseg.Build(spec)}
	plan, err := transfer.Scan(t.Context(), s.src, transfer.ScanOptions{})
	if err != nil {
		t.Fatalf("scan of the sample: %v", err)
	}
	s.plan = plan
	s.Segment = &metadata.Segment{
		Partition:     p,
		ID:            segment.NewUUID(),
		StartOffset:   start,
		EndOffset:     end,
		MaxTimestamp:  plan.MaxTimestamp(),
		SizeBytes:     plan.LogSize(),
		Epochs:        own,
		Custom:        plan.Fingerprint(),
		TxnIndexEmpty: plan.TxnIndexEmpty(),
		State:         metadata.CopySegmentStarted,
	}
	return s
}

// Receipt uploads the segment to a store in memory and returns the proof. It
// does so once.
func (s *Sample) Receipt(t testing.TB) metadata.Receipt {
	t.Helper()
	s.upload.Do(func() { s.receipt = s.prove(t) })
	if s.receipt.IsZero() {
		t.Fatal("the upload of the sample has failed before")
	}
	return s.receipt
}

func (s *Sample) prove(t testing.TB) metadata.Receipt {
	t.Helper()
	store := storetest.NewMem()
	ep, err := endpoint.New(store, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
		_ = store.Close()
	}()
	m := s.Segment
	receipt, err := transfer.Upload(t.Context(), ep, s.src, s.plan, object.Header{
		Partition:      m.Partition,
		SegmentID:      m.ID,
		StartOffset:    m.StartOffset,
		EndOffset:      m.EndOffset,
		MaxTimestamp:   m.MaxTimestamp,
		EventTimestamp: m.EventTimestamp,
		BrokerID:       m.BrokerID,
		SizeBytes:      m.SizeBytes,
		Epochs:         m.Epochs,
		TxnIndexEmpty:  m.TxnIndexEmpty,
	}, transfer.UploadOptions{})
	if err != nil {
		t.Fatalf("upload of the sample: %v", err)
	}
	return receipt
}

// Event makes the event that leads to a state. What it is decided on is the
// state before in the usual life of a segment; another one can be given to
// DeleteStarted.
func (s *Sample) Event(t testing.TB, to metadata.State, w metadata.Writer) metadata.Event {
	t.Helper()
	const at = 1_700_000_000_000
	var ev metadata.Event
	var err error
	switch to {
	case metadata.CopySegmentStarted:
		ev, err = metadata.Started(s.Segment, w, at)
	case metadata.CopySegmentFinished:
		ev, err = metadata.Finished(s.Segment, s.Receipt(t), w, at+1)
	case metadata.DeleteSegmentStarted:
		finished := s.Event(t, metadata.CopySegmentFinished, w)
		ev, err = metadata.DeleteStarted(finished.Segment(), w, at+2)
	case metadata.DeleteSegmentFinished:
		deleting := s.Event(t, metadata.DeleteSegmentStarted, w)
		ev, err = metadata.DeleteFinished(deleting.Segment(), w, at+3)
	default:
		t.Fatalf("there is no event to %s", to)
	}
	if err != nil {
		t.Fatalf("event to %s: %v", to, err)
	}
	return ev
}
