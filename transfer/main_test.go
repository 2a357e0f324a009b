package transfer

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is what *testing.T, *testing.B and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// drawSegment makes a random segment and a random, small layout for it.
func drawSegment(t *rapid.T) (*testseg.Segment, ScanOptions) {
	log := testseg.Random(rapid.Uint64().Draw(t, "seed"), testseg.Options{
		Start: rapid.Int64Range(0, 1<<33).Draw(t, "start"), Segments: 2,
		Batches: rapid.IntRange(1, 12).Draw(t, "batches"), Interval: rapid.IntRange(1, 3000).Draw(t, "interval"),
	})
	return log.Segments[rapid.IntRange(0, 1).Draw(t, "segment")], ScanOptions{
		ChunkSize: rapid.Int64Range(1, 9000).Draw(t, "chunk size"),
		PartSize:  rapid.Int64Range(100, 9000).Draw(t, "part size"),
	}
}

// someSegment is a segment with every kind of file. Each caller gets the same
// bytes: clone before changing them.
func someSegment(t fataler) *testseg.Segment {
	t.Helper()
	s := *findSegment()
	return &s
}

var findSegment = sync.OnceValue(func() *testseg.Segment {
	for seed := uint64(1); ; seed++ {
		s := testseg.Random(seed, testseg.Options{Segments: 2, Batches: 30}).Segments[1]
		if len(s.Aborted) > 0 && len(s.Offset) > 0 && len(s.Log) > 30_000 && len(s.Snapshot) > 100 {
			return s
		}
	}
})

var layout = ScanOptions{ChunkSize: 4096, PartSize: 6000}

func scan(t fataler, src segment.Source, o ScanOptions) *Plan {
	t.Helper()
	p, err := Scan(context.Background(), src, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// record is the STARTED record of a plan, as lifecycle makes it.
func record(p *Plan) object.Header {
	h := p.header()
	h.SegmentID = segment.UUID{0x42, 15: 0x17}
	h.BrokerID, h.EventTimestamp = 3, 1_700_000_000_000
	return h
}

func newEndpoint(t testing.TB, store objstore.Store) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.New(store, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	})
	return ep
}

// stored returns an object's bytes as the store has them.
func stored(t fataler, store objstore.Store, key string) []byte {
	t.Helper()
	info, err := store.Stat(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	_, body, err := store.Get(context.Background(), key, 0, info.Size, objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// put creates an object with any bytes.
func put(t fataler, store objstore.Store, key string, b []byte) {
	t.Helper()
	sum := checksum.Sum{Len: int64(len(b)), CRC32C: checksum.CRC32C(b)}
	_, err := store.Upload(context.Background(), objstore.UploadRequest{
		Key: key, Body: bytes.NewReader(b), Size: sum.Len, PartSize: sum.Len, PartSums: []checksum.Sum{sum}, Token: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
}

// concat is the object of a segment as docs/format.md says: its files, and then
// the tail.
func concat(s *testseg.Segment, tail []byte) []byte {
	return bytes.Join([][]byte{s.Log, s.Offset, s.Time, s.Snapshot, tail}, nil)
}

// faultySource is a segment on which reads of a file fail, change or stop.
type faultySource struct {
	*testseg.Segment
	kind segment.FileKind
	// read stands in front of every ReadAt of that file; n counts from 1.
	read  func(n int64, r io.ReaderAt, p []byte, off int64) (int, error)
	reads atomic.Int64
	size  int64 // if > 0, what File says
}

func (s *faultySource) File(k segment.FileKind) (io.ReaderAt, int64) {
	r, size := s.Segment.File(k)
	if k != s.kind || r == nil {
		return r, size
	}
	if s.size > 0 {
		size = s.size
	}
	return readerAtFunc(func(p []byte, off int64) (int, error) {
		return s.read(s.reads.Add(1), r, p, off)
	}), size
}

type readerAtFunc func(p []byte, off int64) (int, error)

func (f readerAtFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

var _ objstore.Store = (*storetest.Faulty)(nil)
