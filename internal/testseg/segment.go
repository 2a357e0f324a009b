package testseg

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/segtier/segtier/segment"
)

// Placed is a batch in a segment's log.
type Placed struct {
	Pos     int64
	Header  segment.Header
	Records []segment.Record // as decoded: LogAppendTime has stamped them
}

// Aborted is an entry of a transaction index.
type Aborted struct {
	ProducerID, FirstOffset, LastOffset, LastStableOffset int64
}

// Segment is one segment with its files in memory. It implements
// segment.Source; to break it, change the bytes before handing it on.
type Segment struct {
	Log, Offset, Time, Txn, Snapshot []byte // Txn is nil if nothing was aborted

	Batches []Placed
	Aborted []Aborted // the entries of Txn

	// Changed, if set, is what Unchanged returns.
	Changed error

	info segment.Info
}

var _ segment.Source = (*Segment)(nil)

// Info implements segment.Source.
func (s *Segment) Info() segment.Info { return s.info }

// File implements segment.Source.
func (s *Segment) File(k segment.FileKind) (io.ReaderAt, int64) {
	var b []byte
	switch k {
	case segment.Log:
		b = s.Log
	case segment.OffsetIndex:
		b = s.Offset
	case segment.TimeIndex:
		b = s.Time
	case segment.ProducerSnapshot:
		b = s.Snapshot
	case segment.TxnIndex:
		b = s.Txn
	}
	if b == nil {
		return nil, 0
	}
	return bytes.NewReader(b), int64(len(b))
}

// Unchanged implements segment.Source.
func (s *Segment) Unchanged() error { return s.Changed }

// Close implements segment.Source.
func (s *Segment) Close() error { return nil }

// MaxTimestamp returns the greatest timestamp of a batch, -1 if none has one.
func (s *Segment) MaxTimestamp() int64 {
	greatest := int64(-1)
	for _, b := range s.Batches {
		greatest = max(greatest, b.Header.MaxTimestamp)
	}
	return greatest
}

// Spec says what Build puts into a segment.
type Spec struct {
	Partition segment.Partition
	Start     int64
	End       int64           // 0: the last batch's last offset
	Epochs    segment.Lineage // the whole history up to End; nil: epoch 0 from Start
	Batches   []Batch
	Interval  int // index.interval.bytes; 0 is Kafka's 4096
	ModTime   int64

	// Producers is what earlier segments left. Build brings it up to End.
	Producers *Producers
}

// Build makes a segment of the given batches as a broker since 4.1 would.
func Build(spec Spec) *Segment {
	s := &Segment{Log: []byte{}, Offset: []byte{}, Time: []byte{}}
	producers := spec.Producers
	if producers == nil {
		producers = NewProducers()
	}
	interval := cmp.Or(spec.Interval, 4096)
	be := binary.BigEndian
	since, last := 0, spec.Start-1
	greatest, lastIndexed, at := int64(-1), int64(-1), int64(-1)
	timeEntry := func() {
		if greatest > lastIndexed {
			s.Time = be.AppendUint64(s.Time, uint64(greatest))
			s.Time = be.AppendUint32(s.Time, uint32(at-spec.Start))
			lastIndexed = greatest
		}
	}
	for _, b := range spec.Batches {
		pos := len(s.Log)
		s.Log = b.Append(s.Log)
		h, err := segment.ParseHeader(s.Log[pos:])
		if err != nil || h.BaseOffset <= last {
			panic(fmt.Sprintf("testseg: batch at offset %d after %d: %v", b.BaseOffset, last, err))
		}
		last = h.LastOffset
		if h.MaxTimestamp > greatest {
			greatest, at = h.MaxTimestamp, h.LastOffset
		}
		if since > interval {
			s.Offset = be.AppendUint32(s.Offset, uint32(h.LastOffset-spec.Start))
			s.Offset = be.AppendUint32(s.Offset, uint32(pos))
			timeEntry()
			since = 0
		}
		since += int(h.Size)
		if aborted, ok := producers.apply(b, h); ok {
			s.Aborted = append(s.Aborted, aborted)
			s.Txn = aborted.append(s.Txn)
		}
		s.Batches = append(s.Batches, Placed{Pos: int64(pos), Header: h, Records: stamped(b, h)})
	}
	timeEntry()
	s.Snapshot = producers.snapshot()

	end := spec.End
	if end == 0 {
		end = last
	}
	epochs := spec.Epochs
	if epochs == nil {
		epochs = segment.Lineage{{Epoch: 0, Start: spec.Start}}
	}
	s.info = segment.Info{
		Partition: spec.Partition, StartOffset: spec.Start, EndOffset: end,
		Epochs: epochs.UpTo(end), ModTimestamp: spec.ModTime,
	}
	return s
}

// stamped returns the records of b as a reader sees them.
func stamped(b Batch, h segment.Header) []segment.Record {
	out := slices.Clone(b.Records)
	for i := range out {
		if b.LogAppendTime {
			out[i].Timestamp = h.MaxTimestamp
		}
	}
	return out
}

func (a Aborted) append(dst []byte) []byte {
	dst = append(dst, 0, 0)
	for _, v := range []int64{a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStableOffset} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}

// Producers is the state of a partition's producers.
type Producers struct{ byID map[int64]*state }

type state struct {
	epoch        int16
	lastSequence int32
	lastOffset   int64
	delta        int32
	timestamp    int64
	coordinator  int32
	txnFirst     int64 // -1: no open transaction
}

// NewProducers returns the state before anybody has produced.
func NewProducers() *Producers { return &Producers{byID: map[int64]*state{}} }

// apply moves the state past b, and returns the entry of the transaction index
// if b aborts a transaction.
func (p *Producers) apply(b Batch, h segment.Header) (Aborted, bool) {
	if h.ProducerID < 0 {
		return Aborted{}, false
	}
	s := p.byID[h.ProducerID]
	if s == nil {
		s = &state{lastSequence: -1, lastOffset: -1, coordinator: -1, txnFirst: -1}
		p.byID[h.ProducerID] = s
	}
	s.epoch, s.timestamp = h.ProducerEpoch, h.MaxTimestamp
	if !h.Control() {
		s.delta = int32(h.LastOffset - h.BaseOffset)
		s.lastSequence, s.lastOffset = h.BaseSequence+s.delta, h.LastOffset
		if h.Transactional() && s.txnFirst < 0 && len(b.Records) > 0 {
			s.txnFirst = h.BaseOffset
		}
		return Aborted{}, false
	}
	first := s.txnFirst
	s.txnFirst, s.coordinator = -1, int32(binary.BigEndian.Uint32(b.Records[0].Value[2:]))
	if first < 0 || b.Records[0].Key[3] != 0 {
		return Aborted{}, false
	}
	a := Aborted{ProducerID: h.ProducerID, FirstOffset: first, LastOffset: h.LastOffset, LastStableOffset: h.LastOffset + 1}
	for _, other := range p.byID {
		if other.txnFirst >= 0 {
			a.LastStableOffset = min(a.LastStableOffset, other.txnFirst)
		}
	}
	return a, true
}

// snapshot returns the content of a .snapshot file.
func (p *Producers) snapshot() []byte {
	be := binary.BigEndian
	out := []byte{0, 1, 0, 0, 0, 0}
	out = be.AppendUint32(out, uint32(len(p.byID)))
	for _, id := range slices.Sorted(maps.Keys(p.byID)) {
		s := p.byID[id]
		out = be.AppendUint64(out, uint64(id))
		out = be.AppendUint16(out, uint16(s.epoch))
		out = be.AppendUint32(out, uint32(s.lastSequence))
		out = be.AppendUint64(out, uint64(s.lastOffset))
		out = be.AppendUint32(out, uint32(s.delta))
		out = be.AppendUint64(out, uint64(s.timestamp))
		out = be.AppendUint32(out, uint32(s.coordinator))
		out = be.AppendUint64(out, uint64(s.txnFirst))
	}
	be.PutUint32(out[2:], crc32.Checksum(out[6:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}
