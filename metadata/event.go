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

// Event is one change of one segment's state, to be published or replayed. It
// is immutable. Made by [Started], [Finished], [DeleteStarted],
// [DeleteFinished], and [Recorded] for what a store already holds.
type Event struct {
	seg    *Segment // the segment as it is after the event
	from   State    // the state the event was decided on
	writer Writer
	proven bool // false for FINISHED without a receipt: not publishable
}

// Started announces a copy: seg with its state set to COPY_SEGMENT_STARTED.
// Custom holds the fingerprint of the plan.
func Started(seg *Segment, w Writer, at int64) (Event, error) {
	return newEvent(seg, None, CopySegmentStarted, w, at, seg.Custom, true)
}

// Finished makes a STARTED segment readable. The receipt must be for this very
// segment; its location becomes the custom metadata. A zero receipt is
// ErrUnproven.
func Finished(started *Segment, r mint.Receipt, w Writer, at int64) (Event, error) {
	if r.IsZero() {
		return Event{}, fmt.Errorf("segment %s: %w", started.ID, ErrUnproven)
	}
	f := r.Facts()
	if f.SegmentID != started.ID || f.Partition != started.Partition {
		return Event{}, fmt.Errorf("segment %s: receipt is for segment %s of %s: %w", started.ID, f.SegmentID, f.Partition, ErrUnproven)
	}
	return newEvent(started, CopySegmentStarted, CopySegmentFinished, w, at, f.Location, true)
}

// DeleteStarted makes a segment unreadable for good. It repeats the custom
// metadata, which Kafka would otherwise lose.
func DeleteStarted(seg *Segment, w Writer, at int64) (Event, error) {
	return newEvent(seg, seg.State, DeleteSegmentStarted, w, at, seg.Custom, true)
}

// DeleteFinished says that the last byte of a segment is gone.
func DeleteFinished(seg *Segment, w Writer, at int64) (Event, error) {
	return newEvent(seg, DeleteSegmentStarted, DeleteSegmentFinished, w, at, seg.Custom, true)
}

// Recorded is the event that says what durable storage already holds, for
// stores that replay a log of events. It can be given to Step, but a FINISHED
// one can never be published: it proves nothing.
func Recorded(seg *Segment) (Event, error) {
	return newEvent(seg, seg.State, seg.State, Writer{BrokerID: seg.BrokerID, LeaderEpoch: seg.LeaderEpoch},
		seg.EventTimestamp, seg.Custom, seg.State != CopySegmentFinished)
}

func newEvent(seg *Segment, from, to State, w Writer, at int64, custom []byte, proven bool) (Event, error) {
	s := seg.Clone()
	s.State = to
	s.BrokerID = w.BrokerID
	s.LeaderEpoch = w.LeaderEpoch
	s.EventTimestamp = at
	s.Custom = slices.Clone(custom)
	if err := s.Validate(); err != nil {
		return Event{}, err
	}
	return Event{seg: s, from: from, writer: w, proven: proven}, nil
}

// Segment returns the segment as it is after the event. It is shared and must
// not be modified; nil for the zero Event.
func (e Event) Segment() *Segment { return e.seg }

// From returns the state the event was decided on, To the one it leads to.
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
// or why it must be refused. It refuses the zero Event and FINISHED without a
// receipt (ErrUnproven).
func (e Event) Publishable() error {
	if e.seg == nil {
		return fmt.Errorf("empty event: %w", ErrTransition)
	}
	if !e.proven {
		return fmt.Errorf("segment %s of %s: %w", e.seg.ID, e.seg.Partition, ErrUnproven)
	}
	return nil
}
