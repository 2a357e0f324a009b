package metadata

import (
	"errors"
	"strings"
	"testing"
)

var partitionStates = []PartitionState{PartitionKept, DeletePartitionMarked, DeletePartitionStarted, DeletePartitionFinished}

// TestStepPartition is Kafka's table of a partition's deletion, for every state
// in the store, every decision, and replays.
func TestStepPartition(t *testing.T) {
	w := Writer{BrokerID: 1, LeaderEpoch: 4}
	for _, have := range partitionStates {
		for _, from := range partitionStates {
			for _, to := range partitionStates[1:] {
				legal := to == from+1 || to == from && from != PartitionKept
				ev, err := DeletePartition(testPartition, from, to, w, 5)
				if legal != (err == nil) || err != nil && !errors.Is(err, ErrTransition) {
					t.Errorf("decided on %s to %s: %v", from, to, err)
				}
				if err != nil {
					continue
				}
				if f, e, ok := ev.Deletion(); f != from || e != to || !ok || ev.Writer() != w || ev.Partition() != testPartition {
					t.Errorf("the event says %s, %s, %v", f, e, ok)
				}
				next, err := StepPartition(have, ev)
				if ok := have == from || have == to; ok != (err == nil) || ok && next != to || !ok && next != have {
					t.Errorf("%s to %s in %s: %s, %v", from, to, have, next, err)
				}
				var te *PartitionTransitionError
				if err != nil && (!errors.As(err, &te) || te.Have != have || te.From != from || te.To != to ||
					!strings.Contains(err.Error(), have.String()) || !strings.Contains(err.Error(), to.String()) || !strings.Contains(err.Error(), testPartition.String())) {
					t.Errorf("wrong evidence: %v", err)
				}
			}
		}
		for _, to := range partitionStates {
			ev, err := RecordedDeletion(testPartition, to, w, 5)
			if (err == nil) != (to != PartitionKept) {
				t.Errorf("replay of %s: %v", to, err)
			}
			if err != nil {
				continue
			}
			if err := ev.Publishable(); !errors.Is(err, ErrUnproven) {
				t.Errorf("a replay can be published: %v", err)
			}
			next, err := StepPartition(have, ev)
			if ok := have.CanBecome(to); ok != (err == nil) || ok && next != to {
				t.Errorf("replay of %s in %s: %s, %v", to, have, next, err)
			}
		}
	}
	if _, err := StepPartition(PartitionKept, Event{}); !errors.Is(err, ErrTransition) {
		t.Errorf("the zero event: %v", err)
	}
	if _, err := StepPartition(PartitionKept, event(fin(1, 0, 9), None)); !errors.Is(err, ErrTransition) {
		t.Errorf("an event of a segment: %v", err)
	}
	if _, err := Step(nil, mustDelete(t, PartitionKept, DeletePartitionMarked)); !errors.Is(err, ErrTransition) {
		t.Errorf("Step of an event of a partition: %v", err)
	}
}

func mustDelete(t *testing.T, from, to PartitionState) Event {
	t.Helper()
	ev, err := DeletePartition(testPartition, from, to, Writer{}, 5)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// TestAdmits: what the rest of a partition forbids.
func TestAdmits(t *testing.T) {
	refuses := func(name string, v *View, ev Event, want error) {
		t.Helper()
		err := v.Admits(ev)
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		if n, aerr := v.Apply(ev); want != nil && (aerr == nil || n != nil) {
			t.Errorf("%s: Apply: %v", name, aerr)
		}
	}
	start := func(id int, start, end int64, epochs ...int64) Event {
		return event(seg(id, CopySegmentStarted, start, end, epochs...), None)
	}
	finishing := func(id int, start, end int64, epochs ...int64) Event {
		return event(fin(id, start, end, epochs...), CopySegmentStarted)
	}
	v := finish(NewView(testPartition), fin(1, 0, 9), fin(2, 10, 19, 0, 10, 1, 15)).With(seg(3, CopySegmentStarted, 0, 9)).With(seg(4, CopySegmentStarted, 20, 29))
	refuses("STARTED of a range that is readable", v, start(9, 0, 9), ErrDuplicate)
	refuses("FINISHED of it", v, finishing(3, 0, 9), ErrDuplicate)
	refuses("of several epochs", v, start(9, 10, 19, 0, 10, 1, 15), ErrDuplicate)
	refuses("repeated STARTED", v, start(3, 0, 9), nil)
	refuses("repeated FINISHED", v, finishing(1, 0, 9), nil)
	refuses("another end", v, start(9, 0, 10), nil)
	refuses("another start", v, start(9, 1, 9), nil)
	refuses("another history", v, start(9, 0, 9, 7, 0), nil)
	refuses("part of the history", v, start(9, 10, 19, 0, 10), nil)
	refuses("a range that is only announced", v, start(9, 20, 29), nil)
	refuses("DELETE_STARTED", v, event(seg(3, DeleteSegmentStarted, 0, 9), CopySegmentStarted), nil)
	replay, err := Recorded(fin(3, 0, 9))
	if err != nil {
		t.Fatal(err)
	}
	refuses("a replay, as in Kafka", v, replay, nil)
	refuses("after the first was deleted", v.With(seg(1, DeleteSegmentStarted, 0, 9)), start(9, 0, 9), nil)

	marked := v.WithInfo(PartitionInfo{Deletion: DeletePartitionMarked})
	refuses("STARTED in a partition that is being deleted", marked, start(9, 30, 39), ErrTransition)
	refuses("FINISHED in it", marked, finishing(4, 20, 29), ErrTransition)
	refuses("repeated FINISHED in it", marked, finishing(1, 0, 9), nil)
	refuses("DELETE_STARTED in it", marked, event(seg(1, DeleteSegmentStarted, 0, 9), CopySegmentFinished), nil)
	refuses("the next step", marked, mustDelete(t, DeletePartitionMarked, DeletePartitionStarted), nil)
	started := v.WithInfo(PartitionInfo{Deletion: DeletePartitionStarted})
	refuses("the end before the segments'", started, mustDelete(t, DeletePartitionStarted, DeletePartitionFinished), ErrTransition)

	n, err := NewView(testPartition).Apply(mustDelete(t, PartitionKept, DeletePartitionMarked))
	if err != nil || n.Info().Deletion != DeletePartitionMarked {
		t.Errorf("%v, %v", n, err)
	}
	again, err := n.Apply(mustDelete(t, PartitionKept, DeletePartitionMarked))
	if err != nil || again != n {
		t.Errorf("repeated: %v", err)
	}
	if _, err := n.Apply(Event{}); !errors.Is(err, ErrTransition) {
		t.Errorf("the zero event: %v", err)
	}
}
