package weather

import (
	"fmt"
	"io"
	"strings"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// Object is a virtual object: the log of a segment that is made when it is read,
// and its tail. It is immutable; its methods may be called concurrently.
type Object struct {
	key    string
	header object.Header
	loc    object.Location
	stream stream
	origin int64  // position in the partition's stream where the log begins
	tail   []byte // from loc.TailOffset on
}

// NewObject returns the virtual object with a key as [object.Key] spells it, or
// says why there is none.
func NewObject(key string) (*Object, error) { return new(maker).open(key) }

// open makes the object with a key.
func (m *maker) open(key string) (*Object, error) {
	p, start, id, err := object.ParseKey(key)
	if err != nil {
		return nil, err
	}
	l, ok := layoutOf(p.TopicID)
	if !ok {
		return nil, fmt.Errorf("%.200q: its topic id spells no layout", key)
	}
	index := start / l.offsets()
	if start%l.offsets() != 0 || index > 1<<32-1 || id != segmentID(p.TopicID, p.Number, uint32(index)) {
		return nil, fmt.Errorf("%.200q is no segment of its topic", key)
	}
	s, err := m.layout(l)
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", key, err)
	}
	return s.open(p, index)
}

// open makes segment number index of a partition.
func (s *shared) open(p segment.Partition, index int64) (*Object, error) {
	start := index * s.offsets()
	o := &Object{
		stream: newStream(s.template, p.Number),
		origin: index * s.logSize(),
	}
	last := (index+1)*int64(s.batches) - 1
	o.header = object.Header{
		Partition: p, SegmentID: segmentID(p.TopicID, p.Number, uint32(index)),
		StartOffset: start, EndOffset: start + s.offsets() - 1,
		MaxTimestamp: o.stream.maxTime(last), EventTimestamp: o.stream.maxTime(last) + 1000, BrokerID: 1,
		SizeBytes: s.logSize(), Epochs: segment.Lineage{{Epoch: 0, Start: start}}, TxnIndexEmpty: true,
	}
	o.key = o.header.Key()
	table, sum := s.table(o)
	var err error
	o.tail, err = object.AppendTail(nil, object.TailInput{
		Header: o.header, Table: table, Head: [4]checksum.Sum{sum}, Epochs: segment.Lineage{{Epoch: 0, Start: 0}},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.key, err)
	}
	if o.loc, err = object.LocationOf(o.tail); err != nil {
		return nil, fmt.Errorf("%s: %w", o.key, err)
	}
	return o, nil
}

// table makes the chunk table of o and the sum of its log.
func (s *shared) table(o *Object) (object.Table, checksum.Sum) {
	size, chunk, batch := s.logSize(), s.chunkSize(), int64(s.batchBytes)
	t := object.Table{ChunkSize: chunk, Chunks: make([]object.Chunk, (size+chunk-1)/chunk)}
	scratch := make([]byte, batch)
	var sum checksum.Sum
	maxTime := int64(-1)
	for i := range t.Chunks {
		from := int64(i) * chunk
		to := min(from+chunk, size)
		crc := o.stream.sumOf(o.origin+from, o.origin+to, s.shift, scratch)
		c := object.Chunk{Len: int32(to - from), CRC32C: crc, FirstBatch: -1, BaseOffset: -1}
		if first := (from + batch - 1) / batch; first*batch < to {
			g := o.origin / batch
			c.FirstBatch, c.BaseOffset = first*batch, o.stream.offset(g+first)
			maxTime = o.stream.maxTime(g + (to-1)/batch)
		}
		c.MaxTimestamp = maxTime
		t.Chunks[i] = c
		sum = sum.Append(checksum.Sum{Len: to - from, CRC32C: crc})
	}
	return t, sum
}

// Key returns the object's key, without a prefix.
func (o *Object) Key() string { return o.key }

// Size returns the object's bytes.
func (o *Object) Size() int64 { return o.loc.ObjectSize }

// Header returns what the object says of its segment.
func (o *Object) Header() object.Header { return o.header }

// Location returns what a FINISHED record says of the object.
func (o *Object) Location() object.Location { return o.loc }

// Tail parses the object's tail: sums, chunk table, sections.
func (o *Object) Tail() (*object.Tail, error) { return object.ParseTail(o.tail, o.loc) }

// ReadAt implements io.ReaderAt over the whole object.
func (o *Object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at %d", off)
	}
	if off >= o.Size() {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), o.Size()-off))
	o.read(p[:n], off, make([]byte, o.stream.size()))
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// read fills dst, which lies within the object, from off on. scratch holds a
// batch.
func (o *Object) read(dst []byte, off int64, scratch []byte) {
	if n := min(int64(len(dst)), o.loc.TailOffset-off); n > 0 {
		o.stream.fill(dst[:n], o.origin+off, scratch)
		dst, off = dst[n:], off+n
	}
	if len(dst) > 0 {
		copy(dst, o.tail[off-o.loc.TailOffset:])
	}
}

// virtualKey returns the part of an object's name that may be the key of a virtual
// object: its last four elements. What is before is a store's prefix.
func virtualKey(name string) string {
	at := len(name)
	for range 4 {
		at = strings.LastIndexByte(name[:max(at, 0)], '/')
		if at < 0 {
			return name
		}
	}
	return name[at+1:]
}
