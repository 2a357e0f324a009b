package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// Options of Open. The zero value is useful.
type Options struct {
	// ReadOnly opens an existing file without writing to it; Publish is
	// metadata.ErrReadOnly. Any number of processes may have a file open so, but
	// none while another has it open for writing, and the other way round.
	ReadOnly bool

	// SnapshotEvery, if positive, is how often a copy of the file is written beside
	// it, if it has changed: see Store.Snapshot. None is written read-only.
	SnapshotEvery time.Duration
	// SnapshotKeep is how many of those copies stay, the newest; 0 is 3.
	SnapshotKeep int

	// Now is the clock by which segments that have ended are forgotten, and after
	// which snapshots are named; nil is time.Now.
	Now    func() time.Time
	Logger *slog.Logger // nil is silent

	// For tests.
	maxSize int                // of the file in bytes, 0: no limit
	syncDir func(string) error // nil is syncDir
}

// lockTimeout is how long Open waits for another process to let go of the file:
// long enough for one that is closing it.
const lockTimeout = 500 * time.Millisecond

// minFileSize is the size of bbolt's two headers with the smallest pages in use.
const minFileSize = 2 * 4096

// The names of the buckets and of what is in the first one. See doc.go.
const (
	fileBucket       = "segtier"
	partitionsBucket = "partitions"
	segmentsBucket   = "segments"
	endedBucket      = "ended"
	formatKey        = "format"
	idKey            = "id"
)

// Open opens the file at path, and creates it if it is not there and o is not
// ReadOnly. Its directory must exist. It reads the whole file; errors are
// metadata.ErrLocked if another process, or this one, has it open, metadata.ErrCorrupt if it is
// damaged or no metadata file, fs.ErrNotExist.
func Open(path string, o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("metadata file %s: %w", path, err)
	}
	s, err := open(path, o)
	if err != nil {
		return nil, fmt.Errorf("metadata file %s: %w", path, err)
	}
	o.Logger.Info("metadata file opened", "path", path, "id", s.id, "partitions", len(s.mu.partitions), "readOnly", o.ReadOnly)
	return s, nil
}

// validate says what is wrong with o and fills in what was left out.
func (o *Options) validate() error {
	if o.SnapshotEvery < 0 || o.SnapshotKeep < 0 {
		return fmt.Errorf("options: snapshots every %v, %d kept", o.SnapshotEvery, o.SnapshotKeep)
	}
	if o.SnapshotKeep == 0 {
		o.SnapshotKeep = defaultSnapshotKeep
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.syncDir == nil {
		o.syncDir = syncDir
	}
	return nil
}

func open(path string, o Options) (*Store, error) {
	if err := prepare(path, o); err != nil {
		return nil, err
	}
	s := &Store{path: path, o: o, log: o.Logger, writing: make(chan struct{}, 1), commit: (*bolt.Tx).Commit}
	s.mu.partitions = make(map[partitionKey]*partition)
	s.mu.watchers = make(map[partitionKey]chan struct{})
	if err := s.openDB(o); err != nil {
		return nil, err
	}
	if err := guard(func() error { return errors.Join(s.upgrade(), s.load()) }); err != nil {
		_ = s.closeDB()
		return nil, err
	}
	s.startSnapshots()
	return s, nil
}

// prepare makes sure that there is a file, and that it will still be there after
// a crash.
func prepare(path string, o Options) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.ReadOnly:
		return fmt.Errorf("cannot be opened read-only before something was copied: %w", fs.ErrNotExist)
	case errors.Is(err, fs.ErrNotExist):
		if err := create(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot be created, its directory must be there before: %w", err)
		} else if err != nil {
			return fmt.Errorf("cannot be created: %w", err)
		}
		o.Logger.Info("metadata file created", "path", path)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("is not a regular file: %w", metadata.ErrCorrupt)
	case info.Size() < minFileSize:
		// An empty one bbolt would take for new, and everything would be lost.
		return fmt.Errorf("has only %d bytes: restore it from a backup: %w", info.Size(), metadata.ErrCorrupt)
	}
	if o.ReadOnly {
		return nil
	}
	// Always: whoever created the file may have crashed before this.
	return o.syncDir(filepath.Dir(path))
}

// create makes the file under another name and links it to its place when it is
// complete. If another process was faster its file stays.
func create(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	tmp := f.Name()
	defer func() { _ = os.Remove(tmp) }() // linked to its place, or of no use
	if err := f.Close(); err != nil {
		return err
	}
	db, err := bolt.Open(tmp, 0o600, &bolt.Options{Timeout: lockTimeout})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		file, err := tx.CreateBucket([]byte(fileBucket))
		if err != nil {
			return err
		}
		if err := file.Put([]byte(formatKey), binary.BigEndian.AppendUint32(nil, formatVersion)); err != nil {
			return err
		}
		if err := file.Put([]byte(idKey), []byte(segment.NewUUID().String())); err != nil {
			return err
		}
		for _, name := range []string{partitionsBucket, segmentsBucket, endedBucket} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	// Link, not rename: it does not replace a file that is there by now, in use.
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // directories cannot be synced there
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openDB sets s.db and s.file.
func (s *Store) openDB(o Options) error {
	err := guard(func() (err error) {
		s.db, err = bolt.Open(s.path, 0o600, &bolt.Options{
			Timeout:  lockTimeout,
			ReadOnly: o.ReadOnly,
			MaxSize:  o.maxSize,
			OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag&^os.O_CREATE, perm)
				s.file = f
				return f, err
			},
		})
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: stop that process, close it here, or use another file", metadata.ErrLocked)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%w: not a metadata file, or its beginning is destroyed (%w)", metadata.ErrCorrupt, err)
	case errors.Is(err, metadata.ErrCorrupt):
		_ = s.abandon()
	}
	return err
}

// guard calls f, which reads the file through the memory that bbolt maps, and
// makes an error of what a damaged file leads to there: a panic, or a fault where
// the file is shorter than it says.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", metadata.ErrCorrupt, r)
		}
	}()
	return f()
}
