package lifecycle

import (
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// Cause says why a segment expires.
type Cause string

// Why segments expire: Kafka's names of its breaches, and what nobody reads.
const (
	RetentionTime Cause = "RETENTION_MS"     // its greatest timestamp is older than retention.ms
	RetentionSize Cause = "RETENTION_BYTES"  // the partition is larger than retention.bytes without it
	BelowLogStart Cause = "LOG_START_OFFSET" // it ends below the log start
	DeadEpochs    Cause = "DEAD_EPOCHS"      // all its leader epochs are older than the history that is left
	BeganDeletion Cause = "DELETE_STARTED"   // its deletion was begun before, by whoever
)

// Expired is a segment that expires, and why.
type Expired struct {
	Segment *metadata.Segment
	Cause   Cause
}

// retention is what decides which segments of a partition expire, all of it known.
type retention struct {
	history  segment.Lineage // without empty epochs, beginning at logStart
	logStart int64
	logEnd   int64            // first offset after the local log's last; MaxInt64: there is none
	cutoff   int64            // greatest timestamp in ms that has expired, less than 0: none
	limit    int64            // retention.bytes, less than 0: none
	local    int64            // bytes of the log that are not in the tier
	copying  func(int64) bool // whether this process copies a segment with a base offset; may be nil
	most     int              // segments chosen at most
}

// verdict is what a retention decides about a view.
type verdict struct {
	expired  []Expired
	before   int64 // where the log starts now
	logStart int64 // where it starts once they are gone
	more     bool  // there were more than most
	size     int64 // bytes within the history, local ones included
}

// history returns what is left of a lineage when the log starts at logStart: as in
// Kafka, where every move of it truncates the leader epochs.
func history(l segment.Lineage, logStart int64) segment.Lineage {
	var h segment.Lineage
	for i, e := range l {
		switch {
		case i+1 < len(l) && l[i+1].Start <= max(e.Start, logStart):
			continue // empty, or all of it below the log start
		case e.Start < logStart:
			e.Start = logStart
		}
		h = append(h, e)
	}
	return h
}

// within is Kafka's isRemoteSegmentWithinLeaderEpochs: whether the segment is part
// of the history, and not of one that begins where it ends.
func (r *retention) within(seg *metadata.Segment) bool {
	return seg.EndOffset < r.logEnd && seg.Within(r.history)
}

// decide goes through the segments by offset, as Kafka's expiration does. What it
// does otherwise:
//
//   - FINISHED alone counts. A copy that was announced and not finished is deleted
//     where it is of no use any more (too old, below the log start, of dead epochs),
//     but it adds nothing to the size, takes nothing off it, moves no log start, and
//     does not stop the walk: in Kafka a copy that dangles ends retention by size
//     for ever.
//   - A segment that this process copies is left alone, and stops the walk if it is
//     of the history; in Kafka it does in any case.
//   - A deletion that was begun is resumed wherever it is, not only below the first
//     segment that stays.
//   - A segment of another storage plugin is nobody's to expire. It stops the walk,
//     so that the log start does not pass it, and does not count.
//   - A segment whose timestamp is unknown (-1) is not too old.
//   - A segment below the log start is called that, also where its epochs are older
//     than what the log start has left of the history.
func (r *retention) decide(view *metadata.View) verdict {
	v := verdict{before: r.logStart, logStart: r.logStart}
	excess := int64(0)
	if r.limit >= 0 {
		v.size = r.local
		for seg := range view.All() {
			if seg.State == metadata.CopySegmentFinished && object.IsLocation(seg.Custom) && r.within(seg) {
				v.size += seg.SizeBytes
			}
		}
		excess = max(0, v.size-r.limit)
	}
	first := r.history[0].Epoch
	stopped := false
	for seg := range view.All() {
		if len(v.expired) == r.most {
			v.more = true
			break
		}
		cause := Cause("")
		newest := seg.Epochs[len(seg.Epochs)-1].Epoch
		switch {
		case seg.State == metadata.DeleteSegmentStarted:
			if ours(seg) {
				cause = BeganDeletion
			}
		case newest < first:
			if ours(seg) && !r.isCopied(seg) {
				// Below the log start every epoch is dead: it was cut off there.
				if cause = DeadEpochs; seg.EndOffset < r.logStart {
					cause = BelowLogStart
				}
			}
		case stopped:
		case r.isCopied(seg):
			stopped = r.within(seg)
		case newest <= first && seg.EndOffset < r.logStart:
			if ours(seg) {
				cause = BelowLogStart
			}
		case !r.within(seg): // of another history: skipped
		case !ours(seg):
			stopped = true
		case seg.MaxTimestamp >= 0 && seg.MaxTimestamp <= r.cutoff:
			cause = RetentionTime
		case seg.State == metadata.CopySegmentFinished:
			if stopped = excess <= 0 || seg.SizeBytes > excess; !stopped {
				cause = RetentionSize
			}
		}
		if cause == "" {
			continue
		}
		v.expired = append(v.expired, Expired{Segment: seg, Cause: cause})
		if seg.State == metadata.CopySegmentFinished && (cause == RetentionTime || cause == RetentionSize) {
			excess = max(0, excess-seg.SizeBytes)
			v.logStart = max(v.logStart, seg.EndOffset+1)
		}
	}
	return v
}

// isCopied reports whether this process is about to finish the segment.
func (r *retention) isCopied(seg *metadata.Segment) bool {
	return seg.State == metadata.CopySegmentStarted && r.copying != nil && r.copying(seg.StartOffset)
}

// cutoff returns the greatest timestamp that retention.ms lets expire, -1 if none:
// Kafka ignores a retention that reaches back beyond 1970.
func cutoff(now, retentionMs int64) int64 {
	if retentionMs <= 0 || now < retentionMs {
		return -1
	}
	return now - retentionMs
}
