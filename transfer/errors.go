package transfer

import (
	"errors"
	"fmt"

	"github.com/segtier/segtier/segment"
)

var (
	// ErrCorruptSegment: the source's bytes are not what a broker writes. Copying
	// it again does not help; repair or drop the local segment.
	ErrCorruptSegment = errors.New("segment is corrupt")
	// ErrSourceChanged: the source's files changed while they were read, or since
	// they were scanned. Open the segment anew and copy again.
	ErrSourceChanged = errors.New("segment changed while it was copied")
	// ErrEmpty: the segment's log has no bytes; there is nothing to copy.
	ErrEmpty = errors.New("segment is empty")
	// ErrTooLarge: a file of the segment is larger than an object can hold.
	ErrTooLarge = errors.New("file of the segment is too large")
	// ErrUnconfirmed: the store did not prove that it holds the bytes that were
	// sent. Nothing was made readable; copy again, and mistrust the store.
	ErrUnconfirmed = errors.New("store did not confirm the bytes sent")
	// ErrDamaged: the object is not what its record says. See DamageError.
	ErrDamaged = errors.New("object is damaged")
)

// ScanError says why a source is refused. It wraps one of the errors above, or
// the error of reading the file.
type ScanError struct {
	Partition   segment.Partition
	StartOffset int64            // of the segment
	File        segment.FileKind // the file at fault
	Pos         int64            // bytes from the file's start; -1 if it concerns all of it
	Err         error
}

// Error names segment, file and position.
func (e *ScanError) Error() string {
	where := ""
	if e.Pos >= 0 {
		where = fmt.Sprintf(" at byte %d", e.Pos)
	}
	return fmt.Sprintf("segment %d of %s: %s%s: %v", e.StartOffset, e.Partition, e.File, where, e.Err)
}

// Unwrap returns the cause.
func (e *ScanError) Unwrap() error { return e.Err }

// Damage is what is wrong with an object.
type Damage uint8

const (
	// Missing: there is no object under the key.
	Missing Damage = iota + 1
	// WrongSize: it is longer or shorter than its location says.
	WrongSize
	// Corrupt: bytes differ from their recorded sum, or are no record batch.
	Corrupt
	// Mismatch: sound in itself, but it says something else than its record.
	Mismatch
)

// String returns the damage in words.
func (d Damage) String() string {
	switch d {
	case Missing:
		return "missing"
	case WrongSize:
		return "wrong size"
	case Corrupt:
		return "corrupt"
	case Mismatch:
		return "does not match its record"
	}
	return "unknown"
}

// DamageError is one damage of one object. errors.Is(err, ErrDamaged) holds, and
// Err is in the chain too.
type DamageError struct {
	Reason   Damage
	Key      string // of the object
	Off, Len int64  // the damaged range of the object in bytes; Len 0 is all of it
	What     string // the damaged thing: "chunk 3", "tail", "batch at position 4096", …
	Err      error  // the evidence
}

// Error names object, range and evidence.
func (e *DamageError) Error() string {
	where := ""
	if e.Len > 0 {
		where = fmt.Sprintf(", bytes [%d,%d)", e.Off, e.Off+e.Len)
	}
	return fmt.Sprintf("object %s%s: %s: %s: %v", e.Key, where, e.What, e.Reason, e.Err)
}

// Unwrap returns ErrDamaged and the evidence.
func (e *DamageError) Unwrap() []error { return []error{ErrDamaged, e.Err} }
