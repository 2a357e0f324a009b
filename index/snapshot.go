package index

import (
	"encoding/binary"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/segment"
)

// Producer is what a broker remembers of one producer.
type Producer struct {
	ProducerID       int64
	Epoch            int16
	LastSequence     int32 // of its last batch; -1 if only markers are known
	LastOffset       int64 // of its last batch; -1 likewise
	OffsetDelta      int32 // last minus first sequence of that batch
	Timestamp        int64 // ms, of its last batch or marker
	CoordinatorEpoch int32 // -1 none
	TxnFirstOffset   int64 // where its open transaction began; -1 none
}

// The format of a producer snapshot.
const (
	snapshotVersion = 1
	snapshotHeader  = 10 // version, CRC, count
	snapshotCRCFrom = 6  // what the CRC covers
	snapshotEntry   = 46
)

// ParseSnapshot decodes the producer snapshot (.snapshot) in b. Producers come
// in no particular order. It refuses, with an *Error, a wrong CRC and anything
// but the one version there is.
func ParseSnapshot(b []byte) ([]Producer, error) {
	fail := func(format string, args ...any) ([]Producer, error) {
		return nil, corrupt(segment.ProducerSnapshot, -1, format, args...)
	}
	if len(b) < snapshotHeader {
		return fail("%d bytes, the least is %d", len(b), snapshotHeader)
	}
	if v := int16(binary.BigEndian.Uint16(b)); v != snapshotVersion {
		return fail("version %d is not %d", v, snapshotVersion)
	}
	if want, got := binary.BigEndian.Uint32(b[2:]), checksum.CRC32C(b[snapshotCRCFrom:]); got != want {
		return fail("recorded CRC32C %08x, read %08x", want, got)
	}
	count := int32(binary.BigEndian.Uint32(b[6:]))
	b = b[snapshotHeader:]
	if int64(count)*snapshotEntry != int64(len(b)) {
		return fail("%d producers in %d bytes", count, len(b))
	}
	out := make([]Producer, count)
	for i := range out {
		e := b[i*snapshotEntry:]
		out[i] = Producer{
			ProducerID:       int64(binary.BigEndian.Uint64(e)),
			Epoch:            int16(binary.BigEndian.Uint16(e[8:])),
			LastSequence:     int32(binary.BigEndian.Uint32(e[10:])),
			LastOffset:       int64(binary.BigEndian.Uint64(e[14:])),
			OffsetDelta:      int32(binary.BigEndian.Uint32(e[22:])),
			Timestamp:        int64(binary.BigEndian.Uint64(e[26:])),
			CoordinatorEpoch: int32(binary.BigEndian.Uint32(e[34:])),
			TxnFirstOffset:   int64(binary.BigEndian.Uint64(e[38:])),
		}
	}
	return out, nil
}
