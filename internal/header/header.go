// Package header ties the two descriptions of a segment together: the record
// that metadata keeps and the header that its object carries. Package metadata
// knows of no objects and package object of no metadata, and both are right to.
package header

import (
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
)

// Of returns the header of the object that belongs to seg. EventTimestamp and
// BrokerID are those of the STARTED event only while seg is STARTED; later
// events change them in the record but not in the object.
func Of(seg *metadata.Segment) object.Header {
	return object.Header{
		Partition:      seg.Partition,
		SegmentID:      seg.ID,
		StartOffset:    seg.StartOffset,
		EndOffset:      seg.EndOffset,
		MaxTimestamp:   seg.MaxTimestamp,
		EventTimestamp: seg.EventTimestamp,
		BrokerID:       seg.BrokerID,
		SizeBytes:      seg.SizeBytes,
		Epochs:         seg.Epochs,
		TxnIndexEmpty:  seg.TxnIndexEmpty,
	}
}
