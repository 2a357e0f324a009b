package weather

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// Spec is a tier of virtual objects: what a client must know to read them. The
// zero value of each field is a default. Two equal Specs are the same tier, on
// every server.
type Spec struct {
	Topic        string // "weather"
	Partitions   int    // 1
	Segments     int    // of each partition; 1
	SegmentBytes int64  // of a log, rounded down to whole batches; 64 MiB, at most 2 GiB
	BatchBytes   int    // 16 KiB; at least 72 and a few for each record
	Records      int    // of a batch, at most 255; 0 is one for each KiB, at least one
	ChunkBytes   int64  // a power of two; 1 MiB
	Seed         uint32 // of the bytes in values
}

// fill returns s with its defaults, and the layout.
func (s Spec) fill() (Spec, layout, error) {
	set := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	if s.Topic == "" {
		s.Topic = "weather"
	}
	set(&s.Partitions, 1)
	set(&s.Segments, 1)
	set(&s.BatchBytes, 16<<10)
	set(&s.Records, min(max(s.BatchBytes>>10, 1), math.MaxUint8))
	if s.SegmentBytes == 0 {
		s.SegmentBytes = 64 << 20
	}
	if s.ChunkBytes == 0 {
		s.ChunkBytes = 1 << 20
	}
	fail := func(format string, args ...any) (Spec, layout, error) {
		return s, layout{}, fmt.Errorf("weather: spec: "+format, args...)
	}
	log, ok := chunkLog(s.ChunkBytes)
	switch {
	case s.Partitions < 1 || s.Partitions > math.MaxInt32 || s.Segments < 1 || s.Segments > math.MaxInt32:
		return fail("%d partitions of %d segments", s.Partitions, s.Segments)
	case s.BatchBytes < 1 || s.BatchBytes > math.MaxInt32 || s.Records < 1 || s.Records > math.MaxUint8:
		return fail("batches of %d bytes with %d records, allowed are 1 to 255", s.BatchBytes, s.Records)
	case s.SegmentBytes < int64(s.BatchBytes) || s.SegmentBytes > maxSegment+1:
		return fail("segments of %d bytes, allowed are one batch to 2 GiB", s.SegmentBytes)
	case !ok:
		return fail("chunks of %d bytes: not a power of two", s.ChunkBytes)
	}
	batches := min(s.SegmentBytes, maxSegment) / int64(s.BatchBytes)
	l := layout{batchBytes: uint32(s.BatchBytes), batches: uint32(batches), chunkLog: log, records: uint8(s.Records), seed: s.Seed}
	if err := l.check(); err != nil {
		return fail("%w", err)
	}
	if err := segment.ValidateTopic(s.Topic); err != nil {
		return fail("%w", err)
	}
	return s, l, nil
}

// Tier is what a Spec describes. It is immutable; its methods may be called
// concurrently.
type Tier struct {
	spec   Spec
	shared *shared
}

// Tier checks s.
func (s Spec) Tier() (*Tier, error) {
	s, l, err := s.fill()
	if err != nil {
		return nil, err
	}
	shared, err := new(maker).layout(l)
	if err != nil {
		return nil, fmt.Errorf("weather: spec: %w", err)
	}
	return &Tier{spec: s, shared: shared}, nil
}

// Spec returns the spec with its defaults filled in.
func (t *Tier) Spec() Spec { return t.spec }

// Partition returns partition number n.
func (t *Tier) Partition(n int) segment.Partition {
	return segment.Partition{Topic: t.spec.Topic, TopicID: t.shared.id(), Number: int32(n)}
}

// SegmentBytes returns the bytes of each log.
func (t *Tier) SegmentBytes() int64 { return t.shared.logSize() }

// SegmentOffsets returns how many offsets each segment has.
func (t *Tier) SegmentOffsets() int64 { return t.shared.offsets() }

// PartitionBytes and EndOffset return the bytes of all logs of a partition, and
// the first offset behind them.
func (t *Tier) PartitionBytes() int64 { return int64(t.spec.Segments) * t.SegmentBytes() }

// EndOffset returns the first offset behind the last segment of a partition.
func (t *Tier) EndOffset() int64 { return int64(t.spec.Segments) * t.SegmentOffsets() }

// OffsetAt returns the base offset of the batch that has position pos of the
// partition's logs, laid end to end.
func (t *Tier) OffsetAt(pos int64) int64 {
	return pos / int64(t.shared.batchBytes) * int64(t.shared.records)
}

// PositionOf returns where, in the partition's logs laid end to end, the batch with
// offset begins.
func (t *Tier) PositionOf(offset int64) int64 {
	return offset / int64(t.shared.records) * int64(t.shared.batchBytes)
}

// TimeOf returns the timestamp of the record at offset, in ms.
func (t *Tier) TimeOf(offset int64) int64 {
	r := int64(t.shared.records)
	return baseTime + offset/r*t.shared.template.step + offset%r
}

// Object returns segment number index of partition number p.
func (t *Tier) Object(p, index int) (*Object, error) {
	return t.shared.open(t.Partition(p), int64(index))
}

// Record returns the metadata record of a segment, FINISHED. It costs as much as
// making the object's tail: some 10 ns for each batch.
func (t *Tier) Record(p, index int) (*metadata.Segment, error) {
	o, err := t.Object(p, index)
	if err != nil {
		return nil, err
	}
	h := o.header
	return &metadata.Segment{
		Partition: h.Partition, ID: h.SegmentID, StartOffset: h.StartOffset, EndOffset: h.EndOffset,
		MaxTimestamp: h.MaxTimestamp, EventTimestamp: h.EventTimestamp, BrokerID: h.BrokerID, LeaderEpoch: 0,
		SizeBytes: h.SizeBytes, Epochs: h.Epochs, Custom: o.loc.Append(nil),
		State: metadata.CopySegmentFinished, TxnIndexEmpty: h.TxnIndexEmpty,
	}, nil
}

// Records returns the records of partition number p, in order.
func (t *Tier) Records(p int) ([]*metadata.Segment, error) {
	segs := make([]*metadata.Segment, t.spec.Segments)
	for i := range segs {
		var err error
		if segs[i], err = t.Record(p, i); err != nil {
			return nil, err
		}
	}
	return segs, nil
}

// Metadata returns the records of all partitions as a store.
func (t *Tier) Metadata() (*Metadata, error) {
	m := NewMetadata()
	for p := range t.spec.Partitions {
		segs, err := t.Records(p)
		if err != nil {
			return nil, err
		}
		m.Set(t.Partition(p), segs...)
	}
	return m, nil
}

// Metadata is a metadata.Store of records that are simply there. Publish refuses:
// nothing here proves that an object is durable.
type Metadata struct {
	mu     sync.RWMutex
	views  map[segment.Partition]*metadata.View // guarded by mu
	closed bool                                 // guarded by mu
	never  chan struct{}                        // closed with the store
}

var _ metadata.Store = (*Metadata)(nil)

// NewMetadata returns an empty store.
func NewMetadata() *Metadata {
	return &Metadata{views: make(map[segment.Partition]*metadata.View), never: make(chan struct{})}
}

// Set makes segs the segments of p. Call it before others use the store: nobody
// who watches is told.
func (m *Metadata) Set(p segment.Partition, segs ...*metadata.Segment) {
	view := metadata.NewView(p, segs...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.views[p] = view
}

// ID implements metadata.Store.
func (m *Metadata) ID() string { return "weather" }

// Publish refuses with metadata.ErrReadOnly.
func (m *Metadata) Publish(_ context.Context, ev metadata.Event) error {
	if err := ev.Publishable(); err != nil {
		return err
	}
	return fmt.Errorf("weather: %w", metadata.ErrReadOnly)
}

// View implements metadata.Store.
func (m *Metadata) View(p segment.Partition) (*metadata.View, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, metadata.ErrClosed
	}
	if v := m.views[p]; v != nil {
		return v, nil
	}
	return metadata.NewView(p), nil
}

// Partitions implements metadata.Store.
func (m *Metadata) Partitions() ([]segment.Partition, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, metadata.ErrClosed
	}
	var ps []segment.Partition
	for p := range m.views {
		ps = append(ps, p)
	}
	return ps, nil
}

// Assign implements metadata.Store: all partitions are here.
func (m *Metadata) Assign(ctx context.Context, _, _ []segment.Partition) error { return ctx.Err() }

// Watch implements metadata.Store: nothing changes but by Close.
func (m *Metadata) Watch(segment.Partition) <-chan struct{} { return m.never }

// Close implements metadata.Store.
func (m *Metadata) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.never)
	}
	return nil
}

// Verifier is an io.Writer that compares what is written to it with the batches
// of a partition, from one offset on, across segments.
type Verifier struct {
	stream  stream
	pos     int64 // in the partition's stream
	have    int64 // number of the batch in scratch, -1 none
	scratch []byte
}

// Verifier returns one for partition number p whose first byte is that of the
// batch with offset.
func (t *Tier) Verifier(p int, offset int64) *Verifier {
	return &Verifier{
		stream: newStream(t.shared.template, int32(p)), pos: t.PositionOf(offset),
		have: -1, scratch: make([]byte, t.shared.batchBytes),
	}
}

// Write compares p, and fails at the first byte that is wrong.
func (v *Verifier) Write(p []byte) (int, error) {
	size := v.stream.size()
	for n := 0; n < len(p); {
		g := v.pos / size
		if v.have != g {
			v.stream.put(v.scratch, g)
			v.have = g
		}
		skip := v.pos - g*size
		m := min(int64(len(p)-n), size-skip)
		if got, want := p[n:n+int(m)], v.scratch[skip:skip+m]; !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			return n, fmt.Errorf("weather: partition %d, batch %d at offset %d: byte %d is %02x, not %02x",
				v.stream.tag, g, v.stream.offset(g), skip+int64(i), got[i], want[i])
		}
		n += int(m)
		v.pos += m
	}
	return len(p), nil
}

// Reset goes to the batch with offset.
func (v *Verifier) Reset(offset int64) { v.pos = offset / v.stream.records * v.stream.size() }
