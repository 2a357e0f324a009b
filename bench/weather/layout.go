package weather

import (
	"container/list"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/segment"
)

// layout is how large the things of a topic are. It is spelled in the topic's
// id, so that a name alone says what an object holds:
//
//	byte 0      'W'
//	byte 1      version 1
//	bytes 2-5   bytes of a batch
//	bytes 6-9   batches of a segment
//	byte 10     log2 of the bytes of a chunk
//	byte 11     records of a batch
//	bytes 12-15 seed of the bytes in values
type layout struct {
	batchBytes uint32
	batches    uint32 // of a segment
	chunkLog   uint8
	records    uint8
	seed       uint32
}

const layoutVersion = 1

// maxSegment is the greatest log: Kafka's positions are 32-bit.
const maxSegment = 1<<31 - 1

// id returns the topic id that spells l.
func (l layout) id() segment.UUID {
	u := segment.UUID{0: 'W', 1: layoutVersion, 10: l.chunkLog, 11: l.records}
	binary.BigEndian.PutUint32(u[2:], l.batchBytes)
	binary.BigEndian.PutUint32(u[6:], l.batches)
	binary.BigEndian.PutUint32(u[12:], l.seed)
	return u
}

// layoutOf reads a topic id. ok is false if it spells no layout.
func layoutOf(u segment.UUID) (l layout, ok bool) {
	l = layout{
		batchBytes: binary.BigEndian.Uint32(u[2:]), batches: binary.BigEndian.Uint32(u[6:]),
		chunkLog: u[10], records: u[11], seed: binary.BigEndian.Uint32(u[12:]),
	}
	return l, u[0] == 'W' && u[1] == layoutVersion && l.check() == nil
}

// check says what is wrong with l.
func (l layout) check() error {
	switch {
	case l.records < 1:
		return fmt.Errorf("a batch of %d records", l.records)
	case l.batchBytes < segment.HeaderSize || l.batchBytes > 64<<20:
		return fmt.Errorf("a batch of %d bytes, allowed are up to 64 MiB", l.batchBytes)
	case l.batches < 1 || l.logSize() > maxSegment:
		return fmt.Errorf("a segment of %d batches of %d bytes, allowed are up to 2 GiB", l.batches, l.batchBytes)
	case l.chunkLog < 10 || l.chunkLog > 26:
		return fmt.Errorf("chunks of 2^%d bytes, allowed are 1 KiB to 64 MiB", l.chunkLog)
	}
	return nil
}

func (l layout) logSize() int64   { return int64(l.batches) * int64(l.batchBytes) }
func (l layout) chunkSize() int64 { return 1 << l.chunkLog }
func (l layout) offsets() int64   { return int64(l.batches) * int64(l.records) }

// chunkLog returns the logarithm of a power of two.
func chunkLog(bytes int64) (uint8, bool) {
	return uint8(bits.TrailingZeros64(uint64(bytes))), bytes > 0 && bytes&(bytes-1) == 0
}

// segmentID names segment number index of a partition. The topic's sum is in it,
// so that segments of two topics do not share an id.
func segmentID(topic segment.UUID, partition int32, index uint32) segment.UUID {
	u := segment.UUID{0: 'w', 1: 's', 2: 'e', 3: 'g'}
	binary.BigEndian.PutUint32(u[4:], checksum.CRC32C(topic[:]))
	binary.BigEndian.PutUint32(u[8:], uint32(partition))
	binary.BigEndian.PutUint32(u[12:], index)
	return u
}

// shared is what the objects of a layout have in common.
type shared struct {
	layout

	template *template
	shift    *shifter // by a batch
}

// maker keeps what was made for the layouts and objects that were used last.
// The zero maker is ready.
type maker struct {
	mu      sync.Mutex
	layouts map[layout]*shared       // guarded by mu
	objects map[string]*list.Element // of *Object; guarded by mu
	recent  list.List                // guarded by mu
	held    int64                    // bytes of tails in objects; guarded by mu
}

const (
	maxLayouts   = 64
	maxTailBytes = 256 << 20
)

// layout returns what is shared by objects of l.
func (m *maker) layout(l layout) (*shared, error) {
	m.mu.Lock()
	have := m.layouts[l]
	m.mu.Unlock()
	if have != nil {
		return have, nil
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	t, ok := newTemplate(int(l.batchBytes), int(l.records), l.seed)
	if !ok {
		return nil, fmt.Errorf("%d records do not fit in a batch of %d bytes", l.records, l.batchBytes)
	}
	s := &shared{layout: l, template: t, shift: newShifter(int64(l.batchBytes))}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.layouts == nil || len(m.layouts) >= maxLayouts {
		m.layouts = make(map[layout]*shared)
	}
	m.layouts[l] = s
	return s, nil
}

// object returns the virtual object with this key, without prefix. ok is false if
// there is none.
func (m *maker) object(key string) (o *Object, ok bool) {
	m.mu.Lock()
	if e := m.objects[key]; e != nil {
		m.recent.MoveToFront(e)
		m.mu.Unlock()
		return e.Value.(*Object), true
	}
	m.mu.Unlock()
	o, err := m.open(key)
	if err != nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.objects[key]; e != nil { // another was faster
		return e.Value.(*Object), true
	}
	if m.objects == nil {
		m.objects = make(map[string]*list.Element)
	}
	m.objects[key] = m.recent.PushFront(o)
	for m.held += int64(len(o.tail)); m.held > maxTailBytes; {
		last := m.recent.Remove(m.recent.Back()).(*Object)
		m.held -= int64(len(last.tail))
		delete(m.objects, last.key)
	}
	return o, true
}
