package fetch

import (
	"errors"
	"fmt"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
)

// One sentinel for each decision that a caller can take. docs/errors.md maps
// them to Kafka's error codes.
var (
	// ErrEndOfTier: the offset is at or after the first one that is not tiered.
	// Go on in the local log. It comes as an *EndOfTierError.
	ErrEndOfTier = errors.New("end of the tier")
	// ErrOutOfRange: the offset is below the log start. It comes as an
	// *OutOfRangeError.
	ErrOutOfRange = errors.New("offset is out of range")
	// ErrSkipped: retention passed the reader. It comes as a *SkippedError.
	ErrSkipped = errors.New("data was deleted by retention")
	// ErrUnavailable: it cannot be said, or read, now. Retry.
	ErrUnavailable = errors.New("temporarily unavailable")
	// ErrCorruption: the store does not hold what was copied. It comes as a
	// *CorruptionError.
	ErrCorruption = errors.New("tiered segment is damaged")
	// ErrBatchTooLarge: one batch needs more memory than the cache may use.
	// Raise the budget.
	ErrBatchTooLarge = errors.New("batch is larger than the memory budget")
	// ErrNotReady: FetchMany had to return, or was full, before this partition's
	// turn. Nothing is wrong: ask again.
	ErrNotReady = errors.New("not ready")
	// ErrClosed: the Reader, or the Stream, was closed.
	ErrClosed = errors.New("reader or stream is closed")
)

// EndOfTierError is ErrEndOfTier.
type EndOfTierError struct {
	Partition segment.Partition
	Next      int64 // the first offset that is not tiered, at or after the one asked for
}

// Error names partition and offset.
func (e *EndOfTierError) Error() string {
	return fmt.Sprintf("%v of %v: offset %d is not tiered, go on in the local log", ErrEndOfTier, e.Partition, e.Next)
}

// Is makes errors.Is(err, ErrEndOfTier) true.
func (e *EndOfTierError) Is(target error) bool { return target == ErrEndOfTier }

// OutOfRangeError is ErrOutOfRange.
type OutOfRangeError struct {
	Partition        segment.Partition
	Offset, LogStart int64 // what was asked for, and the first offset that exists
}

// Error names both offsets.
func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("%v: %d of %v, the log starts at %d", ErrOutOfRange, e.Offset, e.Partition, e.LogStart)
}

// Is makes errors.Is(err, ErrOutOfRange) true.
func (e *OutOfRangeError) Is(target error) bool { return target == ErrOutOfRange }

// SkippedError is ErrSkipped: the offset lies in a segment that retention
// deletes or has deleted.
type SkippedError struct {
	Partition segment.Partition
	SegmentID segment.UUID // the segment that is going
	Offset    int64        // what was asked for
	Next      int64        // where to go on: the first offset behind that is not going too, in the tier, in the local log, or a hole
}

// Error names the segment and both offsets.
func (e *SkippedError) Error() string {
	return fmt.Sprintf("%v: offset %d of %v was in segment %v, go on at %d", ErrSkipped, e.Offset, e.Partition, e.SegmentID, e.Next)
}

// Is makes errors.Is(err, ErrSkipped) true.
func (e *SkippedError) Is(target error) bool { return target == ErrSkipped }

// CorruptionError is ErrCorruption: bytes of a FINISHED segment are gone or
// wrong, asked for twice, and metadata has been read again.
type CorruptionError struct {
	Partition segment.Partition
	SegmentID segment.UUID
	Key       string // of the object
	Off, Len  int64  // the bytes of the object that are concerned
	Err       error  // what was found
}

// Error names segment, object and range, each once.
func (e *CorruptionError) Error() string {
	found := e.Err
	if store, ok := found.(*objstore.Error); ok && store.Key == e.Key { //nolint:errorlint // only the outermost repeats the key
		found = store.Err
	}
	return fmt.Sprintf("%v: segment %v of %v, object %s, bytes [%d,%d): %v",
		ErrCorruption, e.SegmentID, e.Partition, e.Key, e.Off, e.Off+e.Len, found)
}

// Is makes errors.Is(err, ErrCorruption) true.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorruption }

// Unwrap returns what was found.
func (e *CorruptionError) Unwrap() error { return e.Err }
