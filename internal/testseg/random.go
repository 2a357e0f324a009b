package testseg

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/segtier/segtier/segment"
)

// Options shape a random partition; zero values are the defaults in brackets.
type Options struct {
	Partition segment.Partition // [orders-0 with a fixed topic id]
	Start     int64             // base offset of the first segment [0]
	Segments  int               // [4]
	Batches   int               // per segment [25]
	Interval  int               // index.interval.bytes [1024]
	Codecs    []segment.Codec   // to choose from [all]
	Plain     bool              // no gaps, empty batches, transactions or several epochs
	MaxValue  int               // greatest record value in bytes, but for one batch in ten, which exceeds 4 KiB [200]
}

// DefaultPartition is the partition of Random's segments unless told otherwise.
var DefaultPartition = segment.Partition{
	Topic:   "orders",
	TopicID: segment.UUID{0x06, 0x9f, 0x53, 0x0d, 0xdb, 0x89, 0x44, 0x66, 0xbd, 0x43, 0x9a, 0xe5, 0xbc, 0x22, 0x4e, 0xc6},
}

// Log is a partition of several segments, each beginning where the one before
// ends.
type Log struct {
	Partition segment.Partition
	Epochs    segment.Lineage
	Segments  []*Segment
}

// Random makes a partition that is a pure function of seed and options. It has
// offset gaps between and inside batches and at segment ends, batches emptied by
// compaction, several leader epochs, timestamps out of order and of both kinds,
// transactions that span segments (committed, aborted, still open), all codecs,
// and batches from below 100 bytes to above 4 KiB.
func Random(seed uint64, o Options) *Log {
	if o.Partition == (segment.Partition{}) {
		o.Partition = DefaultPartition
	}
	o.Segments, o.Batches = cmp.Or(o.Segments, 4), cmp.Or(o.Batches, 25)
	o.Interval, o.MaxValue = cmp.Or(o.Interval, 1024), cmp.Or(o.MaxValue, 200)
	if o.Codecs == nil {
		o.Codecs = []segment.Codec{segment.CodecNone, segment.CodecGzip, segment.CodecSnappy, segment.CodecLZ4, segment.CodecZstd}
	}
	g := &generator{
		Options: o, r: rand.New(rand.NewPCG(seed, 0x5e67)), next: o.Start, clock: 1_700_000_000_000,
		sequence: map[int64]int32{}, open: map[int64]bool{}, producers: NewProducers(),
	}
	g.epochs = segment.Lineage{{Epoch: int32(g.r.IntN(3)), Start: o.Start}}
	log := &Log{Partition: o.Partition}
	for range o.Segments {
		log.Segments = append(log.Segments, g.segment())
	}
	log.Epochs = g.epochs
	return log
}

type generator struct {
	Options
	r         *rand.Rand
	next      int64 // offset
	clock     int64 // ms
	epochs    segment.Lineage
	sequence  map[int64]int32 // next, by producer id
	open      map[int64]bool  // producers with an open transaction
	producers *Producers
}

func (g *generator) oneIn(n int) bool { return !g.Plain && g.r.IntN(n) == 0 }

func (g *generator) segment() *Segment {
	spec := Spec{Partition: g.Partition, Start: g.next, Interval: g.Interval, Producers: g.producers, ModTime: g.clock}
	for range g.Batches {
		if g.oneIn(12) {
			g.next += g.r.Int64N(20) // compacted away
		}
		if g.oneIn(15) {
			last := g.epochs[len(g.epochs)-1]
			if g.next > last.Start {
				g.epochs = append(g.epochs, segment.EpochStart{Epoch: last.Epoch + 1 + int32(g.r.IntN(2)), Start: g.next})
			}
		}
		b := g.batch()
		spec.Batches = append(spec.Batches, b)
		g.next = max(b.LastOffset, b.BaseOffset) + 1
		if n := len(b.Records); n > 0 {
			g.next = max(g.next, b.Records[n-1].Offset+1)
		}
	}
	if g.oneIn(3) {
		g.next += g.r.Int64N(10)
	}
	spec.End, spec.Epochs = g.next-1, g.epochs
	return Build(spec)
}

// batch makes the batch at offset g.next.
func (g *generator) batch() Batch {
	g.clock += g.r.Int64N(100)
	b := Batch{BaseOffset: g.next, LeaderEpoch: g.epochs[len(g.epochs)-1].Epoch}
	if g.oneIn(10) {
		b.BaseOffset += g.r.Int64N(3)
	}
	if open := slices.Sorted(maps.Keys(g.open)); len(open) > 0 && g.oneIn(5) {
		id := open[g.r.IntN(len(open))]
		delete(g.open, id)
		return Marker(b.BaseOffset, g.clock, b.LeaderEpoch, Producer{ID: id, Epoch: 1}, g.r.IntN(2) == 0)
	}
	b.Codec = g.Codecs[g.r.IntN(len(g.Codecs))]
	g.fill(&b)
	if !g.oneIn(2) && !g.Plain {
		id := 4000 + g.r.Int64N(4)
		b.Producer = &Producer{ID: id, Epoch: 1, Sequence: g.sequence[id]}
		b.Transactional = id < 4003 // 4003 is only idempotent
		if g.oneIn(12) {
			b.Records, b.Codec, b.LogAppendTime, b.MaxTimestamp = nil, segment.CodecNone, false, g.clock
			b.LastOffset = b.BaseOffset + g.r.Int64N(6)
		}
		if b.Transactional && len(b.Records) > 0 {
			g.open[id] = true
		}
		h := b.Header()
		g.sequence[id] += int32(h.LastOffset-h.BaseOffset) + 1
	}
	return b
}

// fill gives b its records.
func (g *generator) fill(b *Batch) {
	large := g.r.IntN(10) == 0
	offset := b.BaseOffset
	for i, n := 0, 1+g.r.IntN(6); i < n; i++ {
		if i > 0 && g.oneIn(10) {
			offset += g.r.Int64N(4)
		}
		r := segment.Record{Offset: offset, Timestamp: g.clock - g.r.Int64N(300)}
		if g.r.IntN(5) > 0 {
			r.Key = fmt.Appendf(nil, "key-%d", g.r.IntN(50))
		}
		if g.r.IntN(11) > 0 {
			r.Value = g.bytes(g.r.IntN(g.MaxValue + 1))
		}
		if large {
			r.Value = g.bytes(5000 + g.r.IntN(8000))
		}
		if g.r.IntN(5) == 0 {
			r.Headers = []segment.RecordHeader{{Key: "h", Value: []byte{byte(i)}}, {Key: "none"}}
		}
		b.Records = append(b.Records, r)
		offset++
	}
	if g.oneIn(10) {
		b.LastOffset = offset + g.r.Int64N(4) // its last records are gone
	}
	if g.r.IntN(8) == 0 {
		b.LogAppendTime, b.MaxTimestamp = true, g.clock
	}
}

// bytes returns n bytes that compress to about half.
func (g *generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i)%26
		if i%2 == 0 {
			b[i] = byte(g.r.Uint32())
		}
	}
	return b
}

// FirstBatch returns what a fetch at offset has to begin with: the first batch
// whose last offset is at or after it.
func (l *Log) FirstBatch(offset int64) (*Segment, Placed, bool) {
	for _, s := range l.Segments {
		for _, b := range s.Batches {
			if b.Header.LastOffset >= offset {
				return s, b, true
			}
		}
	}
	return nil, Placed{}, false
}

// OffsetForTime returns the first record at or after logStart in offset order
// whose timestamp is at or after ts, and its batch's leader epoch. Markers count,
// as in Kafka.
func (l *Log) OffsetForTime(ts, logStart int64) (r segment.Record, leaderEpoch int32, ok bool) {
	for _, s := range l.Segments {
		for _, b := range s.Batches {
			for _, r := range b.Records {
				if r.Timestamp >= ts && r.Offset >= logStart {
					return r, b.Header.LeaderEpoch, true
				}
			}
		}
	}
	return segment.Record{}, 0, false
}

// WriteDir writes l as Kafka keeps it, into a new partition directory below
// parent, and returns the directory. The last segment is the active one.
func (l *Log) WriteDir(parent string) (string, error) {
	dir := filepath.Join(parent, fmt.Sprintf("%s-%d", l.Partition.Topic, l.Partition.Number))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	epochs, err := l.Epochs.AppendText(nil)
	if err != nil {
		return "", err
	}
	files := map[string][]byte{
		"leader-epoch-checkpoint": epochs,
		"partition.metadata":      fmt.Appendf(nil, "version: 0\ntopic_id: %v", l.Partition.TopicID),
	}
	for _, s := range l.Segments {
		base := fmt.Sprintf("%020d", s.info.StartOffset)
		files[base+".log"], files[base+".index"], files[base+".timeindex"] = s.Log, s.Offset, s.Time
		if s.Txn != nil {
			files[base+".txnindex"] = s.Txn
		}
		files[fmt.Sprintf("%020d.snapshot", s.info.EndOffset+1)] = s.Snapshot
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}
