package metadata

import "fmt"

// State is the state of a segment. The values are Kafka's
// RemoteLogSegmentState ids, plus None.
type State int8

const (
	None                  State = -1 // no record of the segment
	CopySegmentStarted    State = 0  // announced; data may be partial; not readable
	CopySegmentFinished   State = 1  // durable and readable
	DeleteSegmentStarted  State = 2  // being deleted; must not be read
	DeleteSegmentFinished State = 3  // gone
)

// String returns Kafka's name of the state.
func (s State) String() string {
	switch s {
	case None:
		return "NONE"
	case CopySegmentStarted:
		return "COPY_SEGMENT_STARTED"
	case CopySegmentFinished:
		return "COPY_SEGMENT_FINISHED"
	case DeleteSegmentStarted:
		return "DELETE_SEGMENT_STARTED"
	case DeleteSegmentFinished:
		return "DELETE_SEGMENT_FINISHED"
	}
	return fmt.Sprintf("STATE_%d", int8(s))
}

// CanBecome reports whether Kafka allows the transition. Staying in a state is
// allowed, so that events can be repeated, except in None.
func (s State) CanBecome(to State) bool {
	switch s {
	case None:
		return to == CopySegmentStarted
	case CopySegmentStarted:
		return to == CopySegmentStarted || to == CopySegmentFinished || to == DeleteSegmentStarted
	case CopySegmentFinished:
		return to == CopySegmentFinished || to == DeleteSegmentStarted
	case DeleteSegmentStarted:
		return to == DeleteSegmentStarted || to == DeleteSegmentFinished
	case DeleteSegmentFinished:
		return to == DeleteSegmentFinished
	}
	return false
}
