package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrEmptySegment is returned for a segment whose log holds no batch: there is
// nothing to copy.
var ErrEmptySegment = errors.New("segment holds no record batch")

// Names of files in a partition directory.
const (
	checkpointName = "leader-epoch-checkpoint"
	metadataName   = "partition.metadata"
	logSuffix      = ".log"
	indexSuffix    = ".index"
	offsetDigits   = 20
)

// maxMetadataSize bounds partition.metadata, two short lines.
const maxMetadataSize = 4 << 10

// Dir is a Kafka partition directory, such as orders-0. Its methods read the
// directory anew each time and may be called concurrently.
type Dir struct {
	Path string

	// TopicID is the topic's id. Zero takes it from the directory's
	// partition.metadata; another id than there is an error.
	TopicID UUID
}

// Partition returns the partition that the directory belongs to, by its name,
// "<topic>-<number>", and its topic id.
func (d Dir) Partition() (Partition, error) {
	abs, err := filepath.Abs(d.Path)
	if err != nil {
		return Partition{}, fmt.Errorf("partition directory %s: %w", d.Path, err)
	}
	if err := d.stat(); err != nil {
		return Partition{}, err
	}
	p, err := parsePartitionName(filepath.Base(abs))
	if err != nil {
		return Partition{}, fmt.Errorf("%s is no partition directory: %w", d.Path, err)
	}
	p.TopicID, err = d.topicID()
	if err != nil {
		return Partition{}, err
	}
	return p, p.Validate()
}

// parsePartitionName parses "<topic>-<number>". The topic may contain '-'.
func parsePartitionName(name string) (Partition, error) {
	for _, suffix := range []string{"-delete", "-future", "-stray"} {
		if strings.HasSuffix(name, suffix) {
			return Partition{}, fmt.Errorf("%q is one that the broker has put aside (%s)", clip(name), suffix)
		}
	}
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return Partition{}, fmt.Errorf("%q is not named <topic>-<number>", clip(name))
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != name[i+1:] {
		return Partition{}, fmt.Errorf("%q is not named <topic>-<number>", clip(name))
	}
	if err := ValidateTopic(name[:i]); err != nil {
		return Partition{}, err
	}
	return Partition{Topic: name[:i], Number: int32(n)}, nil
}

func (d Dir) stat() error {
	fi, err := os.Stat(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("partition directory %s: %w", d.Path, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("partition directory: %w", err)
	case !fi.IsDir():
		return fmt.Errorf("%s is a file; give the partition directory it lies in", d.Path)
	}
	return nil
}

// topicID returns d.TopicID or, if that is zero, the one in partition.metadata.
func (d Dir) topicID() (UUID, error) {
	path := filepath.Join(d.Path, metadataName)
	id, err := readTopicID(path)
	switch {
	case err == nil && !d.TopicID.IsZero() && id != d.TopicID:
		return UUID{}, fmt.Errorf("%s says topic id %v, given was %v: give the directory's own id, or none", path, id, d.TopicID)
	case !d.TopicID.IsZero():
		return d.TopicID, nil
	case errors.Is(err, fs.ErrNotExist):
		return UUID{}, fmt.Errorf("%s is missing: give the topic's id", path)
	case err != nil:
		return UUID{}, fmt.Errorf("topic id: %w: repair the file or give the topic's id", err)
	}
	return id, nil
}

// readTopicID parses a partition.metadata file: lines "version: 0" and
// "topic_id: <id>".
func readTopicID(path string) (UUID, error) {
	b, err := readBounded(path, maxMetadataSize)
	if err != nil {
		return UUID{}, err
	}
	var id UUID
	for line := range bytes.Lines(b) {
		key, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "version":
			if value != "0" {
				return UUID{}, fmt.Errorf("%s has version %q, not 0", path, clip(value))
			}
		case "topic_id":
			if id, err = ParseUUID(value); err != nil {
				return UUID{}, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if id.IsZero() {
		return UUID{}, fmt.Errorf("%s has no topic_id", path)
	}
	return id, nil
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	if fi, err := os.Stat(path); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return b, err
}

// Segments returns the base offsets of the directory's segments, ascending. The
// last is the active one, to which the broker still writes. What the broker is
// about to remove or to swap in (.deleted, .cleaned, .swap, .tmp) is no segment.
//
// A log that is missing behind the first, though the index that belongs to it is
// there, or that is no regular file, is an error: the segment before it would be
// taken to reach over its offsets.
func (d Dir) Segments() ([]int64, error) {
	if err := d.stat(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, fmt.Errorf("partition directory: %w", err)
	}
	var bases, indexed []int64
	for _, e := range entries {
		if base, ok := baseOf(e.Name(), logSuffix); ok {
			if e.Type()&(fs.ModeDir|fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) != 0 {
				return nil, fmt.Errorf("%s is not a regular file: it should be the log of a segment", filepath.Join(d.Path, e.Name()))
			}
			bases = append(bases, base)
		} else if base, ok := baseOf(e.Name(), indexSuffix); ok {
			indexed = append(indexed, base)
		}
	}
	slices.Sort(bases)
	for _, base := range indexed {
		if _, ok := slices.BinarySearch(bases, base); !ok && len(bases) > 0 && base > bases[0] {
			return nil, fmt.Errorf("%s is missing, but its index is there: bring it back from another replica, or start the broker, which removes an index that was left over",
				filepath.Join(d.Path, offsetName(base)+logSuffix))
		}
	}
	return bases, nil
}

// baseOf returns the base offset in the name of a segment's file.
func baseOf(name, suffix string) (base int64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != offsetDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return int64(n), err == nil
}

// Open opens the segment with base offset base. The end of a closed segment is
// where the next one begins; that of the active one is found by reading the
// headers of its batches. An empty log is ErrEmptySegment.
func (d Dir) Open(base int64) (*DirSource, error) {
	p, err := d.Partition()
	if err != nil {
		return nil, err
	}
	bases, err := d.Segments()
	if err != nil {
		return nil, err
	}
	i, ok := slices.BinarySearch(bases, base)
	if !ok {
		return nil, fmt.Errorf("no segment with base offset %d in %s: %s", base, d.Path, listBases(bases))
	}
	s := &DirSource{info: Info{Partition: p, StartOffset: base, EndOffset: -1}}
	if i+1 < len(bases) {
		s.info.EndOffset = bases[i+1] - 1
	}
	if err := s.open(d.Path); err != nil {
		_ = s.Close() // nothing was written
		return nil, err
	}
	return s, nil
}

// OpenDir opens a segment of a partition directory that has a
// partition.metadata.
func OpenDir(path string, base int64) (*DirSource, error) { return Dir{Path: path}.Open(base) }

// listBases says which segments there are.
func listBases(bases []int64) string {
	if len(bases) == 0 {
		return "it has no segments"
	}
	const most = 8
	s := "it has"
	for i, b := range bases[:min(len(bases), most)] {
		if i > 0 {
			s += ","
		}
		s += " " + strconv.FormatInt(b, 10)
	}
	if more := len(bases) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}
