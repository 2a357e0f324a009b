// Package mint makes Receipts: the proof, without which no segment becomes
// readable, that an object is durable and equal to its source.
//
// Only transfer.Upload and transfer.Confirm call [New] (a test checks that), at
// the one place in each where everything has been confirmed. Being internal,
// the package cannot be imported from outside the module, so nobody else can
// make a Receipt; the zero Receipt that anybody can declare is refused by
// metadata.Finished.
package mint

import (
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/segment"
)

// Receipt is proof that the object of one segment is durable and equal to its
// source. It is immutable; the zero Receipt proves nothing.
type Receipt struct {
	facts *Facts
}

// Facts is what a Receipt binds together.
type Facts struct {
	Partition segment.Partition
	SegmentID segment.UUID

	// What the object's header says of the segment: offsets, inclusive, and the
	// size of its log in bytes.
	StartOffset, EndOffset, LogSize int64

	Key      string       // of the object, without the store's prefix
	Object   checksum.Sum // size and CRC-32C of the whole object
	Location []byte       // object.Location, encoded: the custom metadata of FINISHED
	Evidence string       // how it was confirmed: objstore.Level of the weakest part, or "full read"
}

// New makes a Receipt. See the package comment for who may call it.
func New(f Facts) Receipt {
	f.Location = append([]byte(nil), f.Location...)
	return Receipt{facts: &f}
}

// IsZero reports whether r proves nothing.
func (r Receipt) IsZero() bool { return r.facts == nil }

// Facts returns what r binds together, all zero for the zero Receipt. Location is the caller's.
func (r Receipt) Facts() Facts {
	if r.facts == nil {
		return Facts{}
	}
	f := *r.facts
	f.Location = append([]byte(nil), f.Location...)
	return f
}
