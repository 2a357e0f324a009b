package object

import (
	"encoding/binary"

	"github.com/segtier/segtier/checksum"
)

// Section is one of the parts of an object, in their order.
type Section uint8

// The sections. The first five are Kafka's files; the tail begins with TxnIndex.
const (
	Log Section = iota
	OffsetIndex
	TimeIndex
	ProducerSnapshot
	TxnIndex
	Epochs
	ChunkTable
	HeaderSection

	numSections  = 8
	headSections = int(TxnIndex)
)

// String returns the section's name as docs/format.md has it.
func (s Section) String() string {
	switch s {
	case Log:
		return "log"
	case OffsetIndex:
		return "offset index"
	case TimeIndex:
		return "time index"
	case ProducerSnapshot:
		return "producer snapshot"
	case TxnIndex:
		return "txn index"
	case Epochs:
		return "leader epochs"
	case ChunkTable:
		return "chunk table"
	case HeaderSection:
		return "header"
	}
	return "unknown"
}

// Extent is where a section lies in the object and what it sums to.
type Extent struct {
	Off, Len int64 // bytes
	CRC32C   uint32
}

// sum returns the extent's length and sum.
func (e Extent) sum() checksum.Sum { return checksum.Sum{Len: e.Len, CRC32C: e.CRC32C} }

const (
	// TrailerSize is the length in bytes of the trailer, with which every object
	// ends.
	TrailerSize = trailerFixed + numSections*dirEntrySize

	trailerFixed   = 24
	trailerEnd     = 16 // bytes at the end that keep their place in every version
	dirEntrySize   = 12
	trailerVersion = 1
	magic          = "segtier\n"
)

// directory is where the sections lie.
type directory [numSections]Extent

// tailOffset returns where the tail begins.
func (d *directory) tailOffset() int64 { return d[headSections].Off }

// objectSize returns the size of the object that has these sections.
func (d *directory) objectSize() int64 {
	last := d[numSections-1]
	return last.Off + last.Len + TrailerSize
}

// appendTrailer appends the encoded trailer to dst.
func (d *directory) appendTrailer(dst []byte) []byte {
	start := len(dst)
	for _, e := range d {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.Len))
		dst = binary.BigEndian.AppendUint32(dst, e.CRC32C)
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.tailOffset()))
	dst = binary.BigEndian.AppendUint16(dst, trailerVersion)
	dst = append(dst, 0, numSections) // codec, section count
	dst = binary.BigEndian.AppendUint32(dst, checksum.CRC32C(dst[start:]))
	return append(dst, magic...)
}

// parseTrailer decodes the trailer at the end of b, which ends where the object
// does, and checks that its lengths add up to objectSize.
func parseTrailer(b []byte, objectSize int64) (*directory, error) {
	const what = "trailer"
	if len(b) < trailerEnd {
		return nil, corrupt(what, "%d bytes long", len(b))
	}
	end := b[len(b)-trailerEnd:]
	if string(end[8:]) != magic {
		return nil, corrupt(what, "magic % x: not the end of an object of segtier", end[8:])
	}
	if v := int(binary.BigEndian.Uint16(end)); v != trailerVersion {
		return nil, newer(what, "version", v, trailerVersion)
	}
	if len(b) < TrailerSize {
		return nil, corrupt(what, "%d bytes long, not %d", len(b), TrailerSize)
	}
	b = b[len(b)-TrailerSize:]
	off := objectSize - TrailerSize
	if err := verify(what, off, b[:TrailerSize-12], binary.BigEndian.Uint32(end[4:])); err != nil {
		return nil, err
	}
	if end[2] != 0 {
		return nil, newer(what, "codec", int(end[2]), 0)
	}
	if end[3] != numSections {
		return nil, corrupt(what, "%d sections, not %d", end[3], numSections)
	}
	var d directory
	at := int64(0)
	for i := range d {
		size := int64(binary.BigEndian.Uint64(b[i*dirEntrySize:]))
		limit := int64(maxFileSize)
		if i >= headSections {
			limit = MaxTailSize
		}
		if size < 0 || size > limit || i == int(Log) && size == 0 {
			return nil, corrupt(what, "%s of %d bytes", Section(i), size)
		}
		d[i] = Extent{Off: at, Len: size, CRC32C: binary.BigEndian.Uint32(b[i*dirEntrySize+8:])}
		if size == 0 && d[i].CRC32C != 0 {
			return nil, corrupt(what, "%s is empty and has sum %08x", Section(i), d[i].CRC32C)
		}
		at += size
	}
	if at != off {
		return nil, corrupt(what, "sections of %d bytes in an object of %d bytes", at, objectSize)
	}
	if got := int64(binary.BigEndian.Uint64(b[numSections*dirEntrySize:])); got != d.tailOffset() {
		return nil, corrupt(what, "points to a tail at %d, sections say %d", got, d.tailOffset())
	}
	if size := objectSize - d.tailOffset(); size > MaxTailSize {
		return nil, corrupt(what, "tail of %d bytes, the limit is %d", size, MaxTailSize)
	}
	return &d, nil
}

// TailOffset returns where the tail of an object begins, for who has the object
// and no location: trailer is its last TrailerSize bytes (or more of its end),
// objectSize its size. [LocationOf] the tail is the next step.
func TailOffset(trailer []byte, objectSize int64) (int64, error) {
	d, err := parseTrailer(trailer, objectSize)
	if err != nil {
		return 0, err
	}
	return d.tailOffset(), nil
}

// LocationOf returns the location of the object that ends with this tail. The
// object's sum is put together from those of its sections: it says what the
// head must be, and proves nothing about it.
func LocationOf(tail []byte) (Location, error) {
	if len(tail) < TrailerSize {
		return Location{}, corrupt("tail", "%d bytes long", len(tail))
	}
	// The tail offset that the trailer names is taken on trust for the size, and
	// then everything has to add up.
	at := int64(binary.BigEndian.Uint64(tail[len(tail)-trailerFixed:]))
	d, err := parseTrailer(tail, at+int64(len(tail)))
	if err != nil {
		return Location{}, err
	}
	loc := Location{
		ObjectSize:   d.objectSize(),
		TailOffset:   d.tailOffset(),
		ObjectCRC32C: d.objectSum(tail).CRC32C,
		TailCRC32C:   checksum.CRC32C(tail),
	}
	return loc, loc.check()
}

// objectSum returns the sum of the object with these sections, whose trailer is
// at the end of tail.
func (d *directory) objectSum(tail []byte) checksum.Sum {
	var s checksum.Sum
	for _, e := range d {
		s = s.Append(e.sum())
	}
	trailer := tail[len(tail)-TrailerSize:]
	return s.Append(checksum.Sum{Len: TrailerSize, CRC32C: checksum.CRC32C(trailer)})
}
