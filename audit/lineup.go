package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
)

// relic is one object that a rebuild has found, and what becomes of it.
type relic struct {
	info objstore.Info
	id   segment.UUID
	gone bool // listed and not there

	header   object.Header
	location object.Location
	log      object.Extent // of its log: equal ones have equal content
	history  segment.Lineage
	segment  *metadata.Segment // as its record is to be, nil if it cannot be understood

	reason    Reason
	note      string
	err       error
	candidate bool
	ordered   bool   // it is in the order, or behind one that is
	instead   *relic // another of the same range, history and content

	record   *metadata.Segment // in metadata, STARTED
	existing bool              // FINISHED by an earlier run
}

func (f *relic) leave(r Reason, note string) { f.reason, f.note = r, note }

func (f *relic) fail(r Reason, err error) { f.reason, f.err = r, err }

// take takes over what the object says of itself.
func (f *relic) take(tail *object.Tail, loc object.Location) {
	h := tail.Header
	f.header, f.location, f.log, f.history = h, loc, tail.Section(object.Log), tail.Epochs
	f.reason = Rebuilt
	f.segment = &metadata.Segment{
		Partition: h.Partition, ID: h.SegmentID, StartOffset: h.StartOffset, EndOffset: h.EndOffset,
		MaxTimestamp: h.MaxTimestamp, EventTimestamp: h.EventTimestamp, BrokerID: h.BrokerID,
		SizeBytes: h.SizeBytes, Epochs: h.Epochs, TxnIndexEmpty: h.TxnIndexEmpty,
		// A copy has the fingerprint of its plan here, which no object tells: that the
		// record is ours, and that no copy may go on with it, its location says too.
		Custom: loc.Append(nil),
	}
}

// partitionObjects is what a store has of a partition.
type partitionObjects struct {
	partition segment.Partition
	objects   []*relic
	foreign   int // objects that are not ours, met before or between these

	announced chan struct{} // closed when all records in STARTED are there

	order         []*relic // what is to be FINISHED, in this order
	epoch         int32    // the greatest leader epoch of all objects
	logStart      int64
	logStartKnown bool // the host said so; otherwise it is the newest history's beginning
}

func newPartitionObjects(p segment.Partition) *partitionObjects {
	return &partitionObjects{partition: p, announced: make(chan struct{})}
}

// writer writes the records. Events are fenced in the order in which they are
// written now, so all have the partition's greatest leader epoch.
func (part *partitionObjects) writer(broker int32) metadata.Writer {
	return metadata.Writer{BrokerID: broker, LeaderEpoch: part.epoch}
}

// judge decides what becomes of each object, by what they say of themselves and
// of each other.
func (part *partitionObjects) judge(o *RebuildOptions) {
	var known []*relic
	for _, f := range part.objects {
		if f.segment != nil {
			known = append(known, f)
		}
	}
	part.epoch = -1
	var newest *relic  // the one with the newest history
	begun := int64(-1) // when the last copy of the partition was begun
	for _, f := range known {
		if epoch := lastEpoch(f.history); newest == nil || cmp.Or(cmp.Compare(epoch, lastEpoch(newest.history)), cmp.Compare(f.header.EndOffset, newest.header.EndOffset)) > 0 {
			newest = f
		}
		part.epoch = max(part.epoch, lastEpoch(f.history))
		begun = max(begun, f.header.EventTimestamp)
	}
	for _, f := range known {
		f.candidate = f.info.Modified.UnixMilli() >= begun
	}
	if newest == nil {
		return
	}
	part.belowLogStart(known, newest, o)
	part.sameRange(known)
	if !o.Doubtful {
		part.belowGap(known)
	}
	for _, f := range known {
		if f.reason == Rebuilt && !f.ordered {
			part.order = append(part.order, f)
		}
	}
	for _, f := range part.order {
		for ; f != nil; f = f.instead {
			f.ordered = true
		}
	}
	// Where segments overlap, the one that was FINISHED last counts. Nothing tells
	// which that was, but when their copies were begun.
	slices.SortStableFunc(part.order, func(a, b *relic) int {
		return cmp.Or(cmp.Compare(a.header.EventTimestamp, b.header.EventTimestamp), cmp.Compare(a.header.StartOffset, b.header.StartOffset))
	})
	part.noteOverlaps()
}

func lastEpoch(l segment.Lineage) int32 { return l[len(l)-1].Epoch }

// belowLogStart leaves out what retention had deleted: objects that end below the
// log start that the host names, or below the beginning of the newest history. A
// broker cuts its history off at the log start, so what lies before its beginning
// was deleted when that copy was made, and a deletion that was slow left it.
func (part *partitionObjects) belowLogStart(known []*relic, newest *relic, o *RebuildOptions) {
	if o.LogStart != nil {
		if offset, ok := o.LogStart(part.partition); ok {
			part.logStart, part.logStartKnown = offset, true
		}
	}
	begins := newest.history[0].Start
	for _, f := range known {
		switch end := f.header.EndOffset; {
		case part.logStartKnown && end < part.logStart:
			f.leave(LeftDeleted, fmt.Sprintf("it ends below the log start, %d", part.logStart))
		case end < begins && !o.Doubtful:
			f.leave(LeftDeleted, fmt.Sprintf("it ends below offset %d, where the history of leader epochs began when segment %s was copied", begins, newest.id))
		}
	}
}

// sameRange finds objects of one range and history. Of those with the same log one
// is taken, that whose copy was begun last: an older leader had not finished when
// the newer one began. Others are for a person to decide on.
func (part *partitionObjects) sameRange(known []*relic) {
	type same struct {
		start, end int64
		epochs     string
	}
	groups := map[same][]*relic{}
	for _, f := range known {
		if f.reason == Rebuilt {
			k := same{f.header.StartOffset, f.header.EndOffset, fmt.Sprint(f.header.Epochs)}
			groups[k] = append(groups[k], f)
		}
	}
	for _, g := range groups {
		if len(g) == 1 {
			continue
		}
		slices.SortFunc(g, func(a, b *relic) int {
			return cmp.Or(cmp.Compare(b.header.EventTimestamp, a.header.EventTimestamp), cmp.Compare(string(a.id[:]), string(b.id[:])))
		})
		equal := !slices.ContainsFunc(g, func(f *relic) bool {
			return f.log.Len != g[0].log.Len || f.log.CRC32C != g[0].log.CRC32C
		})
		for i, f := range g {
			if !equal {
				f.leave(LeftConflict, fmt.Sprintf("%d objects have these offsets and leader epochs, and other bytes", len(g)))
				continue
			}
			if i > 0 {
				g[i-1].instead, f.ordered = f, true
			}
		}
	}
}

// belowGap leaves out what lies below a hole: retention deletes from the start, and
// a deletion that was slow or was interrupted leaves such objects. That an object
// in the middle was lost looks the same, so a person decides.
func (part *partitionObjects) belowGap(known []*relic) {
	var segs []*metadata.Segment
	for _, f := range known {
		if f.reason == Rebuilt {
			s := f.segment.Clone()
			s.State = metadata.CopySegmentFinished
			segs = append(segs, s)
		}
	}
	view := metadata.NewView(part.partition, segs...)
	from, to := int64(-1), int64(-1)
	checkGaps(view, view.Lineage(), func(a, b int64) { from, to = a, b }) // the last one
	if from < 0 {
		return
	}
	for _, f := range known {
		if f.reason == Rebuilt && f.header.EndOffset < from {
			f.leave(LeftBelowGap, fmt.Sprintf("no object has offsets %d to %d behind it: retention may have deleted it, or an object was lost", from, to))
			f.instead, f.ordered = nil, false
		}
	}
}

// noteOverlaps notes where objects that become readable have offsets in common.
func (part *partitionObjects) noteOverlaps() {
	byStart := slices.SortedFunc(slices.Values(part.order), func(a, b *relic) int {
		return cmp.Compare(a.header.StartOffset, b.header.StartOffset)
	})
	var last *relic
	for _, f := range byStart {
		if last != nil && f.header.StartOffset <= last.header.EndOffset {
			f.note = fmt.Sprintf("segment %s has offsets %d to %d too; by leader epoch, and within one by the copy begun last, readers get one of them",
				last.id, f.header.StartOffset, min(f.header.EndOffset, last.header.EndOffset))
		}
		if last == nil || f.header.EndOffset > last.header.EndOffset {
			last = f
		}
	}
}
