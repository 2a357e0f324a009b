package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/segment"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		os.Exit(child(path)) // see kill_test.go
	}
	goleak.VerifyTestMain(m)
}

func TestKeepsTheLaw(t *testing.T) {
	paths := map[metadata.Store]string{}
	metadatatest.Suite{
		Open: func(t *testing.T) metadata.Store {
			path := filepath.Join(t.TempDir(), "m.db")
			s := mustOpen(t, path, Options{})
			paths[s] = path
			return s
		},
		Reopen: func(t *testing.T, s metadata.Store) metadata.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return mustOpen(t, paths[s], Options{})
		},
		Fences: true,
	}.Run(t)
}

func mustOpen(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func testPartition() segment.Partition {
	return segment.Partition{Topic: "orders", TopicID: segment.UUID{15: 9}, Number: 4}
}

func testWriter() metadata.Writer { return metadata.Writer{BrokerID: 1, LeaderEpoch: 5} }

// publish takes a new segment up to a state and returns it.
func publish(t testing.TB, s *Store, start, end int64, upTo metadata.State) *metadatatest.Sample {
	t.Helper()
	sample := metadatatest.NewSample(t, testPartition(), start, end, nil)
	for to := metadata.CopySegmentStarted; to <= upTo; to++ {
		if err := s.Publish(t.Context(), sample.Event(t, to, testWriter())); err != nil {
			t.Fatalf("%s: %v", to, err)
		}
	}
	return sample
}

func state(t testing.TB, s *Store, sample *metadatatest.Sample) metadata.State {
	t.Helper()
	v, err := s.View(testPartition())
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := v.Get(sample.Segment.ID); ok {
		return got.State
	}
	return metadata.None
}

// TestEndedIDsAreRemembered: the id of a segment that has ended stays known, so
// that its object can be told from one that nobody knows, and cannot come back.
func TestEndedIDsAreRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{})
	sample := publish(t, s, 0, 9, metadata.DeleteSegmentFinished)
	for range 2 {
		if got := state(t, s, sample); got != metadata.DeleteSegmentFinished {
			t.Errorf("state is %s", got)
		}
		if err := s.Publish(t.Context(), sample.Event(t, metadata.CopySegmentStarted, testWriter())); !errors.Is(err, metadata.ErrTransition) {
			t.Errorf("STARTED of an id that has ended: %v", err)
		}
		if err := s.Publish(t.Context(), sample.Event(t, metadata.DeleteSegmentFinished, testWriter())); err != nil {
			t.Errorf("repeated DELETE_FINISHED: %v", err)
		}
		v, err := s.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := v.Get(sample.Segment.ID); got.Custom != nil {
			t.Error("custom metadata is kept")
		}
		if h, ok := v.HighestOffset(0); !ok || h != 9 {
			t.Errorf("highest offset is %d, %v", h, ok)
		}
		_ = s.Close()
		s = mustOpen(t, path, Options{})
	}
}

func TestTopicIDHasOneName(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "m.db"), Options{})
	publish(t, s, 0, 9, metadata.CopySegmentStarted)
	p := testPartition()
	p.Topic = "renamed"
	if _, err := s.View(p); err == nil || !strings.Contains(err.Error(), "orders") {
		t.Errorf("View under another name: %v", err)
	}
	sample := metadatatest.NewSample(t, p, 10, 19, nil)
	if err := s.Publish(t.Context(), sample.Event(t, metadata.CopySegmentStarted, testWriter())); err == nil {
		t.Error("Publish under another name")
	}
}

// TestDamagedWhileOpen: a record that goes bad under an open store is an error
// of the events that need it, not of others.
func TestDamagedWhileOpen(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "m.db"), Options{})
	sample := publish(t, s, 0, 9, metadata.CopySegmentStarted)
	err := s.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(segmentsBucket)).Put(segmentKey(keyOf(testPartition()), sample.Segment.ID), []byte("gone bad"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(t.Context(), sample.Event(t, metadata.CopySegmentFinished, testWriter())); !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	publish(t, s, 10, 19, metadata.CopySegmentStarted)
	if got := state(t, s, sample); got != metadata.CopySegmentStarted {
		t.Errorf("the view says %s", got)
	}
}

// TestFull fills the file to its greatest size. Every event that was
// acknowledged stays, the rest has not happened, and where there is space again
// it goes on.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{maxSize: 64 << 10})
	var acked []*metadatatest.Sample
	var failed *metadatatest.Sample
	for i := int64(0); failed == nil; i++ {
		sample := metadatatest.NewSample(t, testPartition(), 10*i, 10*i+9, nil)
		err := s.Publish(t.Context(), sample.Event(t, metadata.CopySegmentStarted, testWriter()))
		switch {
		case err == nil:
			acked = append(acked, sample)
		case errors.Is(err, metadata.ErrUnavailable) && strings.Contains(err.Error(), path) && strings.Contains(err.Error(), "no space"):
			failed = sample
		default:
			t.Fatal(err)
		}
		if i > 10_000 {
			t.Fatal("the file is never full")
		}
	}
	check := func(s *Store) {
		t.Helper()
		for _, sample := range acked {
			if got := state(t, s, sample); got != metadata.CopySegmentStarted {
				t.Fatalf("an acknowledged segment is in %s", got)
			}
		}
		if got := state(t, s, failed); got != metadata.None {
			t.Errorf("the segment that did not fit is in %s", got)
		}
	}
	check(s)
	s.db.MaxSize = 0
	if err := s.Publish(t.Context(), failed.Event(t, metadata.CopySegmentStarted, testWriter())); err != nil {
		t.Errorf("there is space again: %v", err)
	}
	acked, failed = append(acked, failed), metadatatest.NewSample(t, testPartition(), 0, 9, nil)
	check(s)
	_ = s.Close()
	check(mustOpen(t, path, Options{}))
}

// TestWriteErrors: what each error of a commit means for the events after it.
func TestWriteErrors(t *testing.T) {
	pathError := func(op string, errno syscall.Errno) error { return &fs.PathError{Op: op, Path: "m.db", Err: errno} }
	tests := []struct {
		name   string
		err    error
		cause  error
		broken bool
	}{
		{"no space", pathError("write", syscall.ENOSPC), syscall.ENOSPC, false},
		{"no quota", pathError("write", syscall.EDQUOT), syscall.EDQUOT, false},
		{"no space at fsync", syscall.ENOSPC, syscall.ENOSPC, true}, // pages may be lost
		{"no space at fsync of a file", pathError("sync", syscall.ENOSPC), syscall.ENOSPC, true},
		{"write error", pathError("write", syscall.EIO), syscall.EIO, true},
		{"fsync error", syscall.EIO, syscall.EIO, true},
	}
	for _, test := range tests {
		for _, happened := range []bool{false, true} {
			if happened && !test.broken {
				continue // an error of a write comes before the transaction is valid
			}
			t.Run(fmt.Sprintf("%s, happened %v", test.name, happened), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "m.db")
				s := mustOpen(t, path, Options{})
				before := publish(t, s, 0, 9, metadata.CopySegmentFinished)
				s.commit = func(tx *bolt.Tx) error {
					if happened {
						if err := tx.Commit(); err != nil {
							t.Error(err)
						}
					}
					return test.err
				}
				watched := s.Watch(testPartition())
				sample := metadatatest.NewSample(t, testPartition(), 10, 19, nil)
				started := sample.Event(t, metadata.CopySegmentStarted, testWriter())
				err := s.Publish(t.Context(), started)
				if !errors.Is(err, metadata.ErrUnavailable) || !errors.Is(err, test.cause) || !strings.Contains(err.Error(), path) {
					t.Errorf("got %v", err)
				}
				s.commit = (*bolt.Tx).Commit

				// It is readable, and shows nothing that was not acknowledged.
				if got := state(t, s, before); got != metadata.CopySegmentFinished {
					t.Errorf("a segment from before is in %s", got)
				}
				if got := state(t, s, sample); got != metadata.None {
					t.Errorf("the segment is in %s", got)
				}
				select {
				case <-watched:
					t.Error("watchers were told of a change")
				default:
				}
				again := s.Publish(t.Context(), started)
				if test.broken != errors.Is(again, metadata.ErrUnavailable) {
					t.Errorf("the next event: %v", again)
				}
				_ = s.Close()

				s = mustOpen(t, path, Options{})
				if got := state(t, s, before); got != metadata.CopySegmentFinished {
					t.Errorf("opened again: a segment from before is in %s", got)
				}
				want := metadata.None
				if happened || !test.broken {
					want = metadata.CopySegmentStarted
				}
				if got := state(t, s, sample); got != want {
					t.Errorf("opened again: the segment is in %s, want %s", got, want)
				}
				if err := s.Publish(t.Context(), started); err != nil {
					t.Errorf("opened again: %v", err)
				}
			})
		}
	}
}

// TestPanicWhileWriting: bbolt panics on pages that make no sense. The process
// goes on, and so does reading.
func TestPanicWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{})
	before := publish(t, s, 0, 9, metadata.CopySegmentFinished)
	s.commit = func(*bolt.Tx) error {
		// A transaction that is never closed is a lock of bbolt's that is never
		// given back.
		if _, err := s.db.Begin(false); err != nil {
			t.Error(err)
		}
		panic("page 7: invalid page type")
	}
	sample := metadatatest.NewSample(t, testPartition(), 10, 19, nil)
	started := sample.Event(t, metadata.CopySegmentStarted, testWriter())
	for range 2 {
		err := s.Publish(t.Context(), started)
		if !errors.Is(err, metadata.ErrUnavailable) || !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), "page 7") {
			t.Errorf("got %v", err)
		}
		s.commit = (*bolt.Tx).Commit
	}
	if got := state(t, s, before); got != metadata.CopySegmentFinished {
		t.Errorf("a segment from before is in %s", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = mustOpen(t, path, Options{}) // the lock was given back
	if got := state(t, s, sample); got != metadata.None {
		t.Errorf("opened again: the segment is in %s", got)
	}
}

// TestWaitingCanBeGivenUp: a caller that waits for another event to be written
// obeys its context, and its event does not happen.
func TestWaitingCanBeGivenUp(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "m.db"), Options{})
	first := metadatatest.NewSample(t, testPartition(), 0, 9, nil).Event(t, metadata.CopySegmentStarted, testWriter())
	sample := metadatatest.NewSample(t, testPartition(), 10, 19, nil)
	second := sample.Event(t, metadata.CopySegmentStarted, testWriter())
	bubble.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s.commit = func(tx *bolt.Tx) error { <-hold; return tx.Commit() }
		s.writing = make(chan struct{}, 1) // of this bubble
		done := make(chan error, 1)
		go func() { done <- s.Publish(context.Background(), first) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- s.Publish(ctx, second) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(hold)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s.writing = make(chan struct{}, 1)
	if got := state(t, s, sample); got != metadata.None {
		t.Errorf("the event that was given up has happened: %s", got)
	}
}
