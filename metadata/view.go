package metadata

import (
	"fmt"
	"iter"
	"slices"

	"github.com/segtier/segtier/segment"
)

// View is a partition's metadata at one moment. It is immutable: it may be read
// by any number of goroutines, without locks, for as long as they like. What
// returns a Segment by value allocates nothing; what returns pointers makes a
// copy for each.
//
// # Which segment has an offset
//
// A lineage says which leader epoch an offset belongs to; a segment says the
// same of the offsets it holds. A FINISHED segment covers an offset for a
// lineage if both name the same epoch ([Segment.Along]). Where several do, the
// one that was FINISHED last counts, as in Kafka, except that Kafka looks only
// at the segment with the greatest start and so loses offsets behind a short
// segment; here every FINISHED segment that covers an offset is looked at.
//
// A nil lineage means the newest history that the metadata itself tells
// ([View.Lineage]). It is a guess where an unclean election happened below
// offsets that were never tiered; a broker gives its own.
//
// # What it holds
//
// Every segment whose id was ever seen: superseded ones, unfinished ones, and,
// by Get and Ended alone, those that have ended, until the store forgets them.
// Packed, a segment of one leader epoch takes some 160 bytes.
type View struct {
	partition segment.Partition
	finished  offsetIndex // COPY_SEGMENT_FINISHED
	others    offsetIndex // COPY_SEGMENT_STARTED and DELETE_SEGMENT_STARTED
	ended     offsetIndex // DELETE_SEGMENT_FINISHED
	ids       idIndex     // of all three
	epochs    epochRows
	lineage   segment.Lineage // of epochs
	order     uint64          // FINISHED events seen
	bytes     int64           // of the finished
	count     int             // finished
	live      int             // finished and others

	logStart   int64
	deletion   PartitionState
	incomplete int
}

// NewView returns a View of the segments. FINISHED ones are taken to have been
// FINISHED in the order given. An id may come more than once: the last one is how
// it is, and what was FINISHED once counts for the highest offsets. The segments
// are copied; they must all belong to p.
func NewView(p segment.Partition, segs ...*Segment) *View {
	type numbered struct {
		seg   *Segment
		order uint64
	}
	latest := make(map[segment.UUID]numbered, len(segs))
	var order uint64
	for _, s := range segs {
		n := numbered{s, latest[s.ID].order}
		if s.State == CopySegmentFinished && n.order == 0 {
			order++
			n.order = order
		}
		latest[s.ID] = n
	}
	l := NewLoader(p)
	for _, n := range latest {
		l.Add(n.seg, n.order)
	}
	return l.View()
}

// Loader makes a View of many segments, in any order, with no more memory than
// twice what the View takes. It is for stores that are being opened.
type Loader struct {
	v                       View
	finished, others, ended packer
	ids                     []idEntry
}

// NewLoader returns a Loader for a partition.
func NewLoader(p segment.Partition) *Loader {
	return &Loader{v: View{partition: p, deletion: PartitionKept}}
}

// Add adds a segment, each id once. Order is the number of its FINISHED event in
// the partition, from 1 on, which decides where segments overlap; 0 if it never
// was FINISHED. The segment is copied.
func (l *Loader) Add(s *Segment, order uint64) {
	l.v.mine(s.Partition)
	l.v.epochs, _ = l.v.epochs.with(s, order > 0)
	l.v.order = max(l.v.order, order)
	l.ids = append(l.ids, idEntry{hashID(&s.ID), s.StartOffset})
	l.v.count1(s.State, s.SizeBytes, 1)
	switch s.State {
	case CopySegmentFinished:
		l.finished.add(s, order)
	case DeleteSegmentFinished:
		l.ended.add(s, 0)
	default:
		l.others.add(s, 0)
	}
}

// View returns the View of what was added. The Loader is used up.
func (l *Loader) View() *View {
	v := l.v
	v.lineage = v.epochs.lineage()
	v.finished, v.others, v.ended = l.finished.index(), l.others.index(), l.ended.index()
	v.ids = newIDIndex(l.ids)
	*l = Loader{}
	return &v
}

// With returns the View after s took the place of the segment with its id, or
// was added. What may follow what is for [Step] and [View.Admits] to say, not
// checked here. s is copied.
func (v *View) With(s *Segment) *View {
	v.mine(s.Partition)
	n := *v
	order := uint64(0)
	old, known := v.find(&s.ID)
	if known {
		w := old.row()
		if s.State == CopySegmentFinished {
			order = w.order // a repeated one keeps its place: a replay must not hide what was FINISHED since
		}
		n.remove(w)
	}
	if s.State == CopySegmentFinished && order == 0 {
		n.order++
		order = n.order
	}
	n.count1(s.State, s.SizeBytes, 1)
	x := n.index(s.State)
	*x = x.with(s, order)
	if !known || old.row().start != s.StartOffset {
		n.ids = n.ids.with(&s.ID, s.StartOffset)
		if known {
			n.ids = n.ids.without(&s.ID, old.row().start)
		}
	}
	var moved bool
	if n.epochs, moved = v.epochs.with(s, s.State == CopySegmentFinished); moved {
		n.lineage = n.epochs.lineage()
	}
	return &n
}

// Forget returns the View without a segment that has ended. What it says of the
// highest offsets of its epochs stays. Segments in other states stay too.
func (v *View) Forget(id segment.UUID) *View {
	r, ok := v.find(&id)
	if !ok || r.row().state != DeleteSegmentFinished {
		return v
	}
	n := *v
	n.remove(r.row())
	n.ids = v.ids.without(&id, r.row().start)
	return &n
}

// remove takes a row out of its index. n is a fresh copy.
func (v *View) remove(w *row) {
	x := v.index(w.state)
	*x = x.without(w.start, &w.id)
	v.count1(w.state, int64(w.size), -1)
}

// count1 counts a segment in or out.
func (v *View) count1(s State, size int64, by int) {
	if s == CopySegmentFinished {
		v.count += by
		v.bytes += int64(by) * size
	}
	if s != DeleteSegmentFinished {
		v.live += by
	}
}

// index returns where segments of a state are.
func (v *View) index(s State) *offsetIndex {
	switch s {
	case CopySegmentFinished:
		return &v.finished
	case DeleteSegmentFinished:
		return &v.ended
	default:
		return &v.others
	}
}

// find returns the row of an id.
func (v *View) find(id *segment.UUID) (r ref, ok bool) {
	v.ids.starts(id, func(start int64) bool {
		for _, x := range [...]offsetIndex{v.finished, v.others, v.ended} {
			if r, ok = x.get(start, id); ok {
				break
			}
		}
		return ok
	})
	return r, ok
}

// mine stops a program that mixes partitions.
func (v *View) mine(p segment.Partition) {
	if p != v.partition {
		panic(fmt.Sprintf("metadata: segment of %s given to the View of %s", p, v.partition))
	}
}

// Apply returns the View after the event, v itself if it changes nothing: Admits,
// then Step or StepPartition. It is what a Store does with an event.
func (v *View) Apply(ev Event) (*View, error) {
	if err := v.Admits(ev); err != nil {
		return nil, err
	}
	if ev.del != nil {
		to, err := StepPartition(v.deletion, ev)
		if err != nil {
			return nil, err
		}
		if to == v.deletion {
			return v, nil
		}
		n := *v
		n.deletion = to
		return &n, nil
	}
	if ev.seg == nil {
		return nil, errEmptyEvent
	}
	cur, _ := v.Get(ev.seg.ID)
	next, err := Step(cur, ev)
	if err != nil {
		return nil, err
	}
	if next == cur {
		return v, nil
	}
	return v.With(next), nil
}

// Admits says whether the rest of the partition lets the event happen, which a
// segment's own state ([Step]) cannot know:
//
//   - a range is not announced or made readable where it is readable already, in
//     the same leader epochs, under another id (ErrDuplicate);
//   - nothing is announced or made readable in a partition that is being deleted
//     (*TransitionError);
//   - the deletion of a partition is not finished before that of its segments
//     (*PartitionTransitionError).
//
// What happened already ([Recorded]) is admitted, as in Kafka, and so is what is
// there already.
func (v *View) Admits(ev Event) error {
	if ev.recorded {
		return nil
	}
	if d := ev.del; d != nil {
		if d.to == DeletePartitionFinished && v.deletion == DeletePartitionStarted && v.live > 0 {
			return &PartitionTransitionError{Partition: v.partition, Have: v.deletion, From: d.from, To: d.to, Live: v.live}
		}
		return nil
	}
	s := ev.seg
	if s == nil || s.State != CopySegmentStarted && s.State != CopySegmentFinished {
		return nil
	}
	have := None
	if r, ok := v.find(&s.ID); ok {
		have = r.row().state
	}
	if have != None && have != CopySegmentStarted || have == s.State {
		return nil // there already, or for Step to refuse
	}
	if v.deletion != PartitionKept {
		return &TransitionError{
			Partition: v.partition, ID: s.ID, Have: have, From: ev.from, To: s.State,
			Reason: "a partition that is in " + v.deletion.String(),
		}
	}
	c := v.finished.lookBack(s.StartOffset, s.EndOffset)
	for r, ok := c.next(); ok && r.row().start == s.StartOffset; r, ok = c.next() {
		if w := r.row(); w.end == s.EndOffset && w.id != s.ID && slices.Equal(r.epochs(), s.Epochs) {
			return fmt.Errorf("segment %s of %s, offsets %d to %d: %w: %s", s.ID, v.partition, w.start, w.end, ErrDuplicate, w.id)
		}
	}
	return nil
}

// Info returns what is known of the partition besides its segments.
func (v *View) Info() PartitionInfo {
	i := PartitionInfo{LogStart: v.logStart, Deletion: v.deletion, Incomplete: v.incomplete}
	for _, r := range v.epochs {
		i.Epochs = append(i.Epochs, r.EpochInfo)
	}
	return i
}

// WithInfo returns the View with what is known besides its segments. A log start
// never moves back and epochs are added to those known; the rest is as given.
func (v *View) WithInfo(i PartitionInfo) *View {
	n := *v
	n.logStart, n.deletion, n.incomplete = max(v.logStart, i.LogStart), i.Deletion, i.Incomplete
	own := false
	for _, e := range i.Epochs {
		n.epochs, _ = n.epochs.merge(epochRow{e, e.Highest}, &own)
	}
	n.lineage = n.epochs.lineage()
	return &n
}

// Partition returns the partition.
func (v *View) Partition() segment.Partition { return v.partition }

// LogStart returns the first offset that may be read, as far as the store knows
// it; 0 where nobody has moved it.
func (v *View) LogStart() int64 { return v.logStart }

// Incomplete returns how many records of the partition could not be understood.
// If there are any, that a View does not know something says nothing: see
// ErrIncomplete.
func (v *View) Incomplete() int { return v.incomplete }

// Get returns a copy of a segment by its id, in whatever state it is; nil if the
// id is not known. A segment that has ended (DELETE_SEGMENT_FINISHED) is found
// for as long as the store remembers it, maybe without its custom metadata.
func (v *View) Get(id segment.UUID) (*Segment, bool) {
	r, ok := v.find(&id)
	if !ok {
		return nil, false
	}
	s := r.unpack(v.partition)
	return &s, true
}

// All yields the segments in every state but DELETE_SEGMENT_FINISHED, ascending
// by StartOffset.
func (v *View) All() iter.Seq[*Segment] {
	return func(yield func(*Segment) bool) {
		fs, os := cursor{x: v.finished}, cursor{x: v.others}
		f, haveF := fs.next()
		o, haveO := os.next()
		for haveF || haveO {
			r := o
			if !haveO || haveF && compareRow(f.row(), o.row().start, &o.row().id) < 0 {
				r = f
				f, haveF = fs.next()
			} else {
				o, haveO = os.next()
			}
			if s := r.unpack(v.partition); !yield(&s) {
				return
			}
		}
	}
}

// Ended yields the segments that have ended and are not forgotten yet, ascending
// by StartOffset.
func (v *View) Ended() iter.Seq[*Segment] {
	return func(yield func(*Segment) bool) {
		c := cursor{x: v.ended}
		for r, ok := c.next(); ok; r, ok = c.next() {
			if s := r.unpack(v.partition); !yield(&s) {
				return
			}
		}
	}
}
