package testseg

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/segtier/segtier/segment"
)

// Producer identifies an idempotent or transactional producer.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32 // of the batch's first record; -1 for markers
}

// Batch is one record batch to be written.
type Batch struct {
	BaseOffset int64

	// LastOffset is the batch's last offset if greater than that of the last
	// record: what compaction leaves.
	LastOffset int64

	Records     []segment.Record // offsets ascending from BaseOffset; may be empty
	Codec       segment.Codec
	LeaderEpoch int32
	Producer    *Producer // nil: none

	Transactional bool
	Control       bool

	// LogAppendTime stamps the batch with MaxTimestamp.
	LogAppendTime bool

	// MaxTimestamp is for LogAppendTime and for batches without records;
	// otherwise it follows from the records.
	MaxTimestamp int64

	// DeleteHorizon, if not zero, is the time in ms set by compaction.
	DeleteHorizon int64
}

// Marker returns the control batch that commits or aborts a transaction.
func Marker(offset, timestamp int64, leaderEpoch int32, p Producer, commit bool) Batch {
	key := []byte{0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	p.Sequence = -1
	return Batch{
		BaseOffset: offset, LeaderEpoch: leaderEpoch, Producer: &p, Transactional: true, Control: true,
		Records: []segment.Record{{Offset: offset, Timestamp: timestamp, Key: key, Value: []byte{0, 0, 0, 0, 0, 3}}},
	}
}

// Header returns the header of b, with the size and CRC that Append gives it.
func (b Batch) Header() segment.Header {
	h, err := segment.ParseHeader(b.Append(nil))
	if err != nil {
		panic(fmt.Sprintf("testseg: made a bad batch: %v", err))
	}
	return h
}

// Append appends the batch in magic 2. Batches that cannot be written, such as
// records that do not ascend, panic.
func (b Batch) Append(dst []byte) []byte {
	start := len(dst)
	last := max(b.LastOffset, b.BaseOffset)
	base, greatest := int64(-1), int64(-1)
	for i, r := range b.Records {
		if i == 0 {
			base = r.Timestamp
		}
		greatest = max(greatest, r.Timestamp)
		last = max(last, r.Offset)
		if r.Offset < b.BaseOffset || i > 0 && r.Offset <= b.Records[i-1].Offset {
			panic(fmt.Sprintf("testseg: record %d has offset %d", i, r.Offset))
		}
	}
	attributes := int16(b.Codec)
	set := func(on bool, bit int16) {
		if on {
			attributes |= bit
		}
	}
	set(b.LogAppendTime, 1<<3)
	set(b.Transactional, 1<<4)
	set(b.Control, 1<<5)
	set(b.DeleteHorizon != 0, 1<<6)
	if b.LogAppendTime || len(b.Records) == 0 {
		greatest = b.MaxTimestamp
	}
	if b.DeleteHorizon != 0 {
		base = b.DeleteHorizon
	}
	p := Producer{ID: -1, Epoch: -1, Sequence: -1}
	if b.Producer != nil {
		p = *b.Producer
	}

	be := binary.BigEndian
	dst = be.AppendUint64(dst, uint64(b.BaseOffset))
	dst = be.AppendUint32(dst, 0) // size
	dst = be.AppendUint32(dst, uint32(b.LeaderEpoch))
	dst = append(dst, 2)
	dst = be.AppendUint32(dst, 0) // CRC
	dst = be.AppendUint16(dst, uint16(attributes))
	dst = be.AppendUint32(dst, uint32(last-b.BaseOffset))
	dst = be.AppendUint64(dst, uint64(base))
	dst = be.AppendUint64(dst, uint64(greatest))
	dst = be.AppendUint64(dst, uint64(p.ID))
	dst = be.AppendUint16(dst, uint16(p.Epoch))
	dst = be.AppendUint32(dst, uint32(p.Sequence))
	dst = be.AppendUint32(dst, uint32(len(b.Records)))
	if len(b.Records) > 0 {
		dst = b.appendRecords(dst, base)
	}
	return Seal(dst, start)
}

// Seal writes the size and the CRC into the magic 2 batch that begins at start
// and ends with dst, as a producer that means what it says would.
func Seal(dst []byte, start int) []byte {
	raw := dst[start:]
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return dst
}

func (b Batch) appendRecords(dst []byte, base int64) []byte {
	if b.Codec == segment.CodecNone {
		for _, r := range b.Records {
			dst = appendRecord(dst, r, b.BaseOffset, base)
		}
		return dst
	}
	var plain []byte
	for _, r := range b.Records {
		plain = appendRecord(plain, r, b.BaseOffset, base)
	}
	return Compress(dst, b.Codec, plain)
}

func appendRecord(dst []byte, r segment.Record, baseOffset, baseTimestamp int64) []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, r.Timestamp-baseTimestamp)
	body = binary.AppendVarint(body, r.Offset-baseOffset)
	body = appendBytes(body, r.Key)
	body = appendBytes(body, r.Value)
	body = binary.AppendVarint(body, int64(len(r.Headers)))
	for _, h := range r.Headers {
		body = appendBytes(body, append([]byte{}, h.Key...))
		body = appendBytes(body, h.Value)
	}
	dst = binary.AppendVarint(dst, int64(len(body)))
	return append(dst, body...)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

// AppendLegacy appends records as a message set of magic 0 or 1: one message
// each, or all of them in one compressed wrapper. Records have no headers.
func AppendLegacy(dst []byte, magic int8, codec segment.Codec, records ...segment.Record) []byte {
	if codec == segment.CodecNone {
		for _, r := range records {
			dst = appendMessage(dst, magic, 0, r)
		}
		return dst
	}
	var plain []byte
	last := records[len(records)-1]
	wrapper := segment.Record{Offset: last.Offset, Timestamp: -1}
	for _, r := range records {
		wrapper.Timestamp = max(wrapper.Timestamp, r.Timestamp)
		if magic == 1 {
			r.Offset -= records[0].Offset // relative
		}
		plain = appendMessage(plain, magic, 0, r)
	}
	wrapper.Value = Compress(nil, codec, plain)
	if codec == segment.CodecLZ4 && magic == 0 {
		wrapper.Value[6] = 0x1a // Kafka's wrong checksum of the frame header
	}
	return appendMessage(dst, magic, byte(codec), wrapper)
}

func appendMessage(dst []byte, magic int8, attributes byte, r segment.Record) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = be.AppendUint64(dst, uint64(r.Offset))
	dst = be.AppendUint64(dst, 0) // size and CRC
	dst = append(dst, byte(magic), attributes)
	if magic == 1 {
		dst = be.AppendUint64(dst, uint64(r.Timestamp))
	}
	for _, b := range [][]byte{r.Key, r.Value} {
		n := len(b)
		if b == nil {
			n = -1
		}
		dst = be.AppendUint32(dst, uint32(int32(n)))
		dst = append(dst, b...)
	}
	raw := dst[start:]
	be.PutUint32(raw[8:], uint32(len(raw)-12))
	be.PutUint32(raw[12:], crc32.ChecksumIEEE(raw[16:]))
	return dst
}
