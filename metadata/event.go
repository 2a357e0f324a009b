package metadata

import (
	"fmt"
	"slices"

	"github.com/segtier/segtier/internal/mint"
	"github.com/segtier/segtier/segment"
)

// Writer is who writes an event: the broker and the leader epoch under which it
// leads the partition. Stores that can compare refuse a lower epoch than one
// they have seen.
type Writer struct {
	BrokerID    int32
	LeaderEpoch int32
}

// Receipt is the proof that [Finished] wants. Only transfer.Upload and
// transfer.Confirm make one; the zero Receipt proves nothing.
type Receipt = mint.Receipt

// Event is one change of one segment's state, to be published or replayed. It
// is immutable. Made by [Started], [Finished], [DeleteStarted],
// [DeleteFinished], and [Recorded] for what a store already holds.
type Event struct {
	seg      *Segment // the segment as it is after the event; nobody else has it
	from     State    // the state the event was decided on
	writer   Writer
	recorded bool // a replay: not publishable, and not decided on anything
}

// Started announces a copy: seg with its state set to COPY_SEGMENT_STARTED.
// Custom holds the fingerprint of the plan. at is the writer's clock in ms since
// 1970, here and below.
func Started(seg *Segment, w Writer, at int64) (Event, error) {
	return decided(seg, None, CopySegmentStarted, w, at, seg.Custom)
}

// Finished makes a STARTED segment readable. The receipt must be for this very
// segment; its location becomes the custom metadata. Any other receipt, and the
// zero one, is ErrUnproven.
func Finished(started *Segment, r Receipt, w Writer, at int64) (Event, error) {
	if r.IsZero() {
		return Event{}, fmt.Errorf("segment %s of %s: %w", started.ID, started.Partition, ErrUnproven)
	}
	f := r.Facts()
	if f.SegmentID != started.ID || f.Partition != started.Partition {
		return Event{}, fmt.Errorf("segment %s of %s: receipt is for segment %s of %s: %w", started.ID, started.Partition, f.SegmentID, f.Partition, ErrUnproven)
	}
	if f.StartOffset != started.StartOffset || f.EndOffset != started.EndOffset || f.LogSize != started.SizeBytes {
		return Event{}, fmt.Errorf("segment %s of %s: receipt is for offsets %d to %d in %d bytes, the record says %d to %d in %d: %w",
			started.ID, started.Partition, f.StartOffset, f.EndOffset, f.LogSize, started.StartOffset, started.EndOffset, started.SizeBytes, ErrUnproven)
	}
	if len(f.Location) == 0 {
		return Event{}, fmt.Errorf("segment %s of %s: receipt does not say where the object is: %w", started.ID, started.Partition, ErrUnproven)
	}
	return decided(started, CopySegmentStarted, CopySegmentFinished, w, at, f.Location)
}

// DeleteStarted makes a segment unreadable for good. It is decided on seg as it
// is given here, state and all. It repeats the custom metadata, which Kafka would
// otherwise lose.
func DeleteStarted(seg *Segment, w Writer, at int64) (Event, error) {
	return decided(seg, seg.State, DeleteSegmentStarted, w, at, seg.Custom)
}

// DeleteFinished says that the last byte of a segment is gone.
func DeleteFinished(seg *Segment, w Writer, at int64) (Event, error) {
	return decided(seg, DeleteSegmentStarted, DeleteSegmentFinished, w, at, seg.Custom)
}

// Recorded is the event that says what durable storage already holds, for
// stores that replay a log of events: Step takes it whatever state it was decided
// on, as Kafka does. It can never be published: it proves nothing.
func Recorded(seg *Segment) (Event, error) {
	ev, err := newEvent(seg, seg.State, Writer{BrokerID: seg.BrokerID, LeaderEpoch: seg.LeaderEpoch}, seg.EventTimestamp, seg.Custom)
	if err != nil {
		return Event{}, err
	}
	ev.from, ev.recorded = seg.State, true
	return ev, nil
}

// decided is an event that somebody wants to happen now.
func decided(seg *Segment, from, to State, w Writer, at int64, custom []byte) (Event, error) {
	if !from.CanBecome(to) {
		return Event{}, &TransitionError{Partition: seg.Partition, ID: seg.ID, Have: from, From: from, To: to}
	}
	ev, err := newEvent(seg, to, w, at, custom)
	if err != nil {
		return Event{}, err
	}
	ev.from = from
	return ev, nil
}

func newEvent(seg *Segment, to State, w Writer, at int64, custom []byte) (Event, error) {
	s := seg.Clone()
	s.State = to
	s.BrokerID = w.BrokerID
	s.LeaderEpoch = w.LeaderEpoch
	s.EventTimestamp = at
	s.Custom = slices.Clone(custom)
	if err := s.Validate(); err != nil {
		return Event{}, err
	}
	return Event{seg: s, writer: w}, nil
}

// Segment returns a copy of the segment as it is after the event; nil for the
// zero Event. A copy, because an Event that others can write to proves nothing.
func (e Event) Segment() *Segment {
	if e.seg == nil {
		return nil
	}
	return e.seg.Clone()
}

// From returns the state the event was decided on; of a replay, the one it
// leads to.
func (e Event) From() State { return e.from }

// To returns the state the event leads to.
func (e Event) To() State {
	if e.seg == nil {
		return None
	}
	return e.seg.State
}

// Writer returns who wrote the event.
func (e Event) Writer() Writer { return e.writer }

// Partition returns the partition the event belongs to.
func (e Event) Partition() segment.Partition {
	if e.seg == nil {
		return segment.Partition{}
	}
	return e.seg.Partition
}

// Publishable is the first thing every Store asks of an event in Publish: nil,
// or why it must be refused. It refuses the zero Event (ErrTransition) and what
// [Recorded] made (ErrUnproven). FINISHED that passes was made with a receipt.
func (e Event) Publishable() error {
	if e.seg == nil {
		return errEmptyEvent
	}
	if e.recorded {
		return fmt.Errorf("segment %s of %s: a replayed %s proves nothing and cannot be published: %w", e.seg.ID, e.seg.Partition, e.seg.State, ErrUnproven)
	}
	return nil
}

var errEmptyEvent = fmt.Errorf("empty event: %w", ErrTransition)
