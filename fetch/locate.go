package fetch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
)

// reading is one walk through a partition: what it was asked with, and the
// metadata it looks at.
type reading struct {
	r        *Reader
	p        segment.Partition
	lineage  segment.Lineage
	logStart int64
	local    int64 // see Request.LocalLogStart
	view     *metadata.View
	terms    terms
	tenant   string // for whom; see Request.Tenant
}

// look begins with the partition's metadata as it is now. rd is new, and has what was
// asked for.
func (rd *reading) look() error {
	if rd.r.closed.Load() {
		return ErrClosed
	}
	if rd.p.TopicID.IsZero() || rd.p.Number < 0 {
		// Nobody has told what to read, and so nothing is there.
		return fmt.Errorf("fetch: partition %s/%d with topic id %v: a topic id and a number from 0 on are needed", rd.p.Topic, rd.p.Number, rd.p.TopicID)
	}
	if err := rd.lineage.Validate(); err != nil {
		// Its answers would be wrong, such as that the tier ends here.
		return fmt.Errorf("fetch: the lineage that is asked for: %w", err)
	}
	view, err := rd.r.meta.View(rd.p)
	if err != nil {
		return fmt.Errorf("fetch: metadata of %v: %w", rd.p, err)
	}
	rd.view = view
	// The host may not know yet that the log start has moved: retention moves it
	// in metadata before it deletes anything.
	rd.logStart = max(rd.logStart, view.LogStart())
	rd.local = max(rd.local, 0)
	if rd.lineage == nil {
		rd.lineage = view.Lineage()
	}
	return nil
}

// place is where a walk is: a segment, and the offset (exclusive) up to which it
// may be read, its end or where the lineage leaves it.
type place struct {
	id         segment.UUID
	start, end int64 // offsets of the segment, inclusive
	upper      int64
}

// at moves to the segment that holds offset; false if there is none. None holds the
// largest there is: no offset could be named to go on at behind it, and a walk would not end.
func (rd *reading) at(offset int64, at *place) bool {
	if offset == math.MaxInt64 {
		return false
	}
	r, ok := rd.view.Reach(rd.lineage, offset)
	if ok {
		*at = place{r.ID, r.StartOffset, r.EndOffset, min(r.Last, math.MaxInt64-1) + 1}
	}
	return ok
}

// segment returns all that is known of the segment of a place.
func (rd *reading) segment(at *place) metadata.Segment {
	seg, ok := rd.view.Get(at.id)
	if !ok {
		return metadata.Segment{Partition: rd.p, ID: at.id, StartOffset: at.start, EndOffset: at.end} // the place is of another View
	}
	return *seg
}

// locate finds the segment that holds offset.
func (rd *reading) locate(offset int64, at *place) (err error) {
	if offset < rd.logStart || offset < 0 {
		return &OutOfRangeError{Partition: rd.p, Offset: offset, LogStart: rd.logStart}
	}
	if offset == math.MaxInt64 {
		return &EndOfTierError{Partition: rd.p, Next: offset}
	}
	if !rd.at(offset, at) {
		return rd.nowhere(offset)
	}
	return nil
}

// upper returns the offset up to which seg, which covers offset, may be read from there.
func (rd *reading) upper(seg *metadata.Segment, offset int64) int64 {
	_, last, _ := seg.Along(rd.lineage, offset)
	return min(last, math.MaxInt64-1) + 1
}

// nowhere says why no segment has offset. It is out of range only if the host
// said so, which is not the case here.
func (rd *reading) nowhere(offset int64) error {
	if rd.local == 0 || offset < rd.local { // else the local log has it, whatever becomes of the segment
		if seg, ok := rd.view.Deleting(rd.lineage, offset, wasReadable); ok {
			return rd.skipped(seg, offset)
		}
	}
	if err := rd.complete(offset); err != nil {
		return err
	}
	switch {
	case offset < rd.local:
		if seg, ok := rd.deleted(offset); ok {
			return rd.skipped(seg, offset)
		}
		return fmt.Errorf("fetch: offset %d of %v: %w: no segment that is known has or had it, and the local log begins at %d (docs/operations.md, \"Holes\")",
			offset, rd.p, ErrUnavailable, rd.local)
	case rd.local > 0:
		return &EndOfTierError{Partition: rd.p, Next: offset}
	}
	// What follows the contiguous run from the earliest segment on has never been
	// deleted locally, if the host deletes what CopiedUpTo allows.
	next, more := rd.view.Next(rd.lineage, offset)
	if !more || offset > rd.view.CopiedUpTo(rd.lineage) {
		return &EndOfTierError{Partition: rd.p, Next: offset}
	}
	return fmt.Errorf("fetch: offset %d of %v: metadata knows no segment before offset %d: %w (is the log start %d right?)",
		offset, rd.p, next.StartOffset, ErrUnavailable, rd.logStart)
}

// wasReadable reports whether a segment that is being deleted had been FINISHED. A
// copy that was given up before, because a newer leader makes its own or nobody
// wants it any more, was not: its offsets are in the local log, and a reader that
// skipped them would lose them.
func wasReadable(seg *metadata.Segment) bool { return object.IsLocation(seg.Custom) }

// deleted returns a segment that had offset, was readable, and was deleted to its
// end: proof that the offset is gone from here for good, as long as metadata
// remembers it.
func (rd *reading) deleted(offset int64) (metadata.Segment, bool) {
	for seg := range rd.view.Ended() {
		if seg.StartOffset > offset {
			break
		}
		if first, _, ok := seg.Along(rd.lineage, offset); ok && first == offset && wasReadable(seg) {
			return *seg, true
		}
	}
	return metadata.Segment{}, false
}

// complete returns an error if metadata does not know everything: then that it
// does not know offset says nothing.
func (rd *reading) complete(offset int64) error {
	if n := rd.view.Incomplete(); n > 0 {
		return fmt.Errorf("fetch: offset %d of %v: %w: %d of its records are not understood", offset, rd.p, metadata.ErrIncomplete, n)
	}
	return nil
}

// maxSkipped bounds how many segments one SkippedError goes over; the next fetch
// goes on.
const maxSkipped = 100

// skipped says that seg, which has or had offset, is going. It goes on at the first
// offset that is not known to be going too: what is behind may be in the tier, in
// the local log, or missed.
func (rd *reading) skipped(seg metadata.Segment, offset int64) error {
	e := &SkippedError{Partition: rd.p, SegmentID: seg.ID, Offset: offset, Next: behind(rd, &seg, offset)}
	for n, ok := 0, true; ok && n < maxSkipped && (rd.local == 0 || e.Next < rd.local); n++ {
		if _, readable := rd.view.Lookup(rd.lineage, e.Next); readable {
			break
		}
		if seg, ok = rd.view.Deleting(rd.lineage, e.Next, wasReadable); !ok && e.Next < rd.local {
			seg, ok = rd.deleted(e.Next)
		}
		if ok {
			e.Next = behind(rd, &seg, e.Next)
		}
	}
	if rd.local > offset {
		e.Next = min(e.Next, rd.local)
	}
	return e
}

// behind is the first offset after those that a segment has from offset on in the
// history, but no further than where something readable begins.
func behind(rd *reading, seg *metadata.Segment, offset int64) int64 {
	to := seg.EndOffset
	if _, last, ok := seg.Along(rd.lineage, offset); ok {
		to = last
	}
	to = min(to, math.MaxInt64-1) + 1
	if next, ok := rd.view.Next(rd.lineage, offset); ok {
		if first, _, ok := next.Along(rd.lineage, offset); ok && first > offset {
			to = min(to, first)
		}
	}
	return to
}

// damage is a failed read of an object: what was asked for and why it failed.
// What it means depends on what metadata says by then; see blame.
type damage struct {
	key    string
	off, n int64
	err    error
}

func (d *damage) Error() string { return d.err.Error() }
func (d *damage) Unwrap() error { return d.err }

// lost reports whether err says that the store does not have the bytes, rather
// than that it could not be asked.
func lost(err error) bool {
	for _, target := range [...]error{
		objstore.ErrNotExist, objstore.ErrChanged, objstore.ErrRange, objstore.ErrCorrupt,
		object.ErrCorrupt, segment.ErrCorruptBatch,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// blame turns a failure of reading seg at offset into what the caller is told.
func (rd *reading) blame(ctx context.Context, seg metadata.Segment, offset int64, err error) error {
	r := rd.r
	if r.closed.Load() {
		return ErrClosed
	}
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, ErrBatchTooLarge) {
		return fmt.Errorf("fetch: offset %d of %v: %w", offset, rd.p, err)
	}
	var d *damage
	switch found := errors.As(err, &d); {
	case errors.Is(err, object.ErrVersion), errors.Is(err, metadata.ErrForeignSegment):
		return fmt.Errorf("fetch: segment %v of %v: %w", seg.ID, rd.p, err)
	case errors.Is(err, objstore.ErrRefused): // until somebody acts
		return fmt.Errorf("fetch: segment %v of %v: %w", seg.ID, rd.p, err)
	case !found || !lost(d.err):
		return fmt.Errorf("fetch: segment %v of %v: %w: %w", seg.ID, rd.p, ErrUnavailable, err)
	}
	view, viewErr := r.meta.View(rd.p)
	if viewErr != nil {
		return fmt.Errorf("fetch: segment %v of %v cannot be read (%w), nor metadata of it: %w: %w", seg.ID, rd.p, err, ErrUnavailable, viewErr)
	}
	rd.view = view
	if now, ok := view.Get(seg.ID); ok && now.State == metadata.CopySegmentFinished {
		if age := time.Since(time.UnixMilli(now.EventTimestamp)); errors.Is(d.err, objstore.ErrNotExist) && age.Abs() < r.o.VisibilityGrace {
			return fmt.Errorf("fetch: segment %v of %v became readable %v ago and the store does not show object %s yet: %w: %w",
				seg.ID, rd.p, age.Round(time.Millisecond), d.key, ErrUnavailable, err)
		}
		c := &CorruptionError{Partition: rd.p, SegmentID: seg.ID, Key: d.key, Off: d.off, Len: d.n, Err: d.err}
		r.o.Logger.WarnContext(ctx, "tiered segment is damaged", "err", c)
		return c
	}
	r.cache.Drop(seg.ID)
	r.tails.drop(seg.ID)
	if _, ok := view.Lookup(rd.lineage, offset); ok {
		return fmt.Errorf("fetch: segment %v of %v was replaced by another copy while it was read: %w", seg.ID, rd.p, ErrUnavailable)
	}
	return rd.skipped(seg, offset)
}
