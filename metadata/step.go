package metadata

import (
	"bytes"
	"slices"
)

// Step applies ev to the current state of its segment, cur (nil: there is no
// record of it), and returns the segment as it is afterwards. It is pure: it
// changes neither argument, and what it returns shares no memory with them,
// unless it is cur itself.
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
	next = next.Clone()
	if cur == nil {
		return next, nil
	}
	next.LeaderEpoch = max(cur.LeaderEpoch, next.LeaderEpoch)
	if next.State == DeleteSegmentStarted || next.State == DeleteSegmentFinished {
		// A deletion needs the location. Kafka loses it when a writer does not
		// repeat it; here it stays.
		switch {
		case len(next.Custom) == 0:
			next.Custom = slices.Clone(cur.Custom)
		case !ev.recorded && !bytes.Equal(next.Custom, cur.Custom):
			return nil, refuse("other custom metadata")
		}
	}
	return next, nil
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
