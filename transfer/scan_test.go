package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// bruteTable makes a chunk table by looking at everything for every chunk.
func bruteTable(s *testseg.Segment, size int64) object.Table {
	t := object.Table{ChunkSize: size}
	for start := int64(0); start < int64(len(s.Log)); start += size {
		b := s.Log[start:min(start+size, int64(len(s.Log)))]
		c := object.Chunk{Len: int32(len(b)), CRC32C: checksum.CRC32C(b), FirstBatch: -1, BaseOffset: -1, MaxTimestamp: -1}
		for _, batch := range slices.Backward(s.Batches) {
			if batch.Pos < start+size {
				c.MaxTimestamp = max(c.MaxTimestamp, batch.Header.MaxTimestamp)
			}
			if batch.Pos >= start && batch.Pos < start+size {
				c.FirstBatch, c.BaseOffset = batch.Pos, batch.Header.BaseOffset
			}
		}
		t.Chunks = append(t.Chunks, c)
	}
	return t
}

// brutePieces cuts b into pieces and sums each.
func brutePieces(b []byte, size int64) (sums []checksum.Sum) {
	for piece := range slices.Chunk(b, int(size)) {
		sums = append(sums, checksum.Sum{Len: int64(len(piece)), CRC32C: checksum.CRC32C(piece)})
	}
	return sums
}

func TestScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, o := drawSegment(t)
		p := scan(t, s, o)
		want := bruteTable(s, o.ChunkSize)
		if p.table.ChunkSize != want.ChunkSize || !slices.Equal(p.table.Chunks, want.Chunks) {
			t.Fatalf("table\n%+v, want\n%+v", p.table, want)
		}
		if got := brutePieces(concat(s, nil), o.PartSize); !slices.Equal(p.parts.sums, got) {
			t.Fatalf("part sums\n%+v, want\n%+v", p.parts.sums, got)
		}
		for i, b := range [][]byte{s.Log, s.Offset, s.Time, s.Snapshot} {
			if want := (checksum.Sum{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}); p.head[i] != want {
				t.Fatalf("%v: %+v, want %+v", segment.FileKind(i), p.head[i], want)
			}
		}
		if p.MaxTimestamp() != s.MaxTimestamp() || p.LogSize() != int64(len(s.Log)) || p.TxnIndexEmpty() != (len(s.Txn) == 0) {
			t.Fatalf("max timestamp %d, log size %d, txn index empty %t", p.MaxTimestamp(), p.LogSize(), p.TxnIndexEmpty())
		}
		tail, loc := sealed(t, p)
		if p.Size() != loc.ObjectSize || loc.ObjectSize != int64(len(concat(s, tail))) {
			t.Fatalf("size %d, location %d", p.Size(), loc.ObjectSize)
		}
		if !bytes.Equal(p.Fingerprint(), scan(t, s, o).Fingerprint()) {
			t.Fatal("another fingerprint for the same segment")
		}
	})
}

func sealed(t fataler, p *Plan) (tail []byte, loc object.Location) {
	t.Helper()
	loc, tail, err := p.seal(record(p))
	if err != nil {
		t.Fatal(err)
	}
	return tail, loc
}

// Defaults, and a segment whose batches carry no timestamps.
func TestScanDefaults(t *testing.T) {
	s := testseg.Build(testseg.Spec{
		Partition: testseg.DefaultPartition, Start: 7, End: 20, ModTime: 1234,
		Batches: []testseg.Batch{{BaseOffset: 7, Records: []segment.Record{{Offset: 7, Timestamp: -1, Value: []byte("x")}}}},
	})
	p := scan(t, s, ScanOptions{})
	if p.table.ChunkSize != object.DefaultChunkSize || p.partSize != DefaultPartSize {
		t.Errorf("chunks of %d, parts of %d bytes", p.table.ChunkSize, p.partSize)
	}
	if p.MaxTimestamp() != 1234 || p.table.Chunks[0].MaxTimestamp != -1 {
		t.Errorf("max timestamp %d, in the table %d", p.MaxTimestamp(), p.table.Chunks[0].MaxTimestamp)
	}
	for _, o := range []ScanOptions{{ChunkSize: -1}, {ChunkSize: object.MaxChunkSize + 1}, {PartSize: -1}} {
		if _, err := Scan(context.Background(), s, o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}

// Magic 0 and 1 are copied too.
func TestScanLegacy(t *testing.T) {
	s := someSegment(t)
	info := s.Info()
	log := testseg.AppendLegacy(nil, 0, segment.CodecNone, segment.Record{Offset: info.StartOffset, Timestamp: -1, Value: []byte("v0")})
	log = testseg.AppendLegacy(log, 1, segment.CodecGzip,
		segment.Record{Offset: info.StartOffset + 1, Timestamp: 5, Value: []byte("v1")},
		segment.Record{Offset: info.StartOffset + 2, Timestamp: 9, Value: []byte("v1")})
	legacy := testseg.Build(testseg.Spec{Partition: info.Partition, Start: info.StartOffset, End: info.EndOffset})
	legacy.Log = log
	p := scan(t, legacy, ScanOptions{ChunkSize: 40})
	if p.MaxTimestamp() != 9 {
		t.Errorf("max timestamp %d", p.MaxTimestamp())
	}
	if c := p.table.Chunks[0]; c.FirstBatch != 0 || c.BaseOffset != info.StartOffset {
		t.Errorf("first chunk %+v", c)
	}
	if i := p.table.ForOffset(info.StartOffset + 1); p.table.Chunks[i].BaseOffset > info.StartOffset+2 {
		t.Errorf("offset inside the wrapper leads behind it")
	}
}

// The active segment's indexes are preallocated with zeros.
func TestScanTrimsPreallocatedIndexes(t *testing.T) {
	s := someSegment(t)
	want := scan(t, s, layout)
	for _, more := range []int{1, 2, 30_000} {
		padded := *s
		padded.Offset = append(bytes.Clone(s.Offset), make([]byte, 8*more)...)
		padded.Time = append(bytes.Clone(s.Time), make([]byte, 12*more)...)
		padded.Txn = append(bytes.Clone(s.Txn), make([]byte, 20)...) // an entry that was cut short
		if got := scan(t, &padded, layout); !bytes.Equal(got.Fingerprint(), want.Fingerprint()) || got.Size() != want.Size() {
			t.Errorf("%d zero entries: another plan", more)
		}
	}
	// An index that was never written to.
	empty := *s
	empty.Offset, empty.Time = make([]byte, 8*1000), make([]byte, 12*1000)
	if got := scan(t, &empty, layout); got.head[1].Len != 0 || got.head[2].Len != 0 {
		t.Errorf("indexes of %d and %d bytes", got.head[1].Len, got.head[2].Len)
	}
	// One entry of zeros is an entry.
	one := testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Start: 0, Batches: []testseg.Batch{
		{Records: []segment.Record{{Timestamp: 0, Value: []byte("x")}}},
	}})
	one.Offset = make([]byte, 8)
	if got := scan(t, one, layout); got.head[1].Len != 8 || got.head[2].Len != 12 {
		t.Errorf("indexes of %d and %d bytes", got.head[1].Len, got.head[2].Len)
	}
}

// reseal makes the CRC of the magic 2 batch at pos right again.
func reseal(log []byte, b testseg.Placed) {
	testseg.Seal(log[:b.Pos+int64(b.Header.Size)], int(b.Pos))
}

func TestScanRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(s *testseg.Segment)
		file   segment.FileKind
		want   error
		text   string
	}{
		"empty":              {func(s *testseg.Segment) { s.Log = []byte{} }, segment.Log, ErrEmpty, ""},
		"no log":             {func(s *testseg.Segment) { s.Log = nil }, segment.Log, ErrEmpty, ""},
		"flipped bit":        {func(s *testseg.Segment) { s.Log[s.Batches[3].Pos+50] ^= 4 }, segment.Log, segment.ErrCorruptBatch, "CRC"},
		"truncated":          {func(s *testseg.Segment) { s.Log = s.Log[:len(s.Log)-1] }, segment.Log, segment.ErrCorruptBatch, "truncated"},
		"truncated header":   {func(s *testseg.Segment) { s.Log = s.Log[:s.Batches[5].Pos+10] }, segment.Log, segment.ErrCorruptBatch, "truncated"},
		"zeros at the end":   {func(s *testseg.Segment) { s.Log = append(s.Log, make([]byte, 100)...) }, segment.Log, segment.ErrCorruptBatch, ""},
		"no batch":           {func(s *testseg.Segment) { s.Log = []byte("not a log, but long enough to be the header of some batch") }, segment.Log, segment.ErrCorruptBatch, ""},
		"batch before start": {func(s *testseg.Segment) { binary.BigEndian.PutUint64(s.Log, uint64(s.Info().StartOffset-1)) }, segment.Log, segment.ErrCorruptBatch, "outside the segment"},
		"batch beyond end": {func(s *testseg.Segment) {
			last := s.Batches[len(s.Batches)-1]
			binary.BigEndian.PutUint64(s.Log[last.Pos:], uint64(s.Info().EndOffset+1))
		}, segment.Log, segment.ErrCorruptBatch, "outside the segment"},
		"batch again":           {func(s *testseg.Segment) { s.Log = append(s.Log, s.Log[s.Batches[len(s.Batches)-1].Pos:]...) }, segment.Log, segment.ErrCorruptBatch, ""},
		"index position":        {func(s *testseg.Segment) { s.Offset[7]++ }, segment.OffsetIndex, index.ErrCorrupt, ""},
		"index cut":             {func(s *testseg.Segment) { s.Offset = s.Offset[:len(s.Offset)-1] }, segment.OffsetIndex, index.ErrCorrupt, ""},
		"index beyond log":      {func(s *testseg.Segment) { s.Offset = append(s.Offset, 0x7f, 0, 0, 0, 0x7f, 0, 0, 0) }, segment.OffsetIndex, index.ErrCorrupt, ""},
		"index after zeros":     {func(s *testseg.Segment) { s.Offset = append(append(s.Offset, make([]byte, 16)...), s.Offset[:8]...) }, segment.OffsetIndex, index.ErrCorrupt, ""},
		"time index":            {func(s *testseg.Segment) { s.Time[7]++ }, segment.TimeIndex, index.ErrCorrupt, ""},
		"time index odd":        {func(s *testseg.Segment) { s.Time = append(s.Time, 0) }, segment.TimeIndex, index.ErrCorrupt, ""},
		"txn producer":          {func(s *testseg.Segment) { s.Txn[9]++ }, segment.TxnIndex, index.ErrCorrupt, ""},
		"txn version":           {func(s *testseg.Segment) { s.Txn[0] = 9 }, segment.TxnIndex, index.ErrCorrupt, ""},
		"txn of another":        {func(s *testseg.Segment) { s.Txn = append(s.Txn, s.Txn[:34]...) }, segment.TxnIndex, index.ErrCorrupt, ""},
		"snapshot":              {func(s *testseg.Segment) { s.Snapshot[20] ^= 1 }, segment.ProducerSnapshot, index.ErrCorrupt, ""},
		"snapshot short":        {func(s *testseg.Segment) { s.Snapshot = s.Snapshot[:3] }, segment.ProducerSnapshot, index.ErrCorrupt, ""},
		"changed while scanned": {func(s *testseg.Segment) { s.Changed = errors.New("other inode") }, segment.Log, ErrSourceChanged, "other inode"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := *someSegment(t)
			for _, b := range []*[]byte{&s.Log, &s.Offset, &s.Time, &s.Txn, &s.Snapshot} {
				*b = bytes.Clone(*b)
			}
			c.change(&s)
			p, err := Scan(context.Background(), &s, layout)
			var se *ScanError
			if p != nil || !errors.As(err, &se) {
				t.Fatalf("plan %v, error %v", p, err)
			}
			if se.File != c.file || se.Partition != s.Info().Partition || se.StartOffset != s.Info().StartOffset {
				t.Errorf("%+v, want it in the %v", se, c.file)
			}
			corrupt := c.want == segment.ErrCorruptBatch || c.want == index.ErrCorrupt
			if !errors.Is(err, c.want) || errors.Is(err, ErrCorruptSegment) != corrupt || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %q, want %q and %q in it", err, c.want, c.text)
			}
		})
	}
}

// Batches whose offsets overlap would mislead lookups by offset.
func TestScanRefusesOverlap(t *testing.T) {
	s := *someSegment(t)
	s.Log = bytes.Clone(s.Log)
	var at testseg.Placed
	for i, b := range s.Batches {
		if i > 0 && b.Header.LastOffset > b.Header.BaseOffset && b.Header.BaseOffset == s.Batches[i-1].Header.LastOffset+1 {
			at = b
			break
		}
	}
	// One lower, but as far as before: the last offsets still ascend.
	binary.BigEndian.PutUint64(s.Log[at.Pos:], uint64(at.Header.BaseOffset-1))
	binary.BigEndian.PutUint32(s.Log[at.Pos+23:], uint32(at.Header.LastOffset-at.Header.BaseOffset+1))
	reseal(s.Log, at)
	_, err := Scan(context.Background(), &s, layout)
	var se *ScanError
	if !errors.As(err, &se) || !errors.Is(err, ErrCorruptSegment) || se.Pos != at.Pos {
		t.Fatalf("batch at %d: %v", at.Pos, err)
	}
}

// infoSource is a source that says something else of itself.
type infoSource struct {
	*testseg.Segment
	info segment.Info
}

func (s infoSource) Info() segment.Info { return s.info }

func TestScanRefusesInfo(t *testing.T) {
	s := someSegment(t)
	for name, change := range map[string]func(*segment.Info){
		"partition":    func(i *segment.Info) { i.Partition.Topic = "../x" },
		"start":        func(i *segment.Info) { i.StartOffset = -1 },
		"end":          func(i *segment.Info) { i.EndOffset = i.StartOffset - 1 },
		"no epochs":    func(i *segment.Info) { i.Epochs = nil },
		"epochs order": func(i *segment.Info) { i.Epochs = segment.Lineage{{Epoch: 1, Start: 0}, {Epoch: 1, Start: 5}} },
		"epochs late":  func(i *segment.Info) { i.Epochs = segment.Lineage{{Epoch: 1, Start: i.StartOffset + 1}} },
		"epochs long": func(i *segment.Info) {
			i.Epochs = append(slices.Clone(i.Epochs), segment.EpochStart{Epoch: 99, Start: i.EndOffset + 1})
		},
	} {
		src := unread{infoSource{s, s.Info()}, t}
		change(&src.info)
		if _, err := Scan(context.Background(), src, layout); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// unread is a source of which nothing may be read.
type unread struct {
	infoSource
	t *testing.T
}

func (s unread) File(k segment.FileKind) (io.ReaderAt, int64) {
	_, size := s.infoSource.File(k)
	return readerAtFunc(func([]byte, int64) (int, error) {
		s.t.Errorf("the %v was read", k)
		return 0, io.EOF
	}), size
}

// Files that are too large are refused before they are read.
func TestScanRefusesLargeFiles(t *testing.T) {
	for kind, size := range map[segment.FileKind]int64{
		segment.Log: 1 << 31, segment.OffsetIndex: 1 << 31, segment.TimeIndex: 1 << 31,
		segment.ProducerSnapshot: maxSnapshotSize + 1, segment.TxnIndex: object.MaxTailSize,
	} {
		src := &faultySource{Segment: someSegment(t), kind: kind, size: size}
		src.read = func(int64, io.ReaderAt, []byte, int64) (int, error) {
			t.Errorf("%v: read", kind)
			return 0, io.EOF
		}
		_, err := Scan(context.Background(), src, layout)
		var se *ScanError
		if !errors.As(err, &se) || !errors.Is(err, ErrTooLarge) || se.File != kind {
			t.Errorf("%v of %d bytes: %v", kind, size, err)
		}
	}
}

// A file that fails, or ends early, at any byte of any file.
func TestScanReadErrors(t *testing.T) {
	disk := errors.New("disk on fire")
	s := someSegment(t)
	for kind := segment.Log; kind <= segment.TxnIndex; kind++ {
		_, size := s.File(kind)
		for _, at := range []int64{0, 1, size / 2, size - 1} {
			for _, fault := range []error{disk, io.EOF} {
				src := &faultySource{Segment: s, kind: kind}
				src.read = func(_ int64, r io.ReaderAt, p []byte, off int64) (int, error) {
					if off+int64(len(p)) <= at {
						return r.ReadAt(p, off)
					}
					if off >= at {
						return 0, fault
					}
					n, _ := r.ReadAt(p[:at-off], off)
					return n, fault
				}
				_, err := Scan(context.Background(), src, layout)
				want := fault
				if fault == io.EOF {
					want = ErrSourceChanged
				}
				var se *ScanError
				if !errors.As(err, &se) || se.File != kind || se.Pos != at || !errors.Is(err, want) {
					t.Errorf("%v failing at %d with %v: %v", kind, at, fault, err)
				}
			}
		}
	}
}

// A context that ends is heeded at the next block, in every file.
func TestScanCancel(t *testing.T) {
	for kind := segment.Log; kind <= segment.TxnIndex; kind++ {
		ctx, cancel := context.WithCancel(context.Background())
		src := &faultySource{Segment: someSegment(t), kind: kind}
		src.read = func(_ int64, r io.ReaderAt, p []byte, off int64) (int, error) {
			cancel()
			return r.ReadAt(p, off)
		}
		_, err := Scan(ctx, src, layout)
		// Nothing is read behind the snapshot: it may as well finish.
		if kind != segment.ProducerSnapshot && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled while reading the %v: %v", kind, err)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Scan(ctx, someSegment(t), layout); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

// Scan holds a bounded number of bytes, whatever the segment's size.
func TestScanMemory(t *testing.T) {
	s := largeSegment(8 << 20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	scan(t, s, ScanOptions{})
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated to scan 8 MiB", n)
	}
}

// largeSegment has a log of at least size bytes, in batches of some 16 KiB.
func largeSegment(size int) *testseg.Segment {
	spec := testseg.Spec{Partition: testseg.DefaultPartition}
	value := bytes.Repeat([]byte("sixteen bytes ok"), 64)
	for n, offset := 0, int64(0); n < size; {
		b := testseg.Batch{BaseOffset: offset}
		for range 16 {
			b.Records = append(b.Records, segment.Record{Offset: offset, Timestamp: 1_700_000_000_000 + offset, Value: value})
			offset++
		}
		spec.Batches = append(spec.Batches, b)
		n += 16 * len(value)
	}
	return testseg.Build(spec)
}

func BenchmarkScan(b *testing.B) {
	s := largeSegment(64 << 20)
	b.SetBytes(int64(len(s.Log)))
	b.ReportAllocs()
	for b.Loop() {
		scan(b, s, ScanOptions{})
	}
}
