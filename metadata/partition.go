package metadata

import (
	"context"
	"fmt"

	"github.com/segtier/segtier/segment"
)

// PartitionState says how far the deletion of a whole partition is. The values
// are Kafka's RemotePartitionDeleteState ids plus one, so that zero is a
// partition that nobody deletes.
type PartitionState int8

const (
	PartitionKept           PartitionState = iota // nobody deletes it
	DeletePartitionMarked                         // to be deleted; nothing is copied to it any more
	DeletePartitionStarted                        // its segments are being deleted
	DeletePartitionFinished                       // its last segment is gone
)

// String returns Kafka's name of the state.
func (s PartitionState) String() string {
	switch s {
	case PartitionKept:
		return "NONE"
	case DeletePartitionMarked:
		return "DELETE_PARTITION_MARKED"
	case DeletePartitionStarted:
		return "DELETE_PARTITION_STARTED"
	case DeletePartitionFinished:
		return "DELETE_PARTITION_FINISHED"
	}
	return fmt.Sprintf("STATE_%d", int8(s))
}

// CanBecome reports whether Kafka allows the transition: one step at a time, and
// staying, so that events can be repeated, except in PartitionKept.
func (s PartitionState) CanBecome(to PartitionState) bool {
	switch s {
	case PartitionKept:
		return to == DeletePartitionMarked
	case DeletePartitionMarked, DeletePartitionStarted:
		return to == s || to == s+1
	case DeletePartitionFinished:
		return to == DeletePartitionFinished
	}
	return false
}

// deletion is an Event's part where it is of a whole partition.
type deletion struct {
	partition segment.Partition
	from, to  PartitionState
	at        int64
}

// DeletePartition takes the deletion of a partition one step further, from the
// state that was decided on to the next. at is the writer's clock in ms.
func DeletePartition(p segment.Partition, from, to PartitionState, w Writer, at int64) (Event, error) {
	if err := p.Validate(); err != nil {
		return Event{}, err
	}
	if !from.CanBecome(to) {
		return Event{}, &PartitionTransitionError{Partition: p, Have: from, From: from, To: to}
	}
	return Event{del: &deletion{p, from, to, at}, writer: w}, nil
}

// RecordedDeletion is [Recorded] for the deletion of a partition.
func RecordedDeletion(p segment.Partition, state PartitionState, w Writer, at int64) (Event, error) {
	if err := p.Validate(); err != nil {
		return Event{}, err
	}
	if state < DeletePartitionMarked || state > DeletePartitionFinished {
		return Event{}, &PartitionTransitionError{Partition: p, Have: PartitionKept, From: state, To: state}
	}
	return Event{del: &deletion{p, state, state, at}, writer: w, recorded: true}, nil
}

// StepPartition is [Step] for the deletion of a partition: it applies ev to the
// state it is in and returns the state afterwards. Repeating an event changes
// nothing; what does not follow is a *[PartitionTransitionError].
func StepPartition(cur PartitionState, ev Event) (PartitionState, error) {
	d := ev.del
	if d == nil {
		return cur, errEmptyEvent
	}
	if cur == d.to {
		return cur, nil
	}
	if !cur.CanBecome(d.to) || !ev.recorded && d.from != cur {
		return cur, &PartitionTransitionError{Partition: d.partition, Have: cur, From: d.from, To: d.to}
	}
	return d.to, nil
}

// PartitionTransitionError is ErrTransition for the deletion of a partition,
// with its evidence.
type PartitionTransitionError struct {
	Partition segment.Partition
	Have      PartitionState // in the store
	From, To  PartitionState // what the event was decided on and what it asks for

	// Live is how many segments have not ended yet, where that is why.
	Live int
}

// Error names both states and the partition.
func (e *PartitionTransitionError) Error() string {
	s := fmt.Sprintf("partition %s is in %s: cannot go from %s to %s", e.Partition, e.Have, e.From, e.To)
	if e.Live > 0 {
		s += fmt.Sprintf(": %d of its segments have not ended", e.Live)
	}
	return s
}

// Is makes errors.Is(err, ErrTransition) true.
func (e *PartitionTransitionError) Is(target error) bool { return target == ErrTransition }

// PartitionInfo is what a View knows of its partition besides the segments: what
// a store must keep when it forgets segments that have ended.
type PartitionInfo struct {
	LogStart int64          // first offset that a reader may read, 0 if nobody has moved it
	Deletion PartitionState // how far the partition's deletion is
	Epochs   []EpochInfo    // ascending by epoch

	// Incomplete counts records of the partition that could not be understood:
	// what they say is missing here. See ErrIncomplete.
	Incomplete int
}

// EpochInfo is what is known of a leader epoch, whether there are segments of it
// any more or not.
type EpochInfo struct {
	Epoch   int32
	Start   int64 // least offset at which a segment says that the epoch begins
	Highest int64 // greatest offset of the epoch that was ever FINISHED, -1 if none
}

// LogStarts is what a Store that keeps the log start of partitions implements
// too; for others the host tells it with each read.
type LogStarts interface {
	// LogStart returns the first offset of p that may be read. It does no I/O.
	// Not ok: nobody has set it, or p is unknown.
	LogStart(p segment.Partition) (offset int64, ok bool)

	// SetLogStart moves the log start forward, durably and visibly in the View,
	// as Publish does; that it is there or further already is success. It must
	// come before anything below it is deleted. Errors are those of Publish.
	SetLogStart(ctx context.Context, p segment.Partition, offset int64, w Writer) error
}
