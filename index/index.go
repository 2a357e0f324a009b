package index

import (
	"errors"
	"io"

	"github.com/segtier/segtier/segment"
)

var ErrCorrupt = errors.New("corrupt index")

type Error struct {
	Kind   segment.FileKind
	Entry  int64
	Reason string
}

func (e *Error) Error() string { return e.Reason }
func (e *Error) Unwrap() error { return ErrCorrupt }

type Offset struct {
	b    []byte
	base int64
}

func ParseOffset(b []byte, base int64) (Offset, error)              { return Offset{}, errors.New("not yet") }
func (x Offset) Len() int                                           { return 0 }
func (x Offset) Entry(i int) (offset, pos int64)                    { return 0, 0 }
func (x Offset) Lookup(target int64) (offset, pos int64)            { return 0, 0 }
func (x Offset) UpperBound(pos, size int64) (offset int64, ok bool) { return 0, false }

type Time struct {
	b    []byte
	base int64
}

func ParseTime(b []byte, base int64) (Time, error)          { return Time{}, errors.New("not yet") }
func (x Time) Len() int                                     { return 0 }
func (x Time) Entry(i int) (timestamp, offset int64)        { return 0, 0 }
func (x Time) Lookup(timestamp int64) (found, offset int64) { return 0, 0 }

type AbortedTxn struct {
	ProducerID, FirstOffset, LastOffset, LastStableOffset int64
}

type Txn struct {
	b    []byte
	base int64
}

func ParseTxn(b []byte, base int64) (Txn, error) { return Txn{}, errors.New("not yet") }
func (x Txn) Len() int                           { return 0 }
func (x Txn) Entry(i int) AbortedTxn             { return AbortedTxn{} }
func (x Txn) Collect(dst []AbortedTxn, fetchOffset, upperBound int64) (list []AbortedTxn, complete bool) {
	return dst, false
}

type Producer struct {
	ProducerID         int64
	Epoch              int16
	LastSequence       int32
	LastOffset         int64
	OffsetDelta        int32
	Timestamp          int64
	CoordinatorEpoch   int32
	CurrentFirstOffset int64
}

func ParseSnapshot(b []byte) ([]Producer, error) { return nil, errors.New("not yet") }

type Checker struct{}

// NewChecker: offset, time and txn are read in step with the log and to their end by Close; nil: the segment has no such file.
// Hand in io.NewSectionReader over the Source's files, through a tee if they are summed on the way.
func NewChecker(base, end int64, offset, time, txn io.Reader) *Checker { return &Checker{} }

// Batch is to be called for every batch of the log in order (segment.Walker.Batch has this signature).
func (c *Checker) Batch(pos int64, h segment.Header) error { return errors.New("not yet") }

// Close is to be called after the last batch.
func (c *Checker) Close() error { return errors.New("not yet") }
