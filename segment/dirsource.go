package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// DirSource is a Source made of the files in a partition directory.
type DirSource struct {
	info  Info
	files [numFileKinds]openFile

	closing sync.Once
	err     error // of closing
}

// openFile is a file and what it was when it was opened; f is nil if there was
// none.
type openFile struct {
	path string
	f    *os.File
	info fs.FileInfo
}

var _ Source = (*DirSource)(nil)

// open opens the files and completes s.info.
func (s *DirSource) open(dir string) error {
	base := filepath.Join(dir, offsetName(s.info.StartOffset))
	if err := s.openFile(Log, base+logSuffix); err != nil {
		return err
	}
	log := &s.files[Log]
	if log.info.Size() == 0 {
		return fmt.Errorf("%s: %w", log.path, ErrEmptySegment)
	}
	if s.info.EndOffset < 0 {
		last, err := lastOffset(log.f, log.info.Size())
		if err != nil {
			return fmt.Errorf("end of the active segment %s: %w", log.path, err)
		}
		s.info.EndOffset = last
	}
	for _, file := range []struct {
		kind     FileKind
		path     string
		optional bool
	}{
		{OffsetIndex, base + indexSuffix, false},
		{TimeIndex, base + ".timeindex", false},
		{TxnIndex, base + ".txnindex", true},
		// The state of producers behind the segment is named by the offset that follows it.
		{ProducerSnapshot, filepath.Join(dir, offsetName(s.info.EndOffset+1)+".snapshot"), true},
	} {
		err := s.openFile(file.kind, file.path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && file.optional:
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%v %s is missing: start the broker, it rebuilds indexes from the log: %w", file.kind, file.path, fs.ErrNotExist)
		case err != nil:
			return err
		}
	}
	s.info.ModTimestamp = log.info.ModTime().UnixMilli()
	return s.readEpochs(filepath.Join(dir, checkpointName))
}

// offsetName returns an offset as it begins the name of a file.
func offsetName(offset int64) string { return fmt.Sprintf("%0*d", offsetDigits, offset) }

func (s *DirSource) openFile(kind FileKind, path string) error {
	o := &s.files[kind]
	o.path = path
	// Looked at before it is opened: opening a pipe would wait for its writer.
	if fi, err := os.Stat(path); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	} else if !fi.Mode().IsRegular() {
		return fmt.Errorf("%v %s is not a regular file", kind, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	o.f = f
	if o.info, err = f.Stat(); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	if !o.info.Mode().IsRegular() {
		return fmt.Errorf("%v %s is not a regular file", kind, path)
	}
	return nil
}

// lastOffset returns the offset at which a log of the given size ends. It reads
// the headers of its batches and skips their records; it checks no CRC.
func lastOffset(r io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, 64<<10)
	var from, to int64 // what buf holds of the log
	last := int64(-1)
	for pos := int64(0); pos < size; {
		if need := min(size, pos+HeaderSize); need > to {
			n, err := r.ReadAt(buf[:min(int64(len(buf)), size-pos)], pos)
			if err != nil && (!errors.Is(err, io.EOF) || pos+int64(n) < need) {
				return 0, err
			}
			from, to = pos, pos+int64(n)
		}
		h, err := ParseHeader(buf[pos-from : to-from])
		switch {
		case errors.Is(err, ErrShort):
			return 0, truncated(pos, size-pos, h, false)
		case err != nil:
			return 0, at(err, pos)
		case int64(h.Size) > size-pos:
			return 0, truncated(pos, size-pos, h, true)
		}
		last = h.LastOffset
		pos += int64(h.Size)
	}
	return last, nil
}

// readEpochs sets s.info.Epochs from the partition's checkpoint.
//
// DeleteRecords moves the log's start into a segment and cuts the checkpoint
// there, so its first epoch may begin after the base offset. If the first batch
// was written in that very epoch, so was all between, and the epoch is taken
// back to the base offset.
func (s *DirSource) readEpochs(path string) error {
	b, err := readBounded(path, maxCheckpointSize)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing: start the broker, it rebuilds it from the log: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("leader epochs: %w", err)
	}
	epochs, err := ParseLineage(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	epochs = epochs.UpTo(s.info.EndOffset)
	if len(epochs) == 0 {
		return fmt.Errorf("%s has no leader epoch for offsets %d to %d: start the broker, it rebuilds it from the log",
			path, s.info.StartOffset, s.info.EndOffset)
	}
	if first := &epochs[0]; first.Start > s.info.StartOffset {
		head := make([]byte, HeaderSize)
		n, err := s.files[Log].f.ReadAt(head, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("first batch of %s: %w", s.files[Log].path, err)
		}
		h, err := ParseHeader(head[:n])
		if err != nil || h.LeaderEpoch != first.Epoch {
			return fmt.Errorf("%s begins at offset %d with epoch %d, but the segment begins at offset %d with a batch of epoch %d",
				path, first.Start, first.Epoch, s.info.StartOffset, h.LeaderEpoch)
		}
		first.Start = s.info.StartOffset
	}
	s.info.Epochs = epochs
	return nil
}

// Info implements Source.
func (s *DirSource) Info() Info { return s.info }

// File implements Source. The snapshot is missing where the broker has removed
// it.
func (s *DirSource) File(kind FileKind) (io.ReaderAt, int64) {
	if kind >= numFileKinds || s.files[kind].f == nil {
		return nil, 0
	}
	return s.files[kind].f, s.files[kind].info.Size()
}

// Unchanged implements Source. The error says which file changed and how.
func (s *DirSource) Unchanged() error {
	for kind := range numFileKinds {
		o := &s.files[kind]
		now, err := os.Stat(o.path)
		switch {
		case o.f == nil && errors.Is(err, fs.ErrNotExist):
		case o.f == nil && kind == ProducerSnapshot:
			// A broker that stops writes one; the segment is the same.
		case o.f == nil && err == nil:
			return fmt.Errorf("%v %s has appeared since the segment was opened: copy it again", kind, o.path)
		case err != nil:
			return fmt.Errorf("%v is no longer in place: %w", kind, err)
		case !os.SameFile(o.info, now):
			return fmt.Errorf("%v %s has been replaced by another file: copy the segment again", kind, o.path)
		case now.Size() != o.info.Size():
			return fmt.Errorf("%v %s has changed from %d to %d bytes: copy the segment again once it is closed", kind, o.path, o.info.Size(), now.Size())
		case !now.ModTime().Equal(o.info.ModTime()):
			return fmt.Errorf("%v %s was written to at %s: copy the segment again", kind, o.path, now.ModTime().UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}

// Close implements Source.
func (s *DirSource) Close() error {
	s.closing.Do(func() {
		for kind := range s.files {
			if f := s.files[kind].f; f != nil {
				s.err = errors.Join(s.err, f.Close())
			}
		}
	})
	return s.err
}
