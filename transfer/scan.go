package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// DefaultPartSize is the length of a part in bytes. S3 wants at least 5 MiB and
// at most 10,000 parts; 16 MiB parts bring a 1 GiB segment up with 64 requests.
const DefaultPartSize = 16 << 20

const (
	// blockSize is how much of a file is read at a time. Larger blocks gain
	// nothing: they no longer fit the cache that both sums go through.
	blockSize = 256 << 10

	// maxFileSize is the greatest size of any file of a segment: Kafka's
	// positions are 32-bit.
	maxFileSize = 1<<31 - 1

	// maxSnapshotSize bounds the producer snapshot, which is checked in memory:
	// 1.4 million producers.
	maxSnapshotSize = 64 << 20

	offsetEntrySize = 8 // bytes
	timeEntrySize   = 12
	txnEntrySize    = 34
)

// ScanOptions is the layout of the object to be. The zero value is the default.
type ScanOptions struct {
	// ChunkSize is the length in bytes of a chunk, the unit of checksum and of
	// cache; at most object.MaxChunkSize. 0 is object.DefaultChunkSize.
	ChunkSize int64
	// PartSize is the length in bytes of an uploaded part. 0 is DefaultPartSize.
	PartSize int64
}

// Validate reports what is wrong with the options.
func (o ScanOptions) Validate() error {
	_, err := o.validate()
	return err
}

func (o ScanOptions) validate() (ScanOptions, error) {
	if o.ChunkSize == 0 {
		o.ChunkSize = object.DefaultChunkSize
	}
	if o.PartSize == 0 {
		o.PartSize = DefaultPartSize
	}
	if o.ChunkSize < 0 || o.ChunkSize > object.MaxChunkSize {
		return o, fmt.Errorf("transfer: ChunkSize is %d bytes, allowed are 1 to %d, 0 is the default", o.ChunkSize, object.MaxChunkSize)
	}
	if o.PartSize < 0 {
		return o, fmt.Errorf("transfer: PartSize is %d bytes, want 0 (default) or more", o.PartSize)
	}
	return o, nil
}

// Scan reads every file of a segment once, front to back, and returns the plan
// of its object: the sums of chunks, parts and files, and the chunk table. It
// checks every batch's CRC, that the batches lie in the segment's range, and
// that the indexes agree with the log. What it refuses is a *ScanError.
func Scan(ctx context.Context, src segment.Source, o ScanOptions) (*Plan, error) {
	if src == nil {
		return nil, errors.New("transfer: Scan without a source")
	}
	o, err := o.validate()
	if err != nil {
		return nil, err
	}
	s := &scanner{ctx: ctx, src: src, info: src.Info(), o: o}
	if err := s.open(); err != nil {
		return nil, err
	}
	if err := s.readLog(); err != nil {
		return nil, err
	}
	if err := s.finishIndexes(); err != nil {
		return nil, err
	}
	if err := s.readSnapshot(); err != nil {
		return nil, err
	}
	if err := src.Unchanged(); err != nil {
		return nil, s.fail(segment.Log, -1, fmt.Errorf("%w: %w", ErrSourceChanged, err))
	}
	return s.plan()
}

// scanner is one Scan under way.
type scanner struct {
	ctx  context.Context // of the one call of Scan that it lives in
	src  segment.Source
	info segment.Info
	o    ScanOptions

	used    [4]int64 // bytes to store of log, offset index, time index, snapshot
	txn     []byte
	offset  *indexFile
	time    *indexFile
	checker *index.Checker

	logSums  *checksum.Cutter // at chunk and part borders
	builder  *tableBuilder
	snapshot pieces
}

func (s *scanner) fail(f segment.FileKind, pos int64, err error) error {
	return &ScanError{Partition: s.info.Partition, StartOffset: s.info.StartOffset, File: f, Pos: pos, Err: err}
}

// open looks at what is known without reading: the segment's range, its
// history, and how long each file is.
func (s *scanner) open() error {
	info := &s.info
	if err := info.Partition.Validate(); err != nil {
		return err
	}
	if info.StartOffset < 0 || info.EndOffset < info.StartOffset {
		return s.fail(segment.Log, -1, fmt.Errorf("%w: offsets %d to %d", ErrCorruptSegment, info.StartOffset, info.EndOffset))
	}
	if err := info.Epochs.Validate(); err != nil {
		return s.fail(segment.Log, -1, fmt.Errorf("%w: %w", ErrCorruptSegment, err))
	}
	if n := len(info.Epochs); n == 0 || info.Epochs[0].Start > info.StartOffset || info.Epochs[n-1].Start > info.EndOffset {
		return s.fail(segment.Log, -1, fmt.Errorf("%w: leader epochs %v are no history up to offset %d", ErrCorruptSegment, info.Epochs, info.EndOffset))
	}
	log, size := s.src.File(segment.Log)
	if log == nil || size == 0 {
		return s.fail(segment.Log, -1, ErrEmpty)
	}
	for _, f := range []segment.FileKind{segment.Log, segment.OffsetIndex, segment.TimeIndex, segment.ProducerSnapshot} {
		if err := s.measure(f); err != nil {
			return err
		}
	}
	if err := s.readTxn(); err != nil {
		return err
	}
	// Where each file will lie decides where its part borders are.
	s.offset = s.indexFile(segment.OffsetIndex, s.used[segment.Log])
	s.time = s.indexFile(segment.TimeIndex, s.used[segment.Log]+s.used[segment.OffsetIndex])
	s.snapshot = pieces{size: s.o.PartSize, start: s.used[segment.Log] + s.used[segment.OffsetIndex] + s.used[segment.TimeIndex]}
	s.checker = index.NewChecker(info.StartOffset, info.EndOffset, s.offset.reader(), s.time.reader(), bytesReader(s.txn))
	s.logSums = checksum.NewCutter(s.o.ChunkSize, s.o.PartSize)
	s.builder = newTableBuilder(info.StartOffset, info.EndOffset, s.used[segment.Log], s.o.ChunkSize)
	return nil
}

// measure finds how much of a file is to be stored.
func (s *scanner) measure(f segment.FileKind) error {
	file, size := s.src.File(f)
	if size < 0 || size > maxFileSize || f == segment.ProducerSnapshot && size > maxSnapshotSize {
		return s.fail(f, -1, fmt.Errorf("%w: %d bytes", ErrTooLarge, size))
	}
	s.used[f] = size
	var entry int64
	switch f {
	case segment.OffsetIndex:
		entry = offsetEntrySize
	case segment.TimeIndex:
		entry = timeEntrySize
	default:
		return nil
	}
	if size <= entry || size%entry != 0 {
		return nil // one entry of zeros is legal; what is no index the checker refuses
	}
	end, err := s.lastNonZero(f, file, size)
	if err != nil {
		return err
	}
	s.used[f] = (end + entry - 1) / entry * entry
	return nil
}

// lastNonZero returns the position behind the last byte of a file that is not
// zero: the active segment's indexes are preallocated.
func (s *scanner) lastNonZero(f segment.FileKind, file io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, min(size, blockSize/4))
	for end := size; end > 0; {
		n := min(end, int64(len(buf)))
		if err := s.readAt(f, file, buf[:n], end-n); err != nil {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] != 0 {
				return end - n + i + 1, nil
			}
		}
		end -= n
	}
	return 0, nil
}

// readAt reads all of p, or fails: the files are as long as Source said.
func (s *scanner) readAt(f segment.FileKind, file io.ReaderAt, p []byte, off int64) error {
	if err := s.ctx.Err(); err != nil {
		return s.fail(f, off, err)
	}
	n, err := file.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return s.fail(f, off+int64(n), fmt.Errorf("%w: the file ends here", ErrSourceChanged))
	}
	return s.fail(f, off+int64(n), err)
}

// readTxn reads the txn index, which becomes part of the tail.
func (s *scanner) readTxn() error {
	file, size := s.src.File(segment.TxnIndex)
	if file == nil || size == 0 {
		return nil
	}
	if size < 0 || size > object.MaxTailSize/2 {
		return s.fail(segment.TxnIndex, -1, fmt.Errorf("%w: %d bytes", ErrTooLarge, size))
	}
	s.txn = make([]byte, size)
	if err := s.readAt(segment.TxnIndex, file, s.txn, 0); err != nil {
		return err
	}
	entries, err := index.ParseTxn(s.txn, s.info.StartOffset)
	if err != nil {
		return s.walkError(err)
	}
	s.txn = s.txn[:entries.Len()*txnEntrySize]
	return nil
}

// readLog is the one pass over the log: both sums, every batch, and the indexes
// in step with it.
func (s *scanner) readLog() error {
	file, _ := s.src.File(segment.Log)
	walker := segment.Walker{Batch: func(pos int64, h segment.Header) error {
		if err := s.builder.batch(pos, h); err != nil {
			return err
		}
		if err := s.epochOf(pos, h); err != nil {
			return err
		}
		return s.checker.Batch(pos, h)
	}}
	size := s.used[segment.Log]
	buf := make([]byte, min(size, blockSize))
	for off := int64(0); off < size; {
		p := buf[:min(size-off, int64(len(buf)))]
		if err := s.readAt(segment.Log, file, p, off); err != nil {
			return err
		}
		_, _ = s.logSums.Write(p) // never fails
		if _, err := walker.Write(p); err != nil {
			return s.walkError(err)
		}
		off += int64(len(p))
	}
	if err := walker.Close(); err != nil {
		return s.walkError(err)
	}
	return nil
}

// epochOf holds a batch against the history: a wrong one would hide the segment
// from every reader who follows the right one. Batches before magic 2 have none.
func (s *scanner) epochOf(pos int64, h segment.Header) error {
	if h.LeaderEpoch < 0 {
		return nil
	}
	if epoch, ok := s.info.Epochs.EpochFor(h.BaseOffset); !ok || epoch != h.LeaderEpoch {
		return &segment.BatchError{
			Pos: pos, Offset: h.BaseOffset,
			Reason: fmt.Sprintf("it was written in leader epoch %d, by the partition's leader epochs %v it should be %d", h.LeaderEpoch, s.info.Epochs, epoch),
		}
	}
	return nil
}

// walkError tells which file an error of the walk is about.
func (s *scanner) walkError(err error) error {
	var (
		inLog   *segment.BatchError
		inIndex *index.Error
		refused *ScanError
	)
	switch {
	case errors.As(err, &refused): // reading an index file failed
		return refused
	case errors.As(err, &inLog):
		return s.fail(segment.Log, inLog.Pos, fmt.Errorf("%w: %w", ErrCorruptSegment, err))
	case errors.As(err, &inIndex):
		return s.indexError(inIndex)
	}
	return s.fail(segment.Log, -1, err)
}

// indexError says where in an index file it is corrupt.
func (s *scanner) indexError(e *index.Error) error {
	pos := int64(-1)
	if e.Entry >= 0 {
		switch e.Kind {
		case segment.OffsetIndex:
			pos = e.Entry * offsetEntrySize
		case segment.TimeIndex:
			pos = e.Entry * timeEntrySize
		case segment.TxnIndex:
			pos = e.Entry * txnEntrySize
		default:
		}
	}
	return s.fail(e.Kind, pos, fmt.Errorf("%w: %w", ErrCorruptSegment, e))
}

// finishIndexes compares what remains of the indexes.
func (s *scanner) finishIndexes() error {
	if err := s.checker.Close(); err != nil {
		return s.walkError(err)
	}
	for _, f := range []*indexFile{s.offset, s.time} {
		if _, err := io.Copy(io.Discard, f); err != nil { // the checker reads to the end
			return s.walkError(err)
		}
	}
	return nil
}

// readSnapshot sums the producer snapshot and checks it.
func (s *scanner) readSnapshot() error {
	file, _ := s.src.File(segment.ProducerSnapshot)
	size := s.used[segment.ProducerSnapshot]
	if file == nil || size == 0 {
		return nil
	}
	b := make([]byte, size)
	if err := s.readAt(segment.ProducerSnapshot, file, b, 0); err != nil {
		return err
	}
	if _, err := index.ParseSnapshot(b); err != nil {
		return s.walkError(err)
	}
	_, _ = s.snapshot.Write(b) // never fails
	return nil
}

// plan puts the result together, and makes the tail once to see that all of it
// adds up.
func (s *scanner) plan() (*Plan, error) {
	p := &Plan{info: s.info, partSize: s.o.PartSize, txn: s.txn}
	p.table = s.builder.done(s.logSums.Pieces(0))
	p.maxTime, p.last = s.builder.maxTime, s.builder.next-1
	if p.maxTime < 0 {
		p.maxTime = s.info.ModTimestamp
	}
	log := pieces{size: s.o.PartSize, sums: s.logSums.Pieces(1), total: s.logSums.Total()}
	p.head = [4]checksum.Sum{log.total, s.offset.sums.total, s.time.sums.total, s.snapshot.total}
	p.parts = log.join(s.offset.sums).join(s.time.sums).join(s.snapshot)
	loc, _, err := p.seal(p.header())
	if err != nil {
		return nil, s.fail(segment.Log, -1, fmt.Errorf("%w: %w", ErrCorruptSegment, err))
	}
	p.size = loc.ObjectSize
	return p, nil
}

// indexFile reads an index file front to back and sums it on the way.
type indexFile struct {
	s    *scanner
	kind segment.FileKind
	file io.ReaderAt
	off  int64
	size int64
	sums pieces
}

func (s *scanner) indexFile(f segment.FileKind, start int64) *indexFile {
	file, _ := s.src.File(f)
	return &indexFile{s: s, kind: f, file: file, size: s.used[f], sums: pieces{size: s.o.PartSize, start: start}}
}

// Read implements io.Reader.
func (f *indexFile) Read(p []byte) (int, error) {
	if f.off == f.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), f.size-f.off)]
	if err := f.s.readAt(f.kind, f.file, p, f.off); err != nil {
		return 0, err
	}
	f.off += int64(len(p))
	return f.sums.Write(p)
}

// reader returns f for the checker, nil if the segment has no such file.
func (f *indexFile) reader() io.Reader {
	if f.file == nil {
		return nil
	}
	return f
}
