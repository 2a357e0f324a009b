package embedded

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
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
	formatKey        = "format"
	idKey            = "id"
)

// Open opens the file at path, and creates it if it is not there and o is not
// ReadOnly. Its directory must exist. It reads the whole file; errors are
// metadata.ErrLocked if another process has it open, metadata.ErrCorrupt if it is
// damaged or no metadata file, fs.ErrNotExist.
func Open(path string, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := open(path, o)
	if err != nil {
		return nil, fmt.Errorf("metadata file %s: %w", path, err)
	}
	o.Logger.Info("metadata file opened", "path", path, "id", s.id, "partitions", len(s.mu.partitions), "readOnly", o.ReadOnly)
	return s, nil
}

func open(path string, o Options) (*Store, error) {
	if err := prepare(path, o); err != nil {
		return nil, err
	}
	s := &Store{path: path, log: o.Logger, readOnly: o.ReadOnly, writing: make(chan struct{}, 1), commit: (*bolt.Tx).Commit}
	s.mu.partitions = make(map[partitionKey]*partition)
	s.mu.watchers = make(map[partitionKey]chan struct{})
	if err := s.openDB(o); err != nil {
		return nil, err
	}
	if err := guard(s.load); err != nil {
		_ = s.closeDB()
		return nil, err
	}
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
		if err := create(path); err != nil {
			return fmt.Errorf("cannot be created: %w", err)
		}
		o.Logger.Info("metadata file created", "path", path)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("is not a regular file: %w", metadata.ErrCorrupt)
	case info.Size() < minFileSize:
		// An empty one bbolt would take for new, and everything would be lost.
		return fmt.Errorf("has only %d bytes: restore it, or remove it to begin anew: %w", info.Size(), metadata.ErrCorrupt)
	}
	if o.ReadOnly {
		return nil
	}
	// Always: whoever created the file may have crashed before this.
	sync := o.syncDir
	if sync == nil {
		sync = syncDir
	}
	return sync(filepath.Dir(path))
}

// create makes the file under another name and links it to its place when it is
// complete. If another process was faster its file stays.
func create(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	tmp := f.Name()
	defer func() { _ = os.Remove(tmp) }()
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
		if _, err := tx.CreateBucket([]byte(partitionsBucket)); err != nil {
			return err
		}
		_, err = tx.CreateBucket([]byte(segmentsBucket))
		return err
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
		return fmt.Errorf("%w: stop that process, or use another file", metadata.ErrLocked)
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

// load fills s from the file. It needs no more memory than what it leaves behind
// and the segments of one partition.
func (s *Store) load() error {
	return s.db.View(func(tx *bolt.Tx) error {
		if info, err := s.file.Stat(); err != nil {
			return err
		} else if info.Size() < tx.Size() {
			return corrupt("file is cut short: %d bytes of %d", info.Size(), tx.Size())
		}
		if err := s.loadFile(tx); err != nil {
			return err
		}
		partitions, segments := tx.Bucket([]byte(partitionsBucket)), tx.Bucket([]byte(segmentsBucket))
		if partitions == nil || segments == nil {
			return corrupt("buckets are missing")
		}
		c := segments.Cursor()
		key, value := c.First()
		err := partitions.ForEach(func(k, v []byte) error {
			rec, err := decodePartition(k, v)
			if err != nil {
				return fmt.Errorf("partition record %x: %w", k, err)
			}
			var recs []segmentRecord
			for ; bytes.HasPrefix(key, k); key, value = c.Next() {
				r, err := decodeSegment(rec.partition, key, value)
				if err != nil {
					return fmt.Errorf("segment record %x of %s: %w", key, rec.partition, err)
				}
				if r.order > rec.finished {
					return corrupt("segment record %x of %s: FINISHED event %d of %d", key, rec.partition, r.order, rec.finished)
				}
				recs = append(recs, r)
			}
			p := &partition{name: rec.partition}
			p.view.Store(viewOf(rec.partition, recs))
			s.mu.partitions[partitionKey(k)] = p
			return nil
		})
		if err == nil && key != nil {
			err = corrupt("segment record %x belongs to no partition", key)
		}
		return err
	})
}

// loadFile checks the format and sets the ID.
func (s *Store) loadFile(tx *bolt.Tx) error {
	file := tx.Bucket([]byte(fileBucket))
	if file == nil {
		return corrupt("a bbolt file of another program")
	}
	format := file.Get([]byte(formatKey))
	if len(format) != 4 {
		return corrupt("format version of %d bytes", len(format))
	}
	if v := binary.BigEndian.Uint32(format); v != formatVersion {
		return fmt.Errorf("has format version %d, this program knows %d: open it with the release that wrote it, or a newer one", v, formatVersion)
	}
	id, err := segment.ParseUUID(string(file.Get([]byte(idKey))))
	if err != nil {
		return corrupt("store id: %v", err)
	}
	s.id = id.String()
	return nil
}

// viewOf rebuilds the View that the events led to. What was FINISHED and is not
// any more is told twice: it counts for the highest offsets of its epochs.
func viewOf(p segment.Partition, recs []segmentRecord) *metadata.View {
	slices.SortFunc(recs, func(a, b segmentRecord) int { return cmp.Compare(a.order, b.order) })
	segs := make([]*metadata.Segment, 0, len(recs))
	for _, r := range recs {
		if r.order > 0 && r.seg.State != metadata.CopySegmentFinished {
			was := *r.seg
			was.State = metadata.CopySegmentFinished
			segs = append(segs, &was)
		}
		segs = append(segs, r.seg)
	}
	return metadata.NewView(p, segs...)
}
