package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"

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

// TestLocked: a second opening, in this process as in another, ends soon with an
// error that says what to do; closing gives the file back.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{})
	for _, readOnly := range []bool{false, true} {
		_, err := Open(path, Options{ReadOnly: readOnly})
		if !errors.Is(err, metadata.ErrLocked) || !strings.Contains(err.Error(), path) {
			t.Errorf("read-only %v: %v", readOnly, err)
		}
	}
	_ = s.Close()
	a := mustOpen(t, path, Options{ReadOnly: true})
	mustOpen(t, path, Options{ReadOnly: true}) // readers do not mind each other
	if _, err := Open(path, Options{}); !errors.Is(err, metadata.ErrLocked) {
		t.Errorf("a writer beside readers: %v", err)
	}
	_ = a.Close()
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if names := files(t, path); len(names) != 0 {
		t.Errorf("it left %v", names)
	}
	s := mustOpen(t, path, Options{})
	sample := publish(t, s, 0, 9, metadata.CopySegmentFinished)
	id := s.ID()
	_ = s.Close()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, path, Options{ReadOnly: true})
	if r.ID() != id || state(t, r, sample) != metadata.CopySegmentFinished {
		t.Errorf("ID %s, state %s", r.ID(), state(t, r, sample))
	}
	if err := r.Publish(t.Context(), sample.Event(t, metadata.DeleteSegmentStarted, testWriter())); !errors.Is(err, metadata.ErrReadOnly) {
		t.Errorf("Publish: %v", err)
	}
	_ = r.Close()
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
}

// TestCreation: an ID of its own, nothing left beside the file, and clear errors
// where a file cannot be.
func TestCreation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{})
	if _, err := segment.ParseUUID(s.ID()); err != nil {
		t.Errorf("ID %q: %v", s.ID(), err)
	}
	if names := files(t, path); !slices.Equal(names, []string{"m.db"}) {
		t.Errorf("files are %v", names)
	}
	if other := mustOpen(t, filepath.Join(t.TempDir(), "m.db"), Options{}); other.ID() == s.ID() {
		t.Error("two files have the same ID")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no", "m.db"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := Open(t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
}

// TestCreatedAtOnce: of many that create the same file one succeeds; the others
// get ErrLocked or, after it was closed, the same file.
func TestCreatedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	ids := make(chan string, 8)
	for range cap(ids) {
		go func() {
			s, err := Open(path, Options{})
			if err != nil {
				ids <- err.Error()
				return
			}
			id := s.ID()
			_ = s.Close()
			ids <- id
		}()
	}
	final := map[string]bool{}
	for range cap(ids) {
		if id := <-ids; len(id) == 22 {
			final[id] = true
		} else if !strings.Contains(id, "in use") {
			t.Error(id)
		}
	}
	if len(final) != 1 {
		t.Errorf("the file had the IDs %v", final)
	}
	if names := files(t, path); !slices.Equal(names, []string{"m.db"}) {
		t.Errorf("files are %v", names)
	}
}

func files(t testing.TB, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestNotAMetadataFile: what is no intact file of ours is refused, and left alone.
func TestNotAMetadataFile(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.db")
	s := mustOpen(t, good, Options{})
	for i := range int64(50) {
		publish(t, s, 10*i, 10*i+9, metadata.CopySegmentStarted)
	}
	_ = s.Close()
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	garbage := bytes.Repeat([]byte("no database "), 12_000)
	wiped := bytes.Clone(whole)
	clear(wiped[:2*os.Getpagesize()])
	contents := map[string][]byte{
		"empty":               {},
		"a few bytes":         []byte("x"),
		"text":                garbage,
		"zeros":               make([]byte, 1<<16),
		"cut to one page":     whole[:os.Getpagesize()],
		"cut to 8 KiB":        whole[:8<<10],
		"cut to 17 KiB":       whole[:17<<10],
		"without the headers": wiped,
		"garbage in the body": append(bytes.Clone(whole[:2*os.Getpagesize()]), garbage...)[:len(whole)],
	}
	for name, content := range contents {
		for _, readOnly := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "m.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 { // twice: the lock is given back
				s, err := Open(path, Options{ReadOnly: readOnly})
				if err == nil {
					_ = s.Close()
				}
				if !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), path) {
					t.Errorf("%s, read-only %v: %v", name, readOnly, err)
				}
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
				t.Errorf("%s: the file was changed (%v)", name, err)
			}
		}
	}
}

// damage opens the file with bbolt and changes it.
func damage(t *testing.T, path string, f func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(f), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedRecords: every record is checked when the file is opened, and the
// error says which one it is.
func TestDamagedRecords(t *testing.T) {
	bucket := func(tx *bolt.Tx, name string) (b *bolt.Bucket, k, v []byte) {
		b = tx.Bucket([]byte(name))
		k, v = b.Cursor().First()
		return b, bytes.Clone(k), bytes.Clone(v)
	}
	tests := map[string]func(tx *bolt.Tx) error{
		"flipped bit in a segment": func(tx *bolt.Tx) error {
			b, k, v := bucket(tx, segmentsBucket)
			v[20] ^= 1
			return b.Put(k, v)
		},
		"flipped bit in a partition": func(tx *bolt.Tx) error {
			b, k, v := bucket(tx, partitionsBucket)
			v[2] ^= 1
			return b.Put(k, v)
		},
		"segment under another id": func(tx *bolt.Tx) error {
			b, k, v := bucket(tx, segmentsBucket)
			k[len(k)-1] ^= 1
			return b.Put(k, v)
		},
		"segment without partition": func(tx *bolt.Tx) error {
			b, k, _ := bucket(tx, partitionsBucket)
			return b.Delete(k)
		},
		"partition that comes before its segments'": func(tx *bolt.Tx) error {
			p := partitionRecord{partition: segment.Partition{Topic: "a", TopicID: segment.UUID{15: 1}}}
			k := keyOf(p.partition)
			sk := segmentKey(k, segment.UUID{1})
			return tx.Bucket([]byte(segmentsBucket)).Put(sk, []byte("x"))
		},
		"cut record": func(tx *bolt.Tx) error {
			b, k, v := bucket(tx, segmentsBucket)
			return b.Put(k, v[:30])
		},
		"FINISHED event beyond the count": func(tx *bolt.Tx) error {
			b, k, v := bucket(tx, segmentsBucket)
			r, err := decodeSegment(testPartition(), k, v)
			if err != nil {
				return err
			}
			r.order = 99
			return b.Put(k, r.encode(k))
		},
		"no segments":    func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(segmentsBucket)) },
		"no buckets":     func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(fileBucket)) },
		"no format":      func(tx *bolt.Tx) error { return tx.Bucket([]byte(fileBucket)).Delete([]byte(formatKey)) },
		"no id":          func(tx *bolt.Tx) error { return tx.Bucket([]byte(fileBucket)).Delete([]byte(idKey)) },
		"nonsense as id": func(tx *bolt.Tx) error { return tx.Bucket([]byte(fileBucket)).Put([]byte(idKey), []byte("me")) },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.db")
			s := mustOpen(t, path, Options{})
			publish(t, s, 0, 9, metadata.CopySegmentFinished)
			_ = s.Close()
			damage(t, path, f)
			_, err := Open(path, Options{})
			if !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
			// The lock was given back.
			if _, err := Open(path, Options{}); errors.Is(err, metadata.ErrLocked) {
				t.Error("the file is still locked")
			}
		})
	}
}

func TestFormatVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	_ = mustOpen(t, path, Options{}).Close()
	damage(t, path, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(fileBucket)).Put([]byte(formatKey), binary.BigEndian.AppendUint32(nil, 7))
	})
	_, err := Open(path, Options{})
	if err == nil || !strings.Contains(err.Error(), "format version 7") || !strings.Contains(err.Error(), "knows 1") || errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("got %v", err)
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
	s.commit = func(*bolt.Tx) error { panic("page 7: invalid page type") }
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
	synctest.Test(t, func(t *testing.T) {
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
