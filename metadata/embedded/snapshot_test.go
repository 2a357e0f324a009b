package embedded

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
)

// TestSnapshot: a copy beside the file has all that was acknowledged before, and
// can be read while the file is in use.
func TestSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	now := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	s := mustOpen(t, path, Options{Now: func() time.Time { return now }, SnapshotKeep: 2})
	var samples []*metadatatest.Sample
	var paths []string
	for i := range int64(4) {
		samples = append(samples, publish(t, s, 10*i, 10*i+9, metadata.CopySegmentFinished))
		now = now.Add(time.Second)
		if err := os.WriteFile(path+snapshotNew+"1", nil, 0o600); err != nil { // of a crash
			t.Fatal(err)
		}
		got, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, got)
		r := mustOpen(t, got, Options{ReadOnly: true})
		if r.ID() != s.ID() {
			t.Errorf("its ID is %s, not %s", r.ID(), s.ID())
		}
		for _, sample := range samples {
			if got := state(t, r, sample); got != metadata.CopySegmentFinished {
				t.Errorf("a segment is in %s there", got)
			}
		}
		_ = r.Close()
	}
	if want := path + ".snapshot-20260102T030409.006Z"; paths[3] != want {
		t.Errorf("it is %s, want %s", paths[3], want)
	}
	want := []string{"m.db", filepath.Base(paths[2]), filepath.Base(paths[3])}
	if got := files(t, path); !slices.Equal(got, want) {
		t.Errorf("files are %v, want %v", got, want)
	}
	publish(t, s, 100, 109, metadata.CopySegmentFinished) // the store goes on

	// It can be restored by copying it.
	_ = s.Close()
	b, err := os.ReadFile(paths[2])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path, Options{})
	if got := state(t, s, samples[2]); got != metadata.CopySegmentFinished {
		t.Errorf("restored: %s", got)
	}
	if got := state(t, s, samples[3]); got != metadata.None {
		t.Errorf("restored: what came later is in %s", got)
	}
}

// TestScheduledSnapshots: one each period, if something has changed.
func TestScheduledSnapshots(t *testing.T) {
	first := metadatatest.NewSample(t, testPartition(), 0, 9, nil).Event(t, metadata.CopySegmentStarted, testWriter())
	second := metadatatest.NewSample(t, testPartition(), 10, 19, nil).Event(t, metadata.CopySegmentStarted, testWriter())
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "m.db")
		s, err := Open(path, Options{SnapshotEvery: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		count := func(want int) {
			t.Helper()
			synctest.Wait()
			n := 0
			for _, name := range files(t, path) {
				if strings.Contains(name, snapshotInfix) {
					n++
				}
			}
			if n != want {
				t.Errorf("%d snapshots, want %d", n, want)
			}
		}
		<-time.After(2*time.Hour + time.Minute)
		count(0) // nothing has changed
		if err := s.Publish(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		<-time.After(58 * time.Minute)
		count(0)
		<-time.After(3 * time.Hour)
		count(1)
		if err := s.Publish(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		count(2)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.snapshots.done:
			default:
				t.Error("Close did not wait for the task that writes snapshots")
			}
		}
		<-time.After(5 * time.Hour)
		count(2)
	})
}

// TestSnapshotIsReadBack: what cannot be read is no snapshot, and the ones from
// before stay.
func TestSnapshotIsReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{SnapshotKeep: 1})
	sample := publish(t, s, 0, 9, metadata.CopySegmentStarted)
	good, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(segmentsBucket)).Put(segmentKey(keyOf(testPartition()), sample.Segment.ID), []byte("gone bad"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Snapshot(t.Context()); !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("got %q, %v", got, err)
	}
	if got := files(t, path); !slices.Equal(got, []string{"m.db", filepath.Base(good)}) {
		t.Errorf("files are %v", got)
	}
}

// TestSnapshotsThatCannotBe: each says why, and leaves nothing.
func TestSnapshotsThatCannotBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	full := errors.New("no sync")
	var failing bool
	o := Options{syncDir: func(string) error {
		if failing {
			return full
		}
		return nil
	}}
	s := mustOpen(t, path, o)
	publish(t, s, 0, 9, metadata.CopySegmentStarted)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Snapshot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	failing = true
	if _, err := s.Snapshot(t.Context()); !errors.Is(err, full) {
		t.Errorf("directory not synced: %v", err)
	}
	failing = false
	s.broken = metadata.ErrUnavailable
	if _, err := s.Snapshot(t.Context()); !errors.Is(err, metadata.ErrUnavailable) {
		t.Errorf("broken: %v", err)
	}
	_ = s.Close()
	if _, err := s.Snapshot(t.Context()); !errors.Is(err, metadata.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	r := mustOpen(t, path, Options{ReadOnly: true})
	if _, err := r.Snapshot(t.Context()); !errors.Is(err, metadata.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	for _, name := range files(t, path) {
		if strings.Contains(name, snapshotNew) {
			t.Errorf("%s is left", name)
		}
	}
	for _, o := range []Options{{SnapshotEvery: -1}, {SnapshotKeep: -1}} {
		if _, err := Open(path, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestSnapshotIsGivenUp by Close and by its caller, in the middle.
func TestSnapshotIsGivenUp(t *testing.T) {
	stop, closed := make(chan struct{}), make(chan struct{})
	w := &stoppable{Writer: io.Discard, stop: stop, closed: closed}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	close(closed)
	if _, err := w.Write([]byte("x")); !errors.Is(err, metadata.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	w.closed = make(chan struct{})
	close(stop)
	if _, err := w.Write([]byte("x")); !errors.Is(err, errStopped) {
		t.Errorf("stopped: %v", err)
	}
}

// TestSnapshotsWhilePublishing: each shows some moment, no event half done.
func TestSnapshotsWhilePublishing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{SnapshotKeep: 1})
	var events []metadata.Event
	for i := range int64(60) {
		events = append(events, metadatatest.NewSample(t, testPartition(), 10*i, 10*i+9, nil).Event(t, metadata.CopySegmentStarted, testWriter()))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, ev := range events {
			if err := s.Publish(t.Context(), ev); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5 {
		before, err := s.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		snap, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := mustOpen(t, snap, Options{ReadOnly: true})
		v, err := r.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for seg := range v.All() { // the first n of the events
			if seg.StartOffset != int64(10*n) {
				t.Fatalf("segment %d begins at %d", n, seg.StartOffset)
			}
			n++
		}
		if acked := len(slices.Collect(before.All())); n < acked {
			t.Errorf("%d segments, %d were acknowledged before", n, acked)
		}
		_ = r.Close()
	}
	wg.Wait()
}
