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
	at    map[segment.UUID][]int32
	ever  []*Segment // every segment as it was when FINISHED
}

func newModel() *model {
	return &model{segs: map[segment.UUID]*Segment{}, order: map[segment.UUID]int{}, at: map[segment.UUID][]int32{}}
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

// table is lookup for all offsets below limit at once.
func (m *model) table(l segment.Lineage, limit int64) []*Segment {
	found, order, want := make([]*Segment, limit), make([]int, limit), epochsOf(l, 0, limit-1)
	for id, s := range m.segs {
		if s.State != CopySegmentFinished {
			continue
		}
		for o, epoch := range m.epochs(s) {
			if at := s.StartOffset + int64(o); at < limit && epoch >= 0 && epoch == want[at] && m.order[id] > order[at] {
				found[at], order[at] = s, m.order[id]
			}
		}
	}
	return found
}

// epochs returns the leader epoch of each offset of a segment.
func (m *model) epochs(s *Segment) []int32 {
	if m.at[s.ID] == nil {
		m.at[s.ID] = epochsOf(s.Epochs, s.StartOffset, s.EndOffset)
	}
	return m.at[s.ID]
}

// epochsOf returns the leader epochs of the offsets from start to end, -1 for none.
func epochsOf(l segment.Lineage, start, end int64) (epochs []int32) {
	for o := start; o <= end; o++ {
		epoch, ok := l.EpochFor(o)
		if !ok {
			epoch = -1
		}
		epochs = append(epochs, epoch)
	}
	return epochs
}

func (m *model) highest(epoch int32) int64 {
	highest := int64(-1)
	for _, s := range m.ever {
		for o, e := range m.epochs(s) {
			if e == epoch {
				highest = max(highest, s.StartOffset+int64(o))
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
	table := m.table(l, limit)
	for o := limit - 1; o >= 0; o-- {
		want := table[o]
		if got, _ := v.Lookup(asked, o); !is(got, want) {
			t.Fatalf("lookup of %d in %v: got %s, want %s", o, l, brief(&got), brief(want))
		}
		if at, ok := v.Reach(asked, o); ok != (want != nil) {
			t.Fatalf("reach of %d in %v: %v %v, want %s", o, l, at, ok, brief(want))
		} else if ok {
			_, last, _ := want.Along(l, o)
			if at != (Reach{want.ID, want.StartOffset, want.EndOffset, last}) {
				t.Fatalf("reach of %d in %v: %v, want %s up to %d", o, l, at, brief(want), last)
			}
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
		if table[o] != nil {
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
	m.sameAlong(t, v, l, table)
}

// sameAlong compares what a view answers about a whole history.
func (m *model) sameAlong(t interface{ Fatalf(string, ...any) }, v *View, l segment.Lineage, table []*Segment) {
	first, last := int64(-1), int64(-1)
	var bytes int64
	var greatest *Segment
	for _, s := range m.segs {
		if s.State != CopySegmentFinished {
			continue
		}
		if s.Within(l) {
			bytes += s.SizeBytes
		}
		if _, _, ok := s.Along(l, 0); ok && (greatest == nil || s.MaxTimestamp > greatest.MaxTimestamp) {
			greatest = s
		}
	}
	if got, _ := v.SizeWithin(l); got != bytes {
		t.Fatalf("%d bytes within %v, want %d", got, l, bytes)
	}
	if got, ok := v.Greatest(l); ok != (greatest != nil) || ok && got.MaxTimestamp != greatest.MaxTimestamp {
		t.Fatalf("greatest timestamp in %v: got %d, want %s", l, got.MaxTimestamp, brief(greatest))
	}
	going := m.deleting(l, len(table))
	for o := int64(len(table)) - 1; o >= 0; o-- {
		if s := table[o]; s != nil {
			first = o
			last = max(last, o)
		}
		txn, upTo := txnFrom(table, l, o)
		if got, at, ok := v.NextWithTxnIndex(l, o); ok != (txn != nil) || at != upTo || ok && !is(got, txn) {
			t.Fatalf("transaction index from %d in %v: got %s at %d, want %s at %d", o, l, brief(&got), at, brief(txn), upTo)
		}
		if got, ok := v.Deleting(l, o, nil); ok != going[o] || ok && !(got.State == DeleteSegmentStarted && covers(&got, l, o)) {
			t.Fatalf("being deleted at %d in %v: got %s %v", o, l, brief(&got), ok)
		}
	}
	for _, c := range []struct {
		name   string
		get    func(segment.Lineage) (int64, int32, bool)
		offset int64
	}{{"earliest", v.EarliestOffset, first}, {"latest", v.LatestOffset, last}} {
		epoch, _ := l.EpochFor(c.offset)
		if offset, e, ok := c.get(l); ok != (c.offset >= 0) || ok && (offset != c.offset || e != epoch) {
			t.Fatalf("%s offset in %v: got %d in epoch %d, want %d in %d", c.name, l, offset, e, c.offset, epoch)
		}
	}
}

// txnFrom goes segment by segment, each to its end in the history: what one says
// of an offset another cannot take back.
func txnFrom(table []*Segment, l segment.Lineage, offset int64) (found *Segment, at int64) {
	for {
		s := table[offset]
		if s == nil || !s.TxnIndexEmpty {
			return s, offset
		}
		for offset <= s.EndOffset && covers(s, l, offset) {
			offset++
		}
	}
}

// deleting says of each offset whether a segment that has it is being deleted.
func (m *model) deleting(l segment.Lineage, limit int) []bool {
	going, want := make([]bool, limit), epochsOf(l, 0, int64(limit)-1)
	for _, s := range m.segs {
		if s.State == DeleteSegmentStarted {
			for o, epoch := range m.epochs(s) {
				if at := s.StartOffset + int64(o); at < int64(limit) && epoch >= 0 && epoch == want[at] {
					going[at] = true
				}
			}
		}
	}
	return going
}

// sameEpoch compares what a view answers about one leader epoch. Above all:
// every id that has offsets in it is in exactly one of referenced and
// unreferenced, and listed once.
func (m *model) sameEpoch(t interface{ Fatalf(string, ...any) }, v *View, epoch int32, limit int64) {
	if got, ok := v.HighestOffset(epoch); ok != (m.highest(epoch) >= 0) || ok && got != m.highest(epoch) {
		t.Fatalf("highest offset of epoch %d: got %d, want %d", epoch, got, m.highest(epoch))
	}
	alone := segment.Lineage{{Epoch: epoch, Start: 0}}
	found := map[segment.UUID]bool{}
	for _, s := range m.table(alone, limit) {
		if s != nil {
			found[s.ID] = true
		}
	}
	where := map[segment.UUID]string{}
	referenced, unreferenced := v.Referenced(epoch)
	for _, s := range referenced {
		where[s.ID] += "referenced"
	}
	for _, s := range unreferenced {
		where[s.ID] += "unreferenced"
	}
	var size int64
	n := 0
	for id, s := range m.segs {
		want := "unreferenced"
		switch _, _, has := s.Along(alone, 0); {
		case !has || s.State == DeleteSegmentFinished:
			want = ""
		case found[id]:
			want = "referenced"
		}
		if where[id] != want {
			t.Fatalf("epoch %d: %s is %q, want %q", epoch, brief(s), where[id], want)
		}
		if want != "" {
			size += s.SizeBytes
			n++
		}
	}
	if got := v.EpochSize(epoch); got != size {
		t.Fatalf("epoch %d: %d bytes, want %d", epoch, got, size)
	}
	list := v.ByEpoch(epoch)
	if len(list) != n || len(where) != n {
		t.Fatalf("epoch %d: %d segments are listed, %d divided, want %d", epoch, len(list), len(where), n)
	}
	for i, s := range list {
		if where[s.ID] == "" || i > 0 && (s.StartOffset < list[i-1].StartOffset ||
			s.StartOffset == list[i-1].StartOffset && where[s.ID] == "referenced" && where[list[i-1].ID] != "referenced") {
			t.Fatalf("epoch %d: listed as number %d: %s", epoch, i, brief(s))
		}
	}
}

// accounted checks that every id is in the view, in its state, and listed unless
// it has ended.
func (m *model) accounted(t interface{ Fatalf(string, ...any) }, v *View) {
	var bytes int64
	count := 0
	for _, s := range m.segs {
		if s.State == CopySegmentFinished {
			bytes += s.SizeBytes
			count++
		}
	}
	if b, n := v.Size(); b != bytes || n != count {
		t.Fatalf("%d bytes in %d segments, want %d in %d", b, n, bytes, count)
	}
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
	for range soak(20, 1000) { // rounds of 100 seeds
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
					s.SizeBytes, s.MaxTimestamp = int64(1)<<len(known), rapid.Int64Range(-1, 20).Draw(t, "time")
					s.TxnIndexEmpty = rapid.Bool().Draw(t, "txn")
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
					m.sameEpoch(t, v, epoch, limit)
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
	// And one that has forgotten what ended, and was told what was known besides.
	kept := NewView(testPartition, slices.DeleteFunc(append(v.Finished(), slices.Collect(v.All())...), func(s *Segment) bool {
		_, known := n.Get(s.ID)
		return !known
	})...).WithInfo(v.Info())
	for id, s := range m.segs {
		if s.State == DeleteSegmentFinished {
			v = v.Forget(id)
		}
		if _, ok := v.Get(id); ok == (s.State == DeleteSegmentFinished) {
			t.Fatalf("after forgetting what ended: %s is known: %v", brief(s), ok)
		}
	}
	for _, v := range []*View{v, kept} {
		m.same(t, v, nil, limit)
		for epoch := range int32(12) {
			m.sameEpoch(t, v, epoch, limit)
		}
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
