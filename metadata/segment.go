package metadata

import (
	"errors"
	"fmt"
	"slices"

	"github.com/segtier/segtier/segment"
)

// Segment is everything known of one remote segment: Kafka's
// RemoteLogSegmentMetadata. Of a Segment that a View returns, Epochs and Custom
// are shared and must not be modified; the rest is the caller's.
type Segment struct {
	Partition   segment.Partition
	ID          segment.UUID
	StartOffset int64
	EndOffset   int64 // inclusive; may lie beyond the last record

	MaxTimestamp   int64 // ms; greatest of the batches, or the log's mtime if they have none
	EventTimestamp int64 // ms; the writer's clock at the last event
	BrokerID       int32 // who wrote the last event

	// LeaderEpoch is the greatest leader epoch under which an event of this
	// segment was written, -1 if the store does not keep it.
	LeaderEpoch int32

	SizeBytes int64 // of the log alone, as Kafka counts

	// Epochs are the leader epochs with offsets in this segment and where each
	// begins in it; the first begins at StartOffset. Not empty.
	Epochs segment.Lineage

	// Custom is Kafka's custom metadata, opaque here: the plan's fingerprint
	// while STARTED, the object's location from FINISHED on. At most
	// MaxCustomSize bytes.
	Custom []byte

	State         State
	TxnIndexEmpty bool // known to hold no aborted transaction
}

// MaxCustomSize is Kafka's default for the greatest size of custom metadata
// (remote.log.metadata.custom.metadata.max.bytes).
const MaxCustomSize = 128

// MaxSegmentSize is the greatest size of a log file: Kafka's positions in it
// are 32-bit.
const MaxSegmentSize = 1<<31 - 1

// Validate reports what makes s impossible, whatever its state.
func (s *Segment) Validate() error {
	if err := s.Partition.Validate(); err != nil {
		return err
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("segment %s of %s: %w", s.ID, s.Partition, fmt.Errorf(format, args...))
	}
	switch {
	case s.ID.IsZero():
		return fail("no segment id")
	case s.StartOffset < 0 || s.EndOffset < s.StartOffset:
		return fail("offsets %d to %d", s.StartOffset, s.EndOffset)
	case s.SizeBytes < 0 || s.SizeBytes > MaxSegmentSize:
		return fail("size of %d bytes", s.SizeBytes)
	case s.LeaderEpoch < -1:
		return fail("leader epoch %d of the writer", s.LeaderEpoch)
	case len(s.Epochs) == 0:
		return fail("no leader epochs")
	case s.Epochs[0].Start != s.StartOffset:
		return fail("first leader epoch begins at %d, not at %d", s.Epochs[0].Start, s.StartOffset)
	case s.Epochs[len(s.Epochs)-1].Start > s.EndOffset:
		return fail("last leader epoch begins at %d, beyond the end %d", s.Epochs[len(s.Epochs)-1].Start, s.EndOffset)
	case len(s.Custom) > MaxCustomSize:
		return fail("custom metadata of %d bytes, the limit is %d", len(s.Custom), MaxCustomSize)
	case s.State < CopySegmentStarted || s.State > DeleteSegmentFinished:
		return fail("state %d", s.State)
	}
	if err := s.Epochs.Validate(); err != nil {
		return fail("%w", err)
	}
	return nil
}

// Clone returns a deep copy.
func (s *Segment) Clone() *Segment {
	c := *s
	c.Epochs = slices.Clone(s.Epochs)
	c.Custom = slices.Clone(s.Custom)
	return &c
}

// Errors of Store and View. docs/errors.md maps them to Kafka's error codes.
var (
	// ErrNotReady: the partition's metadata is still being loaded. Retry.
	ErrNotReady = errors.New("metadata of the partition is not loaded yet")
	// ErrIncomplete: the partition has records that could not be understood. What
	// is known can be read; that something is not known says nothing. Retry later;
	// expire, collect and delete nothing.
	ErrIncomplete = errors.New("metadata of the partition is incomplete")
	// ErrUnknownPartition: this store holds only what it was assigned (one that holds
	// everything, as metadata/embedded does, never says so), and was not told to hold
	// the partition
	// (Store.Assign). Nothing is said about whether it has segments.
	ErrUnknownPartition = errors.New("partition is not held by this metadata store")
	// ErrForeignSegment: the segment was written by another storage plugin. It is
	// listed, and never fetched, expired or called corrupt.
	ErrForeignSegment = errors.New("segment was written by another storage plugin")
	// ErrUnavailable: metadata cannot be read or written now. Retry. The outcome
	// of a Publish that returned it is unknown until the state was read back.
	ErrUnavailable = errors.New("metadata is unavailable")
	// ErrFenced: a writer with a greater leader epoch has taken the partition
	// over. Stop writing.
	ErrFenced = errors.New("writer was fenced by a newer leader")
	// ErrTransition: the event does not follow from the segment's state. Read
	// the state again and decide anew.
	ErrTransition = errors.New("illegal state transition")
	// ErrDuplicate: the range is readable already, in the same leader epochs, under
	// another segment id. Use that one and give the own id up.
	ErrDuplicate = errors.New("range is readable under another segment id")
	// ErrUnproven: an event wants to be published without proof: FINISHED
	// without a receipt, or a replay.
	ErrUnproven = errors.New("event without a receipt")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("metadata store is closed")
	// ErrReadOnly: the store was opened read-only.
	ErrReadOnly = errors.New("metadata was opened read-only")
	// ErrLocked: another process has the metadata file open, or this one has already.
	ErrLocked = errors.New("metadata file is in use by another process, or opened in this one before")
	// ErrCorrupt: stored metadata cannot be understood.
	ErrCorrupt = errors.New("metadata is corrupt")
)

// TransitionError is ErrTransition with its evidence.
type TransitionError struct {
	Partition segment.Partition
	ID        segment.UUID
	Have      State // the segment's state in the store
	From, To  State // what the event was decided on and what it asks for

	// Reason says what is wrong although the states would allow it, "" if they
	// do not.
	Reason string
}

// Error names both states and the segment.
func (e *TransitionError) Error() string {
	s := fmt.Sprintf("segment %s of %s is in %s: cannot go from %s to %s", e.ID, e.Partition, e.Have, e.From, e.To)
	if e.Reason != "" {
		s += ": the event has " + e.Reason
	}
	return s
}

// Is makes errors.Is(err, ErrTransition) true.
func (e *TransitionError) Is(target error) bool { return target == ErrTransition }
