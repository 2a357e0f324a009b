package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// TestLocked: a second opening, in this process as in another, ends soon with an
// error that says what to do; closing gives the file back.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{})
	for _, readOnly := range []bool{false, true} {
		_, err := Open(path, Options{ReadOnly: readOnly})
		if !errors.Is(err, metadata.ErrLocked) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "close it here") {
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
	if _, err := Open(filepath.Join(t.TempDir(), "no", "m.db"), Options{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "directory must be there") {
		t.Errorf("no directory: %v", err)
	}
	if _, err := Open(t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
}

// TestDirectoryIsSynced: no file is used for writing whose directory entry may
// be lost, whoever has created it.
func TestDirectoryIsSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	full := errors.New("cannot sync")
	var synced []string
	o := Options{syncDir: func(dir string) error {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("synced before the file is there: %v", err)
		}
		synced = append(synced, dir)
		return full
	}}
	for range 2 {
		if _, err := Open(path, o); !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
	}
	if want := filepath.Dir(path); !slices.Equal(synced, []string{want, want}) {
		t.Errorf("synced %v", synced)
	}
}

// TestRemovedWhileOpening: a file that vanishes is not replaced by one that was
// made in another way.
func TestRemovedWhileOpening(t *testing.T) {
	s := &Store{path: filepath.Join(t.TempDir(), "m.db")}
	if err := s.openDB(Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
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
				} else if readOnly && name == "cut to 17 KiB" && !strings.Contains(err.Error(), "cut short") {
					t.Errorf("%s: %v", name, err)
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
		"ended without a list": func(tx *bolt.Tx) error {
			b, _, _ := bucket(tx, segmentsBucket)
			rec := segmentRecord{seg: goldenSegment().seg}
			rec.seg.State, rec.seg.Custom = metadata.DeleteSegmentFinished, nil
			k := segmentKey(keyOf(testPartition()), rec.seg.ID)
			return b.Put(k, rec.encode(k))
		},
		"listed as ended": func(tx *bolt.Tx) error {
			_, k, _ := bucket(tx, segmentsBucket)
			return tx.Bucket([]byte(endedBucket)).Put(endedKey(1, k), nil)
		},
		"nonsense as ended": func(tx *bolt.Tx) error { return tx.Bucket([]byte(endedBucket)).Put([]byte("x"), nil) },
		"no list of ended":  func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(endedBucket)) },
		"no segments":       func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(segmentsBucket)) },
		"no buckets":        func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(fileBucket)) },
		"no format":         func(tx *bolt.Tx) error { return tx.Bucket([]byte(fileBucket)).Delete([]byte(formatKey)) },
		"no id":             func(tx *bolt.Tx) error { return tx.Bucket([]byte(fileBucket)).Delete([]byte(idKey)) },
		"nonsense as id":    func(tx *bolt.Tx) error { return tx.Bucket([]byte(fileBucket)).Put([]byte(idKey), []byte("me")) },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.db")
			s := mustOpen(t, path, Options{})
			publish(t, s, 0, 9, metadata.CopySegmentFinished)
			_ = s.Close()
			damage(t, path, f)
			_, err := Open(path, Options{})
			if !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "runtime error") {
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
	if err == nil || !strings.Contains(err.Error(), "format version 7") || !strings.Contains(err.Error(), "knows 1 to 2") || errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}
