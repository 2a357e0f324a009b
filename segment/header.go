package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Sizes of batches and of their headers, in bytes.
const (
	// HeaderSize is the size of a magic 2 batch header.
	HeaderSize = 61

	// MinHeaderSize is how much of an entry must be there to tell its magic and
	// its size, whatever its magic is.
	MinHeaderSize = 17

	// MaxBatchSize is the greatest size of a batch: Kafka counts positions in a
	// log file in 31 bits.
	MaxBatchSize = math.MaxInt32
)

// Sizes of the older formats. The smallest entry has a null key and a null
// value.
const (
	legacyHeaderSize = 26 // what ParseHeader reads of magic 0 and 1
	minSizeV0        = 26 // offset, size, crc, magic, attributes, key and value length
	minSizeV1        = 34 // and a timestamp
	sizeFieldEnd     = 12 // the size field counts what follows it
	crcFieldEnd      = 21 // where the bytes begin that the CRC of magic 2 covers
	legacyCRCFrom    = 16 // the same for magic 0 and 1
	minRecordSize    = 7  // a magic 2 record with null key, null value, no headers
)

// Codec is how the records of a batch are compressed.
type Codec uint8

// The codecs that Kafka knows, by their number in a batch's attributes.
const (
	CodecNone Codec = iota
	CodecGzip
	CodecSnappy
	CodecLZ4
	CodecZstd
)

// String returns the codec's name as Kafka's compression.type has it.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLZ4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", uint8(c))
}

// Bits of a batch's attributes.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Header is the header of one record batch (magic 2), or what is known of one
// entry of an older message set (magic 0 and 1) without decompressing it:
//
//	BaseOffset and LastOffset are the entry's offset. If it is a compressed
//	wrapper, that is the offset of its last message; where it begins is unknown.
//	MaxTimestamp and BaseTimestamp are the entry's timestamp, -1 for magic 0.
//	LeaderEpoch, ProducerID, ProducerEpoch, BaseSequence are -1.
//	Count is 1 for a plain message, 0 (unknown) for a wrapper.
//
// Timestamps are in ms since 1970, -1 for none.
type Header struct {
	BaseOffset    int64
	LastOffset    int64 // inclusive; stays when compaction removes the last records
	Size          int32 // of the whole batch in bytes, header and size field included
	LeaderEpoch   int32 // of the partition's leader that appended it; -1 unknown
	Magic         int8
	CRC           uint32 // as recorded: CRC-32C for magic 2, else CRC-32 (IEEE)
	Attributes    int16
	BaseTimestamp int64 // the delete horizon if DeleteHorizon
	MaxTimestamp  int64
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Count         int32 // records; 0 in a batch that compaction emptied
}

// Codec returns how the records are compressed.
func (h Header) Codec() Codec { return Codec(h.Attributes & attrCodec) }

// LogAppendTime reports whether the broker stamped the batch when appending it:
// then every record's time is MaxTimestamp. Otherwise producers stamped records.
func (h Header) LogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// Transactional reports whether the batch belongs to a transaction.
func (h Header) Transactional() bool { return h.Attributes&attrTransactional != 0 }

// Control reports whether the batch holds a control record, such as the marker
// that ends a transaction, which consumers never see.
func (h Header) Control() bool { return h.Attributes&attrControl != 0 }

// DeleteHorizon returns the time in ms from which compaction may remove the
// batch's tombstones and markers, if it has set one.
func (h Header) DeleteHorizon() (ms int64, ok bool) {
	return h.BaseTimestamp, h.Attributes&attrDeleteHorizon != 0
}

// Errors of reading batches.
var (
	// ErrCorruptBatch is what every *BatchError is.
	ErrCorruptBatch = errors.New("corrupt record batch")

	// ErrShort is returned by ParseHeader when it needs more bytes to go on; it
	// says nothing bad about those that are there.
	ErrShort = errors.New("too few bytes for a batch header")
)

// BatchError says that bytes of a log are no record batch. It is
// ErrCorruptBatch, and Err if that is set.
type BatchError struct {
	Pos    int64  // where the batch begins, in bytes from the start of what was read
	Offset int64  // the batch's base offset as it claims; -1 unknown
	Reason string // what is wrong with it
	Err    error  // the cause: *checksum.MismatchError, io.ErrUnexpectedEOF (cut short), a decompressor's error, or nil
}

// Error names position, offset and reason.
func (e *BatchError) Error() string {
	s := fmt.Sprintf("%v at position %d", ErrCorruptBatch, e.Pos)
	if e.Offset >= 0 {
		s += fmt.Sprintf(" (offset %d)", e.Offset)
	}
	s += ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns ErrCorruptBatch and the cause.
func (e *BatchError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrCorruptBatch}
	}
	return []error{ErrCorruptBatch, e.Err}
}

// ParseHeader decodes the header at the start of b and bounds every number in
// it; b may go on with the batch's records and whatever follows. It returns
// ErrShort if b is shorter than the header, which takes HeaderSize bytes for
// magic 2 and 26 for magic 0 and 1, and a *BatchError with position 0 if no
// broker could have written it. It does not check the CRC, and it does not
// allocate unless it fails with a *BatchError.
func ParseHeader(b []byte) (h Header, err error) {
	err = h.parse(b)
	return h, err
}

// parse sets every field of h, or returns an error.
func (h *Header) parse(b []byte) error {
	*h = Header{}
	if len(b) < MinHeaderSize {
		return ErrShort
	}
	h.BaseOffset = int64(binary.BigEndian.Uint64(b))
	h.LastOffset = h.BaseOffset
	h.Magic = int8(b[16])
	size, least := int64(int32(binary.BigEndian.Uint32(b[8:])))+sizeFieldEnd, int64(HeaderSize)
	switch h.Magic {
	case 0:
		least = minSizeV0
	case 1:
		least = minSizeV1
	case 2:
	default:
		return h.corrupt("magic %d is not 0, 1 or 2", h.Magic)
	}
	switch {
	case size < least:
		return h.corrupt("size %d, the least for magic %d is %d", size, h.Magic, least)
	case size > MaxBatchSize:
		return h.corrupt("size %d, the most is %d", size, MaxBatchSize)
	case h.BaseOffset < 0:
		return h.corrupt("negative offset %d", h.BaseOffset)
	}
	h.Size = int32(size)
	if h.Magic < 2 {
		return h.parseLegacy(b)
	}
	return h.parseV2(b)
}

func (h *Header) parseLegacy(b []byte) error {
	if len(b) < legacyHeaderSize {
		return ErrShort
	}
	h.CRC = binary.BigEndian.Uint32(b[12:])
	h.Attributes = int16(b[17] & (attrCodec | attrLogAppendTime))
	h.LeaderEpoch, h.ProducerID, h.ProducerEpoch, h.BaseSequence = -1, -1, -1, -1
	h.BaseTimestamp, h.MaxTimestamp = -1, -1
	if h.Magic == 1 {
		h.BaseTimestamp = int64(binary.BigEndian.Uint64(b[18:]))
		h.MaxTimestamp = h.BaseTimestamp
	} else {
		h.Attributes &= attrCodec
	}
	switch c := h.Codec(); {
	case c == CodecNone:
		h.Count = 1
	case c > CodecLZ4:
		return h.corrupt("%v in a magic %d message", c, h.Magic)
	}
	return nil
}

func (h *Header) parseV2(b []byte) error {
	if len(b) < HeaderSize {
		return ErrShort
	}
	b = b[:HeaderSize]
	h.LeaderEpoch = int32(binary.BigEndian.Uint32(b[12:]))
	h.CRC = binary.BigEndian.Uint32(b[17:])
	h.Attributes = int16(binary.BigEndian.Uint16(b[21:]))
	delta := int32(binary.BigEndian.Uint32(b[23:]))
	h.BaseTimestamp = int64(binary.BigEndian.Uint64(b[27:]))
	h.MaxTimestamp = int64(binary.BigEndian.Uint64(b[35:]))
	h.ProducerID = int64(binary.BigEndian.Uint64(b[43:]))
	h.ProducerEpoch = int16(binary.BigEndian.Uint16(b[51:]))
	h.BaseSequence = int32(binary.BigEndian.Uint32(b[53:]))
	h.Count = int32(binary.BigEndian.Uint32(b[57:]))
	switch {
	case h.Codec() > CodecZstd:
		return h.corrupt("unknown %v", h.Codec())
	case delta < 0:
		return h.corrupt("negative last offset delta %d", delta)
	case h.BaseOffset > math.MaxInt64-int64(delta):
		return h.corrupt("last offset %d+%d overflows", h.BaseOffset, delta)
	case h.Count < 0 || int64(h.Count) > int64(delta)+1:
		return h.corrupt("%d records for %d offsets", h.Count, int64(delta)+1)
	case h.Codec() == CodecNone && int64(h.Count)*minRecordSize > int64(h.Size)-HeaderSize:
		return h.corrupt("%d records do not fit into %d bytes", h.Count, h.Size-HeaderSize)
	}
	h.LastOffset = h.BaseOffset + int64(delta)
	return nil
}

func (h *Header) corrupt(format string, args ...any) error {
	return &BatchError{Offset: max(h.BaseOffset, -1), Reason: fmt.Sprintf(format, args...)}
}
