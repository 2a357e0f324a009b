package embedded

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/segment"
)

// TestEndedIDsAreForgotten: 30 days after a segment has ended its id is unknown
// again, a few with each event, whatever partition they are of; the highest
// offsets of its epochs are not.
func TestEndedIDsAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	now := time.UnixMilli(1_800_000_000_000) // years after the events say they were
	o := Options{Now: func() time.Time { return now }}
	s := mustOpen(t, path, o)
	other := testPartition()
	other.Number++
	var ended []*metadatatest.Sample
	for i := range int64(2*forgetAtOnce + 3) {
		ended = append(ended, publish(t, s, 10*i, 10*i+9, metadata.DeleteSegmentFinished))
	}
	known := func() (n int) {
		t.Helper()
		for _, sample := range ended {
			if state(t, s, sample) == metadata.DeleteSegmentFinished {
				n++
			}
		}
		return n
	}
	records := func() (segments, listed int) {
		t.Helper()
		err := s.db.View(func(tx *bolt.Tx) error {
			segments = tx.Bucket([]byte(segmentsBucket)).Stats().KeyN
			listed = tx.Bucket([]byte(endedBucket)).Stats().KeyN
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return segments, listed
	}
	step := func() {
		t.Helper()
		ev := metadatatest.NewSample(t, other, 0, 9, nil).Event(t, metadata.CopySegmentStarted, testWriter())
		if err := s.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(keepEnded - time.Millisecond)
	step()
	if got := known(); got != len(ended) {
		t.Fatalf("%d of %d are known before 30 days", got, len(ended))
	}
	now = now.Add(time.Millisecond)
	for want := len(ended); want > 0; {
		watched := s.Watch(testPartition())
		step()
		<-watched // by an event of another partition
		want = max(0, want-forgetAtOnce)
		if got := known(); got != want {
			t.Fatalf("%d are known, want %d", got, want)
		}
	}
	for range 2 {
		if segments, listed := records(); segments != 4 || listed != 0 { // those of step
			t.Errorf("%d segments in the file, %d in the list", segments, listed)
		}
		v, err := s.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := v.HighestOffset(0); !ok || got != int64(10*len(ended)-1) {
			t.Errorf("highest offset %d, %v", got, ok)
		}
		if got := v.Lineage(); len(got) != 1 || got[0] != (segment.EpochStart{}) {
			t.Errorf("lineage %v", got)
		}
		damageNothing(t, s)
		_ = s.Close()
		s = mustOpen(t, path, o)
	}
	// FINISHED events are numbered on, also when no record has the last number.
	publish(t, s, 1000, 1009, metadata.DeleteSegmentStarted)
	if err := s.Publish(t.Context(), ended[0].Event(t, metadata.DeleteSegmentFinished, testWriter())); !errors.Is(err, metadata.ErrTransition) {
		t.Errorf("an event of an id that was forgotten: %v", err)
	}
}

// damageNothing checks that every record can be read by bbolt's own means.
func damageNothing(t *testing.T, s *Store) {
	t.Helper()
	err := s.db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPartitionDeletion goes through the states of a partition's deletion, which
// outlive the process, and lets nothing be copied meanwhile.
func TestPartitionDeletion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{})
	sample := publish(t, s, 0, 9, metadata.CopySegmentFinished)
	states := []metadata.PartitionState{metadata.PartitionKept, metadata.DeletePartitionMarked, metadata.DeletePartitionStarted, metadata.DeletePartitionFinished}
	for i, to := range states[1:] {
		ev, err := metadata.DeletePartition(testPartition(), states[i], to, testWriter(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if to == metadata.DeletePartitionFinished {
			var te *metadata.PartitionTransitionError
			if err := s.Publish(t.Context(), ev); !errors.As(err, &te) || te.Live != 1 {
				t.Errorf("finished before its segments: %v", err)
			}
			for _, state := range []metadata.State{metadata.DeleteSegmentStarted, metadata.DeleteSegmentFinished} {
				if err := s.Publish(t.Context(), sample.Event(t, state, testWriter())); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 {
			if err := s.Publish(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.Close()
		s = mustOpen(t, path, Options{})
		v, err := s.View(testPartition())
		if err != nil || v.Info().Deletion != to {
			t.Fatalf("%v, %v, want %s", v.Info().Deletion, err, to)
		}
		more := metadatatest.NewSample(t, testPartition(), 10, 19, nil).Event(t, metadata.CopySegmentStarted, testWriter())
		if err := s.Publish(t.Context(), more); !errors.Is(err, metadata.ErrTransition) {
			t.Errorf("a copy in %s: %v", to, err)
		}
	}
}
