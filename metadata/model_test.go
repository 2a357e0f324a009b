package metadata

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/segment"
)

// soak is how many times a test repeats its work: more with SEGTIER_SOAK.
func soak(quick, long int) int {
	if os.Getenv("SEGTIER_SOAK") != "" {
		return long
	}
	return quick
}

// model is a View by brute force: it knows every segment and walks all of them.
type model struct {
	segs  map[segment.UUID]*Segment
	order map[segment.UUID]int // of the first FINISHED event
	ever  []*Segment           // every segment as it was when FINISHED
}

func newModel() *model {
	return &model{segs: map[segment.UUID]*Segment{}, order: map[segment.UUID]int{}}
}

func (m *model) set(s *Segment) {
	if _, again := m.order[s.ID]; s.State == CopySegmentFinished && !again {
		m.ever = append(m.ever, s)
		m.order[s.ID] = len(m.ever)
	}
	m.segs[s.ID] = s
}

// lookup: of all FINISHED segments that have the offset in the lineage's epoch,
// the one that was FINISHED last.
func (m *model) lookup(l segment.Lineage, offset int64) (found *Segment) {
	for _, s := range m.segs {
		if s.State == CopySegmentFinished && covers(s, l, offset) && (found == nil || m.order[s.ID] > m.order[found.ID]) {
			found = s
		}
	}
	return found
}

func (m *model) highest(epoch int32) int64 {
	highest := int64(-1)
	for _, s := range m.ever {
		for o := s.StartOffset; o <= s.EndOffset; o++ {
			if e, _ := s.Epochs.EpochFor(o); e == epoch {
				highest = max(highest, o)
			}
		}
	}
	return highest
}

// same compares all that a view answers about offsets below limit with the model.
func (m *model) same(t interface{ Fatalf(string, ...any) }, v *View, l segment.Lineage, limit int64) {
	asked := l
	if l == nil {
		l = v.Lineage()
	}
	var next, latest *Segment // from right to left
	upTo, run := int64(-1), true
	for o := limit - 1; o >= 0; o-- {
		want := m.lookup(l, o)
		if got, _ := v.Lookup(asked, o); !is(got, want) {
			t.Fatalf("lookup of %d in %v: got %s, want %s", o, l, brief(&got), brief(want))
		}
		if want != nil {
			next = want
			if latest == nil {
				latest = want
			}
		}
		if got, _ := v.Next(asked, o); !is(got, next) {
			t.Fatalf("next of %d in %v: got %s, want %s", o, l, brief(&got), brief(next))
		}
	}
	for o := int64(0); o < limit && run; o++ {
		if m.lookup(l, o) != nil {
			upTo = o
		} else if upTo >= 0 {
			run = false
		}
	}
	if got, _ := v.Earliest(asked); !is(got, next) {
		t.Fatalf("earliest in %v: got %s, want %s", l, brief(&got), brief(next))
	}
	if got, _ := v.Latest(asked); !is(got, latest) {
		t.Fatalf("latest in %v: got %s, want %s", l, brief(&got), brief(latest))
	}
	if got := v.CopiedUpTo(asked); got != upTo {
		t.Fatalf("copied up to %d in %v, want %d", got, l, upTo)
	}
}

// accounted checks that every id is in the view, in its state, and listed unless
// it has ended.
func (m *model) accounted(t interface{ Fatalf(string, ...any) }, v *View) {
	listed := map[segment.UUID]bool{}
	before := int64(-1)
	for s := range v.All() {
		if listed[s.ID] || !reflect.DeepEqual(m.segs[s.ID], s) || s.State == DeleteSegmentFinished || s.StartOffset < before {
			t.Fatalf("listed wrongly: %s", brief(s))
		}
		listed[s.ID], before = true, s.StartOffset
	}
	for id, s := range m.segs {
		if got, ok := v.Get(id); !ok || !reflect.DeepEqual(got, s) {
			t.Fatalf("segment %s: the view has %s", brief(s), brief(got))
		}
		if listed[id] == (s.State == DeleteSegmentFinished) {
			t.Fatalf("segment %s: listed is %v", brief(s), listed[id])
		}
	}
}

// is compares what a View returns by value.
func is(got Segment, want *Segment) bool {
	if want == nil {
		return got.ID.IsZero()
	}
	return got.ID == want.ID && got.State == want.State && got.EndOffset == want.EndOffset && slices.Equal(got.Epochs, want.Epochs)
}

func brief(s *Segment) string {
	if s == nil || s.ID.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%d-%d %v %s", s.StartOffset, s.EndOffset, s.Epochs, s.State)
}

// TestRandomHistories lets three writers, who do not agree about the partition's
// history, publish 24 events in any order that Step allows, with repetitions and
// late events that it does not. After every one the view must answer as the model.
func TestRandomHistories(t *testing.T) {
	const events, limit = 24, 48
	for range soak(5, 1000) {
		rapid.Check(t, func(t *rapid.T) {
			var histories []segment.Lineage
			for range 3 {
				histories = append(histories, drawLineage(t, "writer", 0))
			}
			var known []*Segment // as STARTED
			v, m := NewView(testPartition), newModel()
			for range events {
				var s *Segment
				if len(known) == 0 || rapid.IntRange(0, 3).Draw(t, "which") == 0 {
					l := histories[rapid.IntRange(0, 2).Draw(t, "by")]
					start := rapid.Int64Range(0, 30).Draw(t, "start")
					s = seg(len(known)+1, CopySegmentStarted, start, start+rapid.Int64Range(0, 15).Draw(t, "size"))
					s.Epochs = l.Range(s.StartOffset, s.EndOffset)
					known = append(known, s)
				} else {
					s = known[rapid.IntRange(0, len(known)-1).Draw(t, "of")]
				}
				to := CopySegmentStarted
				if m.segs[s.ID] != nil {
					to = State(rapid.IntRange(0, 3).Draw(t, "to"))
				}
				after := *s
				after.State = to
				if to != CopySegmentStarted {
					after.Custom = []byte("location")
				}
				ev, err := Recorded(&after)
				if err != nil {
					t.Fatalf("%v", err)
				}
				cur, _ := v.Get(s.ID)
				next, err := Step(cur, ev)
				if err != nil {
					continue
				}
				v = v.With(next)
				m.set(next)

				m.accounted(t, v)
				m.same(t, v, nil, limit)
				for _, l := range histories {
					m.same(t, v, l, limit)
				}
				for epoch := range int32(12) {
					want := m.highest(epoch)
					if got, ok := v.HighestOffset(epoch); ok != (want >= 0) || ok && got != want {
						t.Fatalf("highest offset of epoch %d: got %d, want %d", epoch, got, want)
					}
				}
			}
			rebuilt(t, v, m, limit)
		})
	}
}

// rebuilt checks that NewView makes the same View of the segments, as a store
// does when it is opened: told in the order of FINISHED, and what was FINISHED
// once is told as such first.
func rebuilt(t interface{ Fatalf(string, ...any) }, v *View, m *model, limit int64) {
	segs := slices.Clone(m.ever)
	for _, s := range m.segs {
		segs = append(segs, s)
	}
	n := NewView(testPartition, segs...)
	m.accounted(t, n)
	m.same(t, n, nil, limit)
	if !slices.Equal(n.Lineage(), v.Lineage()) || !slices.Equal(n.epochs, v.epochs) {
		t.Fatalf("rebuilt lineage %v, was %v", n.Lineage(), v.Lineage())
	}
}

// TestManySegments compares Views of many blocks with the model: blocks that
// split, run empty, and hold segments that reach over many others.
func TestManySegments(t *testing.T) {
	for seed := range uint64(soak(2, 50)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		v, m := NewView(testPartition), newModel()
		var live []*Segment
		const limit = 6000
		add := func(id int, start, end int64) {
			s := fin(id, start, end)
			v = finish(v, s)
			m.set(s)
			live = append(live, s)
		}
		type past struct {
			view    *View
			all     []*Segment
			highest int64
		}
		var old []past
		for i := range 6 * maxBlock {
			start := rng.Int64N(limit)
			if i%2 == 0 {
				start = int64(i) // half of them in order, as copied
			}
			size := rng.Int64N(12)
			if rng.IntN(200) == 0 {
				size = rng.Int64N(limit)
			}
			add(i+1, start, start+size)
			if i%100 == 0 {
				h, _ := v.HighestOffset(0)
				old = append(old, past{v, slices.Collect(v.All()), h})
			}
		}
		// Random gaps, and then a long one, so that whole blocks run empty.
		for i := range 2 * maxBlock {
			j := rng.IntN(len(live))
			if i%2 == 0 {
				j = 0
			}
			ended := *live[j]
			live = slices.Delete(live, j, j+1)
			for _, state := range []State{DeleteSegmentStarted, DeleteSegmentFinished} {
				s := ended
				s.State = state
				v = v.With(&s)
				m.set(&s)
			}
		}
		m.accounted(t, v)
		for range 300 {
			o := rng.Int64N(limit + 100)
			want := m.lookup(v.Lineage(), o)
			if got, _ := v.Lookup(nil, o); !is(got, want) {
				t.Fatalf("seed %d: lookup of %d: got %s, want %s", seed, o, brief(&got), brief(want))
			}
			wantNext := want
			for at := o; wantNext == nil && at < limit; at++ {
				wantNext = m.lookup(v.Lineage(), at)
			}
			if got, _ := v.Next(nil, o); !is(got, wantNext) && o < limit {
				t.Fatalf("seed %d: next of %d: got %s, want %s", seed, o, brief(&got), brief(wantNext))
			}
		}
		for i, o := range old { // what was shared with them has not changed
			h, _ := o.view.HighestOffset(0)
			if !reflect.DeepEqual(slices.Collect(o.view.All()), o.all) || h != o.highest {
				t.Fatalf("seed %d: the view after %d segments has changed", seed, i*100+1)
			}
			for _, s := range o.all {
				if got, _ := o.view.Get(s.ID); !reflect.DeepEqual(got, s) {
					t.Fatalf("seed %d: the view after %d segments has lost an id", seed, i*100+1)
				}
			}
		}
	}
}
