package metadata

import (
	"bytes"
	"slices"
)

// Step applies ev to the current state of its segment, cur (nil: there is no
// record of it), and returns the segment as it is afterwards. It is pure: it
// changes neither argument, and what it returns is shared and must not be
// modified.
//
// An event whose effect is there already changes nothing: Step returns cur
// itself, so that every writer may repeat what it has published, whatever
// happened since its first try. What does not follow from cur is a
// *[TransitionError]:
//
//   - a step that Kafka's table does not allow ([State.CanBecome]),
//   - an event decided on another state than cur's (replayed events excepted),
//   - an event that says something else of what cannot change: offsets, epochs,
//     size, timestamps of the data, and from FINISHED on the custom metadata.
func Step(cur *Segment, ev Event) (*Segment, error) {
	next := ev.seg
	if next == nil {
		return nil, errEmptyEvent
	}
	have := None
	if cur != nil {
		have = cur.State
	}
	refuse := func(reason string) error {
		return &TransitionError{Partition: next.Partition, ID: next.ID, Have: have, From: ev.from, To: next.State, Reason: reason}
	}
	if cur != nil {
		if field := changed(cur, next); field != "" {
			return nil, refuse("another " + field)
		}
	}
	if have == next.State {
		// Both states have custom metadata that decides over bytes: the plan's
		// fingerprint, the object's location. A second opinion is no repetition.
		if (have == CopySegmentStarted || have == CopySegmentFinished) && !bytes.Equal(cur.Custom, next.Custom) {
			return nil, refuse("other custom metadata")
		}
		return cur, nil
	}
	if !have.CanBecome(next.State) || !ev.recorded && ev.from != have {
		return nil, refuse("")
	}
	if cur == nil {
		return next, nil
	}
	return merge(cur, next, ev, refuse)
}

// merge returns next with what it takes over from cur.
func merge(cur, next *Segment, ev Event, refuse func(string) error) (*Segment, error) {
	custom := next.Custom
	if next.State == DeleteSegmentStarted || next.State == DeleteSegmentFinished {
		// A deletion needs the location. Kafka loses it when a writer does not
		// repeat it; here it stays.
		switch {
		case len(custom) == 0:
			custom = cur.Custom
		case !ev.recorded && !bytes.Equal(custom, cur.Custom):
			return nil, refuse("other custom metadata")
		}
	}
	epoch := max(cur.LeaderEpoch, next.LeaderEpoch)
	if epoch == next.LeaderEpoch && bytes.Equal(custom, next.Custom) {
		return next, nil
	}
	merged := *next
	merged.LeaderEpoch = epoch
	merged.Custom = custom
	return &merged, nil
}

// changed names the first field in which b differs from a although no event may
// change it, "" if there is none.
func changed(a, b *Segment) string {
	switch {
	case a.ID != b.ID:
		return "segment id"
	case a.Partition != b.Partition:
		return "partition"
	case a.StartOffset != b.StartOffset:
		return "start offset"
	case a.EndOffset != b.EndOffset:
		return "end offset"
	case a.SizeBytes != b.SizeBytes:
		return "size"
	case a.MaxTimestamp != b.MaxTimestamp:
		return "greatest timestamp"
	case a.TxnIndexEmpty != b.TxnIndexEmpty:
		return "mark of an empty transaction index"
	case !slices.Equal(a.Epochs, b.Epochs):
		return "list of leader epochs"
	}
	return ""
}
