package metadata

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/segtier/segtier/segment"
)

var testPartition = segment.Partition{Topic: "orders", TopicID: segment.UUID{15: 1}, Number: 3}

// testID returns a small id for a number.
func testID(n int) segment.UUID { return segment.UUID{0: 7, 14: byte(n >> 8), 15: byte(n)} }

// seg returns a segment; epochs are pairs of epoch and start, none is epoch 0.
func seg(id int, state State, start, end int64, epochs ...int64) *Segment {
	s := &Segment{
		Partition: testPartition, ID: testID(id), State: state,
		StartOffset: start, EndOffset: end,
		MaxTimestamp: 1000 + end, EventTimestamp: 5, BrokerID: 1, LeaderEpoch: 4, SizeBytes: 100,
		Custom: []byte{byte(state)},
	}
	if state == DeleteSegmentStarted || state == DeleteSegmentFinished {
		s.Custom = []byte{byte(CopySegmentFinished)}
	}
	if len(epochs) == 0 {
		epochs = []int64{0, start}
	}
	for i := 0; i < len(epochs); i += 2 {
		s.Epochs = append(s.Epochs, segment.EpochStart{Epoch: int32(epochs[i]), Start: epochs[i+1]})
	}
	return s
}

// event is what the constructors make, for any pair of states, legal or not.
func event(s *Segment, from State) Event {
	return Event{seg: s, from: from, writer: Writer{BrokerID: s.BrokerID, LeaderEpoch: s.LeaderEpoch}}
}

var states = []State{None, CopySegmentStarted, CopySegmentFinished, DeleteSegmentStarted, DeleteSegmentFinished}

// TestStepTransitions is Kafka's table, row by row, for an event that was decided
// on the state that the segment is in.
func TestStepTransitions(t *testing.T) {
	legal := map[State][]State{
		None:                  {CopySegmentStarted},
		CopySegmentStarted:    {CopySegmentStarted, CopySegmentFinished, DeleteSegmentStarted},
		CopySegmentFinished:   {CopySegmentFinished, DeleteSegmentStarted},
		DeleteSegmentStarted:  {DeleteSegmentStarted, DeleteSegmentFinished},
		DeleteSegmentFinished: {DeleteSegmentFinished},
	}
	for _, have := range states {
		for _, to := range states[1:] {
			want := false
			for _, s := range legal[have] {
				want = want || s == to
			}
			t.Run(fmt.Sprintf("%s to %s", have, to), func(t *testing.T) {
				if have.CanBecome(to) != want {
					t.Errorf("CanBecome is %v", !want)
				}
				var cur *Segment
				if have != None {
					cur = seg(1, have, 10, 20)
				}
				after := seg(1, to, 10, 20)
				if cur != nil && to == DeleteSegmentStarted {
					after.Custom = cur.Custom // as every writer repeats it
				}
				next, err := Step(cur, event(after, have))
				if !want {
					checkRefused(t, err, have, have, to)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if next.State != to {
					t.Errorf("state is %s afterwards", next.State)
				}
				if have == to && next != cur {
					t.Error("a repeated event changed the segment")
				}
			})
		}
	}
}

// TestStepDecidedOn: an event that was decided on another state than the
// segment's is refused, unless its effect is there already.
func TestStepDecidedOn(t *testing.T) {
	for _, have := range states[1:] {
		for _, from := range states {
			for _, to := range states[1:] {
				if from == have || !from.CanBecome(to) {
					continue
				}
				cur := seg(1, have, 10, 20)
				next, err := Step(cur, event(seg(1, to, 10, 20), from))
				if have == to {
					if err != nil || next != cur {
						t.Errorf("repetition of %s to %s in %s: %v", from, to, have, err)
					}
					continue
				}
				checkRefused(t, err, have, from, to)
			}
		}
	}
}

// TestStepRecorded: a replay was decided on nothing we know; only the table counts.
func TestStepRecorded(t *testing.T) {
	for _, have := range states {
		for _, to := range states[1:] {
			var cur *Segment
			if have != None {
				cur = seg(1, have, 10, 20)
			}
			ev, err := Recorded(seg(1, to, 10, 20))
			if err != nil {
				t.Fatal(err)
			}
			next, err := Step(cur, ev)
			if !have.CanBecome(to) {
				checkRefused(t, err, have, to, to)
			} else if err != nil || next.State != to {
				t.Errorf("replay of %s in %s: %v, %v", to, have, next, err)
			}
		}
	}
}

func checkRefused(t *testing.T, err error, have, from, to State) {
	t.Helper()
	var te *TransitionError
	if !errors.Is(err, ErrTransition) || !errors.As(err, &te) {
		t.Fatalf("%s to %s in %s: got %v, want a TransitionError", from, to, have, err)
	}
	if te.Have != have || te.From != from || te.To != to || te.ID != testID(1) || te.Partition != testPartition {
		t.Errorf("wrong evidence: %+v", te)
	}
	for _, s := range []string{te.ID.String(), have.String(), to.String()} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("message does not name %s: %v", s, err)
		}
	}
}

// TestStepImmutable: what a segment is cannot change between two events.
func TestStepImmutable(t *testing.T) {
	change := map[string]func(s *Segment){
		"start offset":       func(s *Segment) { s.StartOffset--; s.Epochs[0].Start-- },
		"end offset":         func(s *Segment) { s.EndOffset++ },
		"size":               func(s *Segment) { s.SizeBytes++ },
		"greatest timestamp": func(s *Segment) { s.MaxTimestamp++ },
		"transaction index":  func(s *Segment) { s.TxnIndexEmpty = true },
		"leader epochs":      func(s *Segment) { s.Epochs[0].Epoch++ },
		"partition":          func(s *Segment) { s.Partition.Number++ },
		"segment id":         func(s *Segment) { s.ID[0]++ },
	}
	for what, f := range change {
		for _, to := range []State{CopySegmentStarted, CopySegmentFinished, DeleteSegmentStarted} {
			s := seg(1, to, 10, 20)
			s.Custom = []byte{byte(CopySegmentStarted)}
			f(s)
			_, err := Step(seg(1, CopySegmentStarted, 10, 20), event(s, CopySegmentStarted))
			if !errors.Is(err, ErrTransition) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s with another %s: %v", to, what, err)
			}
		}
	}
}

// TestStepCustomMetadata: a repeated event with other custom metadata is none,
// and a deletion keeps the location.
func TestStepCustomMetadata(t *testing.T) {
	for _, state := range []State{CopySegmentStarted, CopySegmentFinished} {
		other := seg(1, state, 10, 20)
		other.Custom = []byte("elsewhere")
		for _, recorded := range []bool{false, true} {
			ev := event(other, state)
			ev.recorded = recorded
			if _, err := Step(seg(1, state, 10, 20), ev); !errors.Is(err, ErrTransition) {
				t.Errorf("%s again with other custom metadata, replayed %v: %v", state, recorded, err)
			}
		}
	}
	del := seg(1, DeleteSegmentStarted, 10, 20)
	del.Custom = nil
	next, err := Step(seg(1, CopySegmentFinished, 10, 20), event(del, CopySegmentFinished))
	if err != nil || len(next.Custom) != 1 {
		t.Errorf("deletion without custom metadata lost it: %v, %v", next, err)
	}
	del.Custom = []byte("elsewhere")
	if _, err := Step(seg(1, CopySegmentFinished, 10, 20), event(del, CopySegmentFinished)); !errors.Is(err, ErrTransition) {
		t.Errorf("deletion with another location: %v", err)
	}
}

// TestStepTakesOver: what an event replaces and what stays, and that neither
// argument changes.
func TestStepTakesOver(t *testing.T) {
	cur := seg(1, CopySegmentStarted, 10, 20)
	cur.LeaderEpoch = 9
	fin := seg(1, CopySegmentFinished, 10, 20)
	fin.BrokerID, fin.LeaderEpoch, fin.EventTimestamp = 2, -1, 77
	curWas, finWas := cur.Clone(), fin.Clone()
	next, err := Step(cur, event(fin, CopySegmentStarted))
	if err != nil {
		t.Fatal(err)
	}
	if next.BrokerID != 2 || next.EventTimestamp != 77 || next.LeaderEpoch != 9 || string(next.Custom) != string(fin.Custom) {
		t.Errorf("got %+v", next)
	}
	if !reflect.DeepEqual(cur, curWas) || !reflect.DeepEqual(fin, finWas) {
		t.Error("Step changed an argument")
	}
}

func TestStepEmptyEvent(t *testing.T) {
	if _, err := Step(nil, Event{}); !errors.Is(err, ErrTransition) {
		t.Errorf("got %v", err)
	}
}

func TestSegmentValidate(t *testing.T) {
	if err := seg(1, CopySegmentFinished, 0, 9).Validate(); err != nil {
		t.Fatal(err)
	}
	bad := map[string]func(s *Segment){
		"no id":              func(s *Segment) { s.ID = segment.UUID{} },
		"negative start":     func(s *Segment) { s.StartOffset = -1 },
		"end before start":   func(s *Segment) { s.EndOffset = -1 },
		"negative size":      func(s *Segment) { s.SizeBytes = -1 },
		"size above 2 GiB":   func(s *Segment) { s.SizeBytes = MaxSegmentSize + 1 },
		"no epochs":          func(s *Segment) { s.Epochs = nil },
		"epochs begin later": func(s *Segment) { s.Epochs[0].Start = 1 },
		"epoch beyond end":   func(s *Segment) { s.Epochs = segment.Lineage{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 10}} },
		"epochs descend":     func(s *Segment) { s.Epochs = segment.Lineage{{Epoch: 1, Start: 0}, {Epoch: 0, Start: 5}} },
		"custom metadata":    func(s *Segment) { s.Custom = make([]byte, MaxCustomSize+1) },
		"state":              func(s *Segment) { s.State = 4 },
		"no state":           func(s *Segment) { s.State = None },
		"leader epoch":       func(s *Segment) { s.LeaderEpoch = -2 },
		"partition":          func(s *Segment) { s.Partition.Topic = ".." },
	}
	for name, f := range bad {
		s := seg(1, CopySegmentFinished, 0, 9)
		f(s)
		if s.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestEventConstructors: what can be made, and that an Event is a copy.
func TestEventConstructors(t *testing.T) {
	w := Writer{BrokerID: 8, LeaderEpoch: 6}
	s := seg(1, CopySegmentStarted, 10, 20)
	ev, err := Started(s, w, 42)
	if err != nil {
		t.Fatal(err)
	}
	s.Custom[0], s.Epochs[0].Epoch = 99, 99
	got := ev.Segment()
	if got.Custom[0] != 0 || got.Epochs[0].Epoch != 0 || got.BrokerID != 8 || got.LeaderEpoch != 6 || got.EventTimestamp != 42 {
		t.Errorf("got %+v", got)
	}
	if ev.From() != None || ev.To() != CopySegmentStarted || ev.Writer() != w || ev.Partition() != testPartition {
		t.Errorf("got %v from %v by %v", ev.To(), ev.From(), ev.Writer())
	}
	if err := ev.Publishable(); err != nil {
		t.Error(err)
	}
	for _, from := range states[1:] {
		_, err := DeleteStarted(seg(1, from, 10, 20), w, 42)
		if (err == nil) != from.CanBecome(DeleteSegmentStarted) {
			t.Errorf("DeleteStarted of a segment in %s: %v", from, err)
		}
	}
	if _, err := Started(seg(1, CopySegmentStarted, 10, 20), Writer{LeaderEpoch: -2}, 42); err == nil {
		t.Error("a leader epoch of -2 was accepted")
	}
}

// TestEventUnproven: nothing but a receipt leads to a FINISHED that can be
// published. What a receipt must say is tested with real ones in receipt_test.go.
func TestEventUnproven(t *testing.T) {
	if _, err := Finished(seg(1, CopySegmentStarted, 10, 20), Receipt{}, Writer{}, 1); !errors.Is(err, ErrUnproven) {
		t.Errorf("zero receipt: %v", err)
	}
	for _, state := range states[1:] {
		ev, err := Recorded(seg(1, state, 10, 20))
		if err != nil {
			t.Fatal(err)
		}
		if err := ev.Publishable(); !errors.Is(err, ErrUnproven) {
			t.Errorf("replayed %s can be published: %v", state, err)
		}
	}
	if err := (Event{}).Publishable(); !errors.Is(err, ErrTransition) {
		t.Errorf("empty event: %v", err)
	}
}
