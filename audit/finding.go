package audit

import (
	"errors"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// Reason is the stable code of a finding.
type Reason string

// The reasons; the package comment says what each means.
const (
	OwnerMissing    Reason = "OWNER_MISSING"
	ObjectMissing   Reason = "OBJECT_MISSING"
	ObjectSize      Reason = "OBJECT_SIZE"
	ObjectCorrupt   Reason = "OBJECT_CORRUPT"
	IndexMismatch   Reason = "INDEX_MISMATCH"
	RecordMismatch  Reason = "RECORD_MISMATCH"
	RecordSize      Reason = "RECORD_SIZE"
	LocationInvalid Reason = "LOCATION_INVALID"
	OffsetGap       Reason = "OFFSET_GAP"
	Incomplete      Reason = "METADATA_INCOMPLETE"

	OffsetOverlap   Reason = "OFFSET_OVERLAP"
	LineageMismatch Reason = "LINEAGE_MISMATCH"
	ForeignSegment  Reason = "FOREIGN_SEGMENT"
)

// Notice reports whether the reason is worth knowing and no damage: everything
// can be read.
func (r Reason) Notice() bool {
	return r == OffsetOverlap || r == LineageMismatch || r == ForeignSegment
}

// Finding is one damage, or one notice.
type Finding struct {
	Reason    Reason
	Partition segment.Partition // zero for OWNER_MISSING, which is of the whole prefix
	Segment   *metadata.Segment // nil where it is not of one segment

	// StartOffset and EndOffset are the first and last offset concerned, -1 if
	// none is.
	StartOffset, EndOffset int64

	Key string // of the object, "" if none is concerned
	Off int64  // the damaged range of the object in bytes; Len 0 is all of it
	Len int64
	Err error // the evidence
}

// findingOf is a finding about a segment as a whole.
func findingOf(r Reason, seg *metadata.Segment, key string, err error) Finding {
	return Finding{
		Reason: r, Partition: seg.Partition, Segment: seg, StartOffset: seg.StartOffset, EndOffset: seg.EndOffset,
		Key: key, Err: err,
	}
}

// reasonOf names a damage by its stable code.
func reasonOf(d *transfer.DamageError) Reason {
	var ie *index.Error
	switch {
	case d.Reason == transfer.Missing:
		return ObjectMissing
	case d.Reason == transfer.WrongSize:
		return ObjectSize
	case d.Reason == transfer.Mismatch && (errors.As(d.Err, &ie) || d.What == "chunk table"):
		return IndexMismatch
	case d.Reason == transfer.Mismatch:
		return RecordMismatch
	default:
		return ObjectCorrupt
	}
}
