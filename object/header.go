package object

import (
	"encoding/binary"
	"slices"

	"github.com/segtier/segtier/segment"
)

const (
	headerFixed    = 86 // bytes before the topic name
	epochEntrySize = 12 // bytes of an encoded leader epoch
	flagNoAborts   = 1  // of the flags byte: TxnIndexEmpty
)

// Header is the record COPY_SEGMENT_STARTED of a segment without its custom
// metadata: what metadata is rebuilt from.
type Header struct {
	Partition segment.Partition
	SegmentID segment.UUID

	StartOffset, EndOffset int64 // inclusive; EndOffset may lie beyond the last record

	MaxTimestamp   int64 // ms; greatest of the batches, or the log's mtime if they have none
	EventTimestamp int64 // ms; the writer's clock when it wrote STARTED
	BrokerID       int32 // of that writer
	SizeBytes      int64 // of the log

	// Epochs are the leader epochs with offsets in this segment; the first
	// begins at StartOffset. Not empty.
	Epochs segment.Lineage

	TxnIndexEmpty bool // known to hold no aborted transaction
}

// Equal reports whether h and o say the same.
func (h Header) Equal(o Header) bool {
	return h.Describes(o) && h.EventTimestamp == o.EventTimestamp && h.BrokerID == o.BrokerID
}

// Describes reports whether h and o describe the same segment. It leaves out who
// wrote STARTED and when: later events of the segment replace both in its
// record, but not in its object.
func (h Header) Describes(o Header) bool {
	return slices.Equal(h.Epochs, o.Epochs) &&
		h.Partition == o.Partition && h.SegmentID == o.SegmentID &&
		h.StartOffset == o.StartOffset && h.EndOffset == o.EndOffset &&
		h.MaxTimestamp == o.MaxTimestamp && h.SizeBytes == o.SizeBytes && h.TxnIndexEmpty == o.TxnIndexEmpty
}

// Key returns the key of the segment's object.
func (h Header) Key() string { return Key(h.Partition, h.StartOffset, h.SegmentID) }

// append appends the encoded header to dst. h passed check.
func (h Header) append(dst []byte) []byte {
	dst = append(dst, h.SegmentID[:]...)
	dst = append(dst, h.Partition.TopicID[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Partition.Number))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.StartOffset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.EndOffset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.MaxTimestamp))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.EventTimestamp))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.BrokerID))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.SizeBytes))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(h.Epochs)))
	var flags byte
	if h.TxnIndexEmpty {
		flags |= flagNoAborts
	}
	dst = append(dst, flags, byte(len(h.Partition.Topic)))
	dst = append(dst, h.Partition.Topic...)
	for _, e := range h.Epochs {
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.Epoch))
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.Start))
	}
	return dst
}

// parseHeader decodes and checks a header.
func parseHeader(b []byte) (Header, error) {
	const what = "header"
	if len(b) < headerFixed {
		return Header{}, corrupt(what, "%d bytes long", len(b))
	}
	h := Header{
		Partition:      segment.Partition{Number: int32(binary.BigEndian.Uint32(b[32:]))},
		StartOffset:    int64(binary.BigEndian.Uint64(b[36:])),
		EndOffset:      int64(binary.BigEndian.Uint64(b[44:])),
		MaxTimestamp:   int64(binary.BigEndian.Uint64(b[52:])),
		EventTimestamp: int64(binary.BigEndian.Uint64(b[60:])),
		BrokerID:       int32(binary.BigEndian.Uint32(b[68:])),
		SizeBytes:      int64(binary.BigEndian.Uint64(b[72:])),
		TxnIndexEmpty:  b[84] == flagNoAborts,
	}
	copy(h.SegmentID[:], b)
	copy(h.Partition.TopicID[:], b[16:])
	epochs, flags, topicLen := int64(binary.BigEndian.Uint32(b[80:])), b[84], int(b[85])
	if flags&^flagNoAborts != 0 {
		return Header{}, corrupt(what, "flags %02x", flags)
	}
	b = b[headerFixed:]
	if want := int64(topicLen) + epochs*epochEntrySize; want != int64(len(b)) {
		return Header{}, corrupt(what, "%d bytes for a topic name of %d bytes and %d leader epochs", len(b), topicLen, epochs)
	}
	h.Partition.Topic = string(b[:topicLen])
	b = b[topicLen:]
	h.Epochs = make(segment.Lineage, epochs)
	for i := range h.Epochs {
		h.Epochs[i] = segment.EpochStart{
			Epoch: int32(binary.BigEndian.Uint32(b)),
			Start: int64(binary.BigEndian.Uint64(b[4:])),
		}
		b = b[epochEntrySize:]
	}
	return h, h.check()
}

// check reports what makes h impossible in itself; that its size is the log's,
// the directory says.
func (h Header) check() error {
	const what = "header"
	if err := h.Partition.Validate(); err != nil {
		return corrupt(what, "%w", err)
	}
	switch {
	case h.SegmentID.IsZero():
		return corrupt(what, "no segment id")
	case h.StartOffset < 0 || h.EndOffset < h.StartOffset:
		return corrupt(what, "offsets %d to %d", h.StartOffset, h.EndOffset)
	case len(h.Epochs) == 0:
		return corrupt(what, "no leader epochs")
	case h.Epochs[0].Start != h.StartOffset:
		return corrupt(what, "first leader epoch begins at %d, the segment at %d", h.Epochs[0].Start, h.StartOffset)
	case h.Epochs[len(h.Epochs)-1].Start > h.EndOffset:
		return corrupt(what, "last leader epoch begins at %d, the segment ends at %d", h.Epochs[len(h.Epochs)-1].Start, h.EndOffset)
	}
	if err := h.Epochs.Validate(); err != nil {
		return corrupt(what, "%w", err)
	}
	return nil
}
