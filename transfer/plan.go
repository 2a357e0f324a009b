package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// Plan is a scanned segment: all that is known of its object but the STARTED
// record. It is immutable.
type Plan struct {
	info     segment.Info
	partSize int64
	table    object.Table
	head     [4]checksum.Sum // of the files read in place, in their order in the object
	parts    pieces          // of the head
	txn      []byte          // used entries of the txn index
	maxTime  int64
	last     int64 // offset of the last batch
	size     int64 // of the object
}

// Info returns what the source said of the segment when it was scanned.
func (p *Plan) Info() segment.Info {
	info := p.info
	info.Epochs = slices.Clone(info.Epochs)
	return info
}

// MaxTimestamp returns the greatest timestamp of the segment in ms: of its
// batches, or the log's time of modification if they carry none.
func (p *Plan) MaxTimestamp() int64 { return p.maxTime }

// LastOffset returns the last offset of the last batch. It is below the segment's
// EndOffset if nothing is left of the offsets between.
func (p *Plan) LastOffset() int64 { return p.last }

// LogSize returns the length of the log in bytes.
func (p *Plan) LogSize() int64 { return p.head[0].Len }

// TxnIndexEmpty reports whether no transaction was aborted in the segment.
func (p *Plan) TxnIndexEmpty() bool { return len(p.txn) == 0 }

// Size returns the length of the object in bytes, for progress.
func (p *Plan) Size() int64 { return p.size }

const (
	fingerprintKind    = 'P' // tells it from a location
	fingerprintVersion = 1
	fingerprintSize    = 44
)

// Fingerprint returns 44 bytes that differ for plans that differ in the bytes
// of the files, in offsets, epochs or layout: the custom metadata of STARTED. A
// copy may go on under an older STARTED only if the fingerprints are equal.
// docs/format.md has its bytes.
func (p *Plan) Fingerprint() []byte {
	be := binary.BigEndian
	h := sha256.New()
	b := be.AppendUint64(nil, uint64(p.info.StartOffset))
	b = be.AppendUint64(b, uint64(p.info.EndOffset))
	b = be.AppendUint64(b, uint64(p.maxTime))
	for _, s := range append(p.head[:], checksum.Sum{Len: int64(len(p.txn)), CRC32C: checksum.CRC32C(p.txn)}) {
		b = be.AppendUint64(b, uint64(s.Len))
		b = be.AppendUint32(b, s.CRC32C)
	}
	b = p.table.Append(b)
	b, _ = p.info.Epochs.AppendText(b) // never fails
	h.Write(b)

	out := []byte{fingerprintKind, fingerprintVersion, 0, 0}
	out = be.AppendUint32(out, uint32(p.table.ChunkSize))
	out = be.AppendUint64(out, uint64(p.partSize))
	out = be.AppendUint64(out, uint64(p.parts.total.Len))
	out = be.AppendUint32(out, p.parts.total.CRC32C)
	out = append(out, h.Sum(nil)[:16]...)
	return out[:fingerprintSize:fingerprintSize]
}

// IsFingerprint reports whether b begins as a fingerprint does. The custom
// metadata of a STARTED record that does not was written by another storage
// plugin.
func IsFingerprint(b []byte) bool { return len(b) > 0 && b[0] == fingerprintKind }

// Token names the write of the plan with this fingerprint under one segment id,
// the same at every try: what a store that keeps it says of the object.
func Token(id segment.UUID, fingerprint []byte) string {
	h := sha256.New()
	h.Write(id[:])
	h.Write(fingerprint)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// seal makes the tail of the object with header h, and its location.
func (p *Plan) seal(h object.Header) (loc object.Location, tail []byte, err error) {
	tail, err = object.AppendTail(nil, object.TailInput{
		Header: h, Table: p.table, Head: p.head, TxnIndex: p.txn, Epochs: p.info.Epochs,
	})
	if err != nil {
		return loc, nil, err
	}
	loc, err = object.LocationOf(tail)
	return loc, tail, err
}

// header returns the header as far as the plan knows it, under some id. Every
// id is as long.
func (p *Plan) header() object.Header {
	return object.Header{
		Partition: p.info.Partition, SegmentID: segment.UUID{1},
		StartOffset: p.info.StartOffset, EndOffset: p.info.EndOffset,
		MaxTimestamp: p.maxTime, SizeBytes: p.LogSize(), TxnIndexEmpty: p.TxnIndexEmpty(),
		Epochs: p.info.Epochs.Range(p.info.StartOffset, p.info.EndOffset),
	}
}

// agrees reports where h is not the STARTED record of this plan.
func (p *Plan) agrees(h *object.Header) error {
	fail := func(what string, have, want any) error {
		return fmt.Errorf("record of segment %s has %s %v, the scan found %v", h.SegmentID, what, have, want)
	}
	switch {
	case h.Partition != p.info.Partition:
		return fail("partition", h.Partition, p.info.Partition)
	case h.StartOffset != p.info.StartOffset || h.EndOffset != p.info.EndOffset:
		return fail("offsets", [2]int64{h.StartOffset, h.EndOffset}, [2]int64{p.info.StartOffset, p.info.EndOffset})
	case h.MaxTimestamp != p.maxTime:
		return fail("max timestamp", h.MaxTimestamp, p.maxTime)
	case h.SizeBytes != p.LogSize():
		return fail("log size", h.SizeBytes, p.LogSize())
	}
	return nil
}
