package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// ErrUnknown: retention lacks something that it must know before it may delete:
// the message says what. Nothing was deleted.
var ErrUnknown = errors.New("retention does not know enough to delete")

// ExpirerOptions configures an Expirer. Clock, log and pace are its Deleter's.
type ExpirerOptions struct {
	// Copying says whether this process copies the segment with that base offset at
	// this moment: such a one is never expired; see Copier.Copying. nil: no process
	// does while Expire runs.
	Copying func(p segment.Partition, startOffset int64) bool

	// LogStartMoved takes over a log start that retention has moved, durably: it is
	// called before anything is deleted, behind the metadata store if that keeps the
	// log start (metadata.LogStarts). Where it does not, retention by time and size
	// needs this. An error ends the call.
	LogStartMoved func(ctx context.Context, p segment.Partition, offset int64) error

	// MaxSegments is how many segments a call expires at most; 0 is 10,000. The rest
	// is for the next one.
	MaxSegments int
}

// maxSegments is the default of ExpirerOptions.MaxSegments: some 3 MB of memory.
const maxSegments = 10_000

// maxClockSkew is how far this machine's clock may be from the store's while
// segments expire by time. S3 itself refuses requests that are further off.
const maxClockSkew = 15 * time.Minute

// Expirer applies retention to partitions. Its methods may be called
// concurrently; closing its Deleter ends them.
type Expirer struct {
	d *Deleter
	o ExpirerOptions
}

// NewExpirer returns an Expirer that deletes by d, which stays the caller's.
func NewExpirer(d *Deleter, o ExpirerOptions) (*Expirer, error) {
	if d == nil {
		return nil, errors.New("expirer: a deleter is required")
	}
	if o.MaxSegments < 0 {
		return nil, fmt.Errorf("expirer: negative option: MaxSegments %d", o.MaxSegments)
	}
	if o.MaxSegments == 0 {
		o.MaxSegments = maxSegments
	}
	return &Expirer{d: d, o: o}, nil
}

// ExpireRequest tells what only the partition's leader knows.
type ExpireRequest struct {
	Partition segment.Partition
	Writer    metadata.Writer

	// Lineage is the partition's history of leader epochs, from the log start on at
	// least. Required: one that begins later would make dead what is not.
	Lineage segment.Lineage

	// LogStart is the first offset that may be read. The greater one of it and of
	// what metadata says counts.
	LogStart int64

	// LogEnd is the first offset after the last of the log (Kafka's log end
	// offset), math.MaxInt64 where there is no log but the tier. Required.
	LogEnd int64

	// RetentionMs and RetentionBytes are Kafka's retention.ms and retention.bytes;
	// 0, as -1, is no bound. (Kafka's 0, which keeps nothing, is 1 here.)
	RetentionMs, RetentionBytes int64

	// LocalBytes returns how many bytes the log has from an offset on: those that
	// the tier does not have, the active segment included. Required for
	// RetentionBytes. It is asked once the offset is known, so that nothing counts
	// twice.
	LocalBytes func(from int64) (int64, error)

	// ReportOnly has Expire say what it would do, and do nothing.
	ReportOnly bool
}

// Expiry is what an Expire did, or would do.
type Expiry struct {
	Expired  []Expired // in offset order
	LogStart int64     // the log start after it
	More     bool      // there may be more than MaxSegments: call again
}

// Expire decides what retention lets go of a partition now, moves the log start
// above it, and then deletes it; see Deleter.Delete for how, and how long that
// takes. What an earlier call did not bring to its end, whoever made it, is
// brought there.
//
// Nothing is deleted, and the log start is not moved, when anything is not known
// that the decision needs: ErrUnknown for what the request lacks or a clock that is
// off, metadata.ErrNotReady, ErrIncomplete, *transfer.OwnerError. If there are
// Expired segments in spite of an error, the log start has moved and the error is of
// their deletion.
func (e *Expirer) Expire(ctx context.Context, req ExpireRequest) (Expiry, error) {
	var x Expiry
	err := e.d.run(ctx, req.Partition, func(ctx context.Context, j *job) error {
		j.writer = req.Writer
		v, err := e.decide(j, &req)
		if err != nil {
			return err
		}
		x = Expiry{Expired: v.expired, LogStart: v.logStart, More: v.more}
		if req.ReportOnly || len(v.expired) == 0 {
			return nil
		}
		segs, err := e.prepare(ctx, &req, v)
		if err != nil {
			x = Expiry{LogStart: v.before}
			return err
		}
		return j.deleteAll(ctx, segs)
	})
	return x, err
}

// decide collects all that must be known, and decides.
func (e *Expirer) decide(j *job, req *ExpireRequest) (verdict, error) {
	unknown := func(format string, args ...any) (verdict, error) {
		return verdict{}, fmt.Errorf("%w: %w", ErrUnknown, fmt.Errorf(format, args...))
	}
	view, err := j.look()
	if err != nil {
		return verdict{}, err
	}
	logStart := max(req.LogStart, view.LogStart())
	if view.Info().Deletion != metadata.PartitionKept {
		return verdict{before: logStart, logStart: logStart}, nil // all of it goes, by DeletePartition
	}
	switch err := req.Lineage.Validate(); {
	case err != nil:
		return unknown("%w", err)
	case len(req.Lineage) == 0:
		return unknown("the partition's leader epochs")
	case req.LogStart < 0:
		return unknown("the log start (%d)", req.LogStart)
	case req.LogEnd <= 0 || req.LogEnd < req.LogStart:
		return unknown("the log end (%d, the log starts at %d)", req.LogEnd, req.LogStart)
	case req.Lineage[0].Start > logStart:
		return unknown("leader epochs before offset %d, while the log starts at %d", req.Lineage[0].Start, logStart)
	}
	now := e.d.o.Now().UnixMilli()
	if now <= 0 {
		return unknown("the time: the clock says %d ms", now)
	}
	r := retention{
		history: history(req.Lineage, logStart), logStart: logStart, logEnd: req.LogEnd,
		cutoff: cutoff(now, req.RetentionMs), limit: -1, most: e.o.MaxSegments,
	}
	if e.o.Copying != nil {
		r.copying = func(start int64) bool { return e.o.Copying(req.Partition, start) }
	}
	if req.RetentionBytes > 0 {
		if req.LocalBytes == nil {
			return unknown("the size of what is not tiered")
		}
		from := logStart
		if last, _, ok := view.LatestOffset(r.history); ok {
			from = max(from, last+1)
		}
		if r.local, err = req.LocalBytes(from); err != nil || r.local < 0 {
			return unknown("the size of what is not tiered (%d bytes, %w)", r.local, orNone(err))
		}
		r.limit = req.RetentionBytes
	}
	return r.decide(view), nil
}

// orNone keeps a nil out of a wrapped error.
func orNone(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// prepare does what must come before any deletion, and returns what is to be
// deleted.
func (e *Expirer) prepare(ctx context.Context, req *ExpireRequest, v verdict) ([]*metadata.Segment, error) {
	segs := make([]*metadata.Segment, len(v.expired))
	byTime, resumed := false, true
	for i, x := range v.expired {
		segs[i] = x.Segment
		byTime = byTime || x.Cause == RetentionTime
		resumed = resumed && x.Cause == BeganDeletion
	}
	if err := transfer.CheckOwner(ctx, e.d.ep, e.d.meta.ID()); err != nil {
		return nil, err // before the log start moves, which is for ever
	}
	if byTime {
		if err := e.checkClock(ctx); err != nil {
			return nil, err
		}
	}
	if !resumed {
		if err := e.moveLogStart(ctx, req, v.logStart); err != nil {
			return nil, fmt.Errorf("log start %d: %w", v.logStart, err)
		}
	}
	return segs, nil
}

// checkClock compares the clock with the store's, if that says what it is: one
// that runs far ahead would expire everything.
func (e *Expirer) checkClock(ctx context.Context) error {
	info, err := e.d.ep.Stat(ctx, object.OwnerKey)
	if err != nil || info.Now.IsZero() {
		return err
	}
	if off := e.d.o.Now().Sub(info.Now); off.Abs() > maxClockSkew {
		return fmt.Errorf("%w: the time: the clock of this machine and the store's differ by %v", ErrUnknown, off.Round(time.Second))
	}
	return nil
}

// moveLogStart moves the log start in metadata and in the host. Both may have been
// done before.
func (e *Expirer) moveLogStart(ctx context.Context, req *ExpireRequest, to int64) error {
	kept, keeps := e.d.meta.(metadata.LogStarts)
	switch {
	case keeps:
		if at, ok := kept.LogStart(req.Partition); ok && at >= to {
			break
		}
		if to == 0 {
			break // where it is anyway
		}
		if err := kept.SetLogStart(ctx, req.Partition, to, req.Writer); err != nil {
			if at, ok := kept.LogStart(req.Partition); !ok || at < to {
				return err
			}
		}
		e.d.o.Logger.Info("log start was moved", "partition", req.Partition, "offset", to)
	case e.o.LogStartMoved == nil && to > req.LogStart:
		return fmt.Errorf("%w: who keeps the log start: neither the metadata store nor ExpirerOptions.LogStartMoved", ErrUnknown)
	}
	if e.o.LogStartMoved == nil || to <= req.LogStart {
		return nil
	}
	return e.o.LogStartMoved(ctx, req.Partition, to)
}

// Outlived reports whether a segment that is not in the tier would expire as soon
// as it were: it ends below the log start, where Copy refuses it with
// ErrBelowLogStart, or its greatest timestamp is older than retentionMs. A host
// need not copy such a segment, if it moves its own log start above it: a segment
// that is left out and stays above the log start is a hole.
func (e *Expirer) Outlived(info segment.Info, maxTimestamp, retentionMs int64) (bool, error) {
	if err := info.Partition.Validate(); err != nil {
		return false, err
	}
	view, err := e.d.meta.View(info.Partition)
	if err != nil {
		return false, err
	}
	old := maxTimestamp >= 0 && maxTimestamp <= cutoff(e.d.o.Now().UnixMilli(), retentionMs)
	return old || info.EndOffset < view.LogStart(), nil
}
