package weather

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/segment"
)

// Positions in a batch of magic 2.
const (
	atOffset   = 0
	atLength   = 8
	atMagic    = 16
	atCRC      = 17
	atLastRel  = 23
	atBaseTime = 27
	atMaxTime  = 35
	atProducer = 43
	atCount    = 57

	crcFrom = atCRC + 4 // what the batch's own CRC covers
	tagSize = 4         // bytes of a value that name the partition
)

// baseTime is when the first batch of each partition was written, in ms: a
// multiple of 256, so that the timestamps within a batch change no bits of its
// base.
const baseTime = int64(1_700_000_000_000) &^ 255

// template is what all batches of a topic have in common.
type template struct {
	block   []byte // a batch with offset, times, tag and CRC 0
	records int64
	step    int64 // ms from batch to batch, a power of two ≥ records
	tagAt   int   // where the partition's number is, in the first record's value

	inner uint32 // the batch's own CRC of block
	outer uint32 // sum of the whole of block
	// What fields add to the batch's own CRC (innerX) and to the sum of the whole
	// batch (outerX); outerTime takes in that a time changes the batch's CRC,
	// which is part of the batch.
	innerTime, outerTime, outerOffset effects
	innerTag, outerTag                effects
	outerCRC                          effects
}

// newTemplate makes the block of batches of size bytes with records records,
// pseudo-random by seed. ok is false if they do not fit.
func newTemplate(size, records int, seed uint32) (t *template, ok bool) {
	t = &template{records: int64(records), step: int64(1) << bits.Len(uint(records-1))}
	// A record's length is a varint, which jumps: some lengths do not exist. If the
	// last record would need one, the first gives it some bytes.
	for less := 0; !ok; less++ {
		if less == 4 {
			return nil, false
		}
		t.block, t.tagAt, ok = newBlock(size, records, less, seed)
	}
	covered := size - crcFrom
	t.innerTime.add(atBaseTime-crcFrom, 8, covered)
	t.innerTime.add(atMaxTime-crcFrom, 8, covered)
	t.innerTag.add(t.tagAt-crcFrom, tagSize, covered)
	t.outerOffset.add(atOffset, 8, size)
	t.outerCRC.add(atCRC, 4, size)
	t.outerTime.add(atBaseTime, 8, size)
	t.outerTime.add(atMaxTime, 8, size)
	t.outerTag.add(t.tagAt, tagSize, size)
	for _, f := range []struct{ inner, outer *effects }{{&t.innerTime, &t.outerTime}, {&t.innerTag, &t.outerTag}} {
		for i := range f.outer {
			for v := range f.outer[i] {
				f.outer[i][v] ^= t.outerCRC.of(uint64(f.inner[i][v]))
			}
		}
	}
	t.inner = checksum.CRC32C(t.block[crcFrom:])
	t.outer = checksum.CRC32C(t.block) ^ t.outerCRC.of(uint64(t.inner))
	return t, true
}

// newBlock makes a batch of exactly size bytes and returns where the tag is. The
// first record is less bytes smaller than its share.
func newBlock(size, records, less int, seed uint32) (b []byte, tagAt int, ok bool) {
	// An even share for each record; the last one takes what is left.
	share := (size - segment.HeaderSize) / records
	rnd := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), 'w'})
	b = make([]byte, segment.HeaderSize, size)
	for i := range records {
		room := share
		if i == 0 {
			room -= less
		}
		if i == records-1 {
			room = size - len(b)
		}
		value, key, fits := recordShape(room, i, i == records-1)
		if !fits || i == 0 && value < tagSize {
			return nil, 0, false
		}
		var at int
		if b, at = appendRecord(b, i, key, value, rnd); i == 0 {
			tagAt = at
		}
	}
	if len(b) != size {
		return nil, 0, false
	}
	binary.BigEndian.PutUint32(b[atLength:], uint32(size-12))
	b[atMagic] = 2
	binary.BigEndian.PutUint32(b[atLastRel:], uint32(records-1))
	binary.BigEndian.PutUint64(b[atMaxTime:], uint64(records-1)) // ms after the base
	copy(b[atProducer:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	binary.BigEndian.PutUint32(b[atCount:], uint32(records))
	clear(b[tagAt : tagAt+tagSize])
	return b, tagAt, true
}

// recordShape finds the length of value and key (-1: null) with which record
// number i has room bytes: exactly, or if not exact the most that fit. Varints
// make some lengths impossible; another key helps.
func recordShape(room, i int, exact bool) (value, key int, ok bool) {
	for value = room; value >= 0; value-- {
		for key = -1; key < 4; key++ {
			n := recordSize(i, key, value)
			if n == room || n < room && !exact {
				return value, key, true
			}
		}
		if recordSize(i, 3, value) < room {
			return 0, 0, false // shorter values only lose more
		}
	}
	return 0, 0, false
}

// recordBody returns the bytes of a record behind its length.
func recordBody(i, key, value int) int {
	return 1 + varintLen(i) + varintLen(i) + varintLen(key) + max(key, 0) + varintLen(value) + value + 1
}

func recordSize(i, key, value int) int {
	n := recordBody(i, key, value)
	return varintLen(n) + n
}

func varintLen(v int) int { return len(binary.AppendVarint(nil, int64(v))) }

// appendRecord appends record number i, written i ms after the batch's base, and
// returns where its value begins.
func appendRecord(b []byte, i, key, value int, rnd *rand.ChaCha8) (out []byte, valueAt int) {
	b = binary.AppendVarint(b, int64(recordBody(i, key, value)))
	b = append(b, 0) // attributes
	b = binary.AppendVarint(b, int64(i))
	b = binary.AppendVarint(b, int64(i))
	b = binary.AppendVarint(b, int64(key))
	for range max(key, 0) {
		b = append(b, 'k')
	}
	b = binary.AppendVarint(b, int64(value))
	valueAt = len(b)
	b = append(b, make([]byte, value)...)
	_, _ = rnd.Read(b[valueAt:]) // never fails
	return append(b, 0), valueAt // no headers
}

// stream is the batches of one partition, number 0 to no end.
type stream struct {
	*template
	tag          uint32 // the partition's number
	inner, outer uint32 // of the template with the tag
}

func newStream(t *template, partition int32) stream {
	tag := uint32(partition)
	return stream{
		template: t, tag: tag,
		inner: t.inner ^ t.innerTag.of(uint64(tag)),
		outer: t.outer ^ t.outerTag.of(uint64(tag)),
	}
}

// size returns the bytes of a batch.
func (s *stream) size() int64 { return int64(len(s.block)) }

// offset returns the base offset of batch g.
func (s *stream) offset(g int64) int64 { return g * s.records }

// time returns the base timestamp of batch g.
func (s *stream) time(g int64) int64 { return baseTime + g*s.step }

// maxTime returns the greatest timestamp of batch g.
func (s *stream) maxTime(g int64) int64 { return s.time(g) + s.records - 1 }

// put writes batch g to b, which has its size.
func (s *stream) put(b []byte, g int64) {
	copy(b, s.block)
	t := uint64(s.time(g))
	_ = b[atMaxTime+7]
	binary.BigEndian.PutUint64(b[atOffset:], uint64(s.offset(g)))
	binary.BigEndian.PutUint32(b[atCRC:], s.inner^s.innerTime.of(t))
	binary.BigEndian.PutUint64(b[atBaseTime:], t)
	binary.BigEndian.PutUint64(b[atMaxTime:], t|uint64(s.records-1))
	binary.BigEndian.PutUint32(b[s.tagAt:], s.tag)
}

// sum returns the sum of batch g as it is stored.
func (s *stream) sum(g int64) uint32 {
	return s.outer ^ s.outerOffset.of(uint64(s.offset(g))) ^ s.outerTime.of(uint64(s.time(g)))
}

// fill writes the stream's bytes from pos on to dst. scratch holds a batch, or
// more; it is used at the borders.
func (s *stream) fill(dst []byte, pos int64, scratch []byte) {
	size := s.size()
	scratch = scratch[:size] // what is longer was another stream's
	g := pos / size
	if skip := pos - g*size; skip > 0 {
		s.put(scratch, g)
		n := copy(dst, scratch[skip:])
		dst, g = dst[n:], g+1
	}
	for ; int64(len(dst)) >= size; g++ {
		s.put(dst[:size:size], g)
		dst = dst[size:]
	}
	if len(dst) > 0 {
		s.put(scratch, g)
		copy(dst, scratch)
	}
}

// sumOf returns the sum of [from, to) of the stream. shift is by a batch.
func (s *stream) sumOf(from, to int64, shift *shifter, scratch []byte) uint32 {
	size := s.size()
	g := from / size
	var crc uint32
	if skip := from - g*size; skip > 0 {
		s.put(scratch, g)
		end := min(size, skip+to-from)
		crc = checksum.CRC32C(scratch[skip:end])
		from, g = from+end-skip, g+1
	}
	for ; to-from >= size; g++ {
		crc = shift.apply(crc) ^ s.sum(g)
		from += size
	}
	if from < to {
		s.put(scratch, g)
		crc = checksum.Update(crc, scratch[:to-from])
	}
	return crc
}
