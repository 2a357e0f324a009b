package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/internal/header"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// CopierOptions configures a Copier. The zero value is useful.
type CopierOptions struct {
	Scan   transfer.ScanOptions // chunk and part sizes
	Now    func() time.Time     // the clock of event timestamps; nil is time.Now
	Events Events
	Logger *slog.Logger // nil is silent
}

// Events tells the host what copies do. Each func is optional, may be called
// from several goroutines at once, never under a lock, and should return soon.
type Events struct {
	// Started: STARTED is durable and the upload begins. Size is that of the
	// object in bytes as far as it is known, log and index files.
	Started func(seg *metadata.Segment, size int64)
	// PartConfirmed: the store confirmed a part of the object, once for each part.
	// With Resumed set it was not sent now: an interrupted copy had left it.
	PartConfirmed func(seg *metadata.Segment, part objstore.PartEvidence)
	// Retried: an upload failed because of cause, and is tried again from where it
	// stands. What it confirmed stays confirmed.
	Retried func(seg *metadata.Segment, cause error)
	// Finished: the segment is readable. Existed says that it was before.
	Finished func(seg *metadata.Segment, existed bool)
	// Noticed: something about the source that a person should look at. The copy
	// goes on.
	Noticed func(info segment.Info, text string)
	// Failed: the copy ended with an error. The segment is not readable, unless
	// the error is that the answer to FINISHED was lost (metadata.ErrUnavailable).
	Failed func(info segment.Info, err error)
}

// Copier copies closed segments. Its methods may be called concurrently.
type Copier struct {
	meta  metadata.Store
	ep    *endpoint.Endpoint
	o     CopierOptions
	order orders

	owner struct {
		sync.Mutex
		checked, claimed bool
	}

	gate gate
}

// NewCopier returns a Copier that writes objects through ep and events to meta.
// Both stay the caller's.
func NewCopier(meta metadata.Store, ep *endpoint.Endpoint, o CopierOptions) (*Copier, error) {
	if meta == nil || ep == nil {
		return nil, errors.New("copier: a metadata store and an endpoint are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.Scan.Validate(); err != nil {
		return nil, fmt.Errorf("copier: %w", err)
	}
	c := &Copier{meta: meta, ep: ep, o: o, order: orders{partitions: map[segment.Partition]*order{}}}
	return c, nil
}

// Close cancels the copies that run, waits for them, and makes later ones fail
// with ErrClosed. It closes nothing that it was given and may be called again.
func (c *Copier) Close() { c.gate.close() }

// Copy copies the segment and returns its record once it is readable. If the
// range with these leader epochs is readable already, that record is returned.
// Copies of one partition are to be begun in offset order; they may overlap.
//
// After an error nothing of the source was lost, and Copy may simply be called
// again; see the package comment for what it finds then. The errors of the
// packages it goes through can be told by errors.Is and errors.As:
// *transfer.ScanError for a source that must not be copied,
// *transfer.OwnerError, objstore.ErrFull, metadata.ErrFenced, *OrderError, and
// so on; docs/errors.md has them all.
func (c *Copier) Copy(ctx context.Context, src segment.Source, w metadata.Writer) (*metadata.Segment, error) {
	if src == nil {
		return nil, errors.New("copier: Copy without a source")
	}
	info := src.Info()
	ctx, leave, err := c.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	seg, existed, err := c.copy(ctx, src, info, w)
	if err != nil {
		err = fmt.Errorf("copy of offsets %d to %d of %s: %w", info.StartOffset, info.EndOffset, info.Partition, told(ctx, err))
		c.o.Logger.Error("copy failed", "partition", info.Partition, "start", info.StartOffset, "end", info.EndOffset, "err", err)
		if c.o.Events.Failed != nil {
			c.o.Events.Failed(info, err)
		}
		return nil, err
	}
	c.o.Logger.Info("segment is readable", "partition", info.Partition, "start", info.StartOffset, "end", info.EndOffset, "id", seg.ID, "existed", existed)
	if c.o.Events.Finished != nil {
		c.o.Events.Finished(seg, existed)
	}
	return seg, nil
}

func (c *Copier) copy(ctx context.Context, src segment.Source, info segment.Info, w metadata.Writer) (_ *metadata.Segment, existed bool, err error) {
	if err := c.meta.Assign(ctx, []segment.Partition{info.Partition}, nil); err != nil {
		return nil, false, err
	}
	if err := c.outlived(info); err != nil {
		return nil, false, err
	}
	if err := c.checkOwner(ctx); err != nil {
		return nil, false, err
	}
	if info.StartOffset < 0 {
		// No copy could ever be in its place, and it would hold back all others.
		return nil, false, &transfer.ScanError{
			Partition: info.Partition, StartOffset: info.StartOffset, File: segment.Log, Pos: -1,
			Err: fmt.Errorf("%w: offsets %d to %d", transfer.ErrCorruptSegment, info.StartOffset, info.EndOffset),
		}
	}
	turn, err := c.order.enter(ctx, info.Partition, info.StartOffset, info.EndOffset)
	if err != nil {
		return nil, false, err
	}
	whole := false // unless anybody panics
	defer func() {
		if !whole {
			err = errors.New("the copy panicked")
		}
		turn.leave(err)
	}()
	seg, existed, err := c.inTurn(ctx, turn, src, info, w)
	whole = true
	return seg, existed, err
}

// inTurn copies a segment that has its place in the order of its partition.
func (c *Copier) inTurn(ctx context.Context, turn *turn, src segment.Source, info segment.Info, w metadata.Writer) (_ *metadata.Segment, existed bool, err error) {
	if seg, err := c.readable(src, info); seg != nil || err != nil {
		return seg, true, err
	}
	if err := turn.blocked(c.covers); err != nil {
		return nil, false, err // before anything is sent in vain
	}
	plan, err := transfer.Scan(ctx, src, c.o.Scan)
	if err != nil {
		return nil, false, err
	}
	if err := c.hides(info, plan.LastOffset()); err != nil {
		return nil, false, err
	}
	if err := c.claim(ctx); err != nil {
		return nil, false, err
	}
	started, err := c.start(ctx, plan, info, w)
	if err != nil {
		return c.instead(src, info, err)
	}
	if err := c.retire(ctx, started, w); err != nil {
		return nil, false, err
	}
	var told progress
	receipt, err := transfer.Upload(ctx, c.ep, src, plan, header.Of(started), c.uploadOptions(started, &told))
	if n := told.resumed.Load(); n > 0 {
		c.o.Logger.Info("an interrupted copy was resumed", "partition", info.Partition, "start", info.StartOffset, "id", started.ID,
			"parts", n, "bytes", told.resumedBytes.Load())
	}
	if err != nil {
		if errors.Is(err, objstore.ErrConflict) {
			// Other bytes lie under this id's own key. They are not ours to
			// delete, and the id can never be finished: the next attempt takes a
			// new one.
			_, gone := c.end(ctx, started, w)
			err = errors.Join(err, gone)
		}
		return nil, false, err
	}
	if err := turn.await(ctx, c.covers); err != nil {
		return nil, false, err
	}
	seg, err := c.finish(ctx, started, receipt, w)
	if errors.Is(err, metadata.ErrDuplicate) {
		// Another copy of the range was faster, and this id can never be finished.
		if derr := c.abandon(ctx, started, w); derr != nil {
			return nil, false, errors.Join(err, derr)
		}
	}
	if err != nil {
		return c.instead(src, info, errors.Join(err, c.discard(ctx, started, err)))
	}
	return seg, false, nil
}

// discard deletes the object of a copy that somebody has ended while it was under
// way: the record says so, and who deleted may have looked before the object was
// there. The copy was never readable, and its upload, which is over, was ours.
func (c *Copier) discard(ctx context.Context, started *metadata.Segment, err error) error {
	if !errors.Is(err, metadata.ErrTransition) {
		return nil
	}
	view, verr := c.meta.View(started.Partition)
	if verr != nil {
		return verr // the collector finds it
	}
	if seg, ok := view.Get(started.ID); !ok || seg.State != metadata.DeleteSegmentStarted && seg.State != metadata.DeleteSegmentFinished {
		return nil
	}
	return c.ep.Delete(ctx, object.Key(started.Partition, started.StartOffset, started.ID))
}

// ErrBelowLogStart: the segment ends below the partition's log start, so nobody
// may read it any more. It was not copied, and holds back no other.
var ErrBelowLogStart = errors.New("segment is below the log start")

// outlived refuses what retention has passed already, as far as metadata keeps
// the log start: a directory that still has such a segment would be copied and
// expired for ever.
func (c *Copier) outlived(info segment.Info) error {
	kept, ok := c.meta.(metadata.LogStarts)
	if !ok {
		return nil
	}
	if start, ok := kept.LogStart(info.Partition); ok && info.EndOffset < start {
		c.order.forget(info.Partition, start)
		return fmt.Errorf("%w: the log starts at %d", ErrBelowLogStart, start)
	}
	return nil
}

// instead returns the readable copy that metadata found in place of this one, if
// that is what err says.
func (c *Copier) instead(src segment.Source, info segment.Info, err error) (*metadata.Segment, bool, error) {
	if errors.Is(err, metadata.ErrDuplicate) {
		if seg, rerr := c.readable(src, info); seg != nil || rerr != nil {
			return seg, true, rerr
		}
	}
	return nil, false, err
}

// readable returns the FINISHED segment of exactly this range and history, nil if there is none.
func (c *Copier) readable(src segment.Source, info segment.Info) (*metadata.Segment, error) {
	view, err := c.meta.View(info.Partition)
	if err != nil {
		return nil, err
	}
	epochs := info.Epochs.Range(info.StartOffset, info.EndOffset)
	for _, seg := range view.Exactly(info.StartOffset, info.EndOffset) {
		if seg.State != metadata.CopySegmentFinished || !slices.Equal(seg.Epochs, epochs) {
			continue
		}
		if over, ok := shadow(view, info, seg); ok {
			// Metadata takes no second copy of a readable range, so all that can be
			// done about a wrong one is to say so.
			c.notice(info, fmt.Sprintf("readers get these offsets from segment %s, offsets %d to %d, which was copied later", over.ID, over.StartOffset, over.EndOffset))
		}
		if _, size := src.File(segment.Log); size != seg.SizeBytes {
			// Kafka's brokers never rewrite what they tier; a log compacted
			// since is the likely reason. What is in the tier stays the truth.
			c.notice(info, fmt.Sprintf("the log has %d bytes here and %d in the tier, which is not touched: was it compacted since, or is it damaged?", size, seg.SizeBytes))
		}
		return seg, nil
	}
	return nil, nil
}

// shadow returns the segment that readers of an end of seg get in its place.
func shadow(view *metadata.View, info segment.Info, seg *metadata.Segment) (metadata.Segment, bool) {
	for _, offset := range []int64{info.StartOffset, info.EndOffset} {
		if found, ok := view.Lookup(info.Epochs, offset); ok && found.ID != seg.ID {
			return found, true
		}
	}
	return metadata.Segment{}, false
}

// hides refuses a segment whose last batch lies before its end while the tier
// has readable offsets between: a log file is missing in the source, and what
// is in the tier would be hidden by a newer segment that has nothing there. What
// lies between and is in no tier either may be compaction, or a first copy of a
// directory with a hole; nobody can tell but a person.
func (c *Copier) hides(info segment.Info, last int64) error {
	if last >= info.EndOffset {
		return nil
	}
	view, err := c.meta.View(info.Partition)
	if err != nil {
		return err
	}
	for seg := range view.All() {
		from, to := max(seg.StartOffset, last+1), min(seg.EndOffset, info.EndOffset)
		same := seg.StartOffset == info.StartOffset && seg.EndOffset == info.EndOffset
		if seg.State == metadata.CopySegmentFinished && !same && from <= to {
			return &GapError{Partition: info.Partition, StartOffset: info.StartOffset, From: from, To: to, SegmentID: seg.ID}
		}
	}
	c.notice(info, fmt.Sprintf("the last batch ends at offset %d: nothing is there for offsets %d to %d, before the next segment; that is usual in a compacted topic, in any other a log file is missing",
		last, last+1, info.EndOffset))
	return nil
}

// GapError says that a segment would hide others: its log ends before its last
// offset, and the tier has readable segments there. Most likely the log file that
// follows it is missing. Bring it back, or remove the segments in the tier first.
type GapError struct {
	Partition   segment.Partition
	StartOffset int64        // of the segment that was to be copied
	From, To    int64        // offsets that it does not have and the tier has
	SegmentID   segment.UUID // of a segment in the tier that has them
}

// Error names the segment and the offsets.
func (e *GapError) Error() string {
	return fmt.Sprintf("the segment at offset %d of %s has nothing for offsets %d to %d, which segment %s in the tier has and would be hidden: is a log file missing behind it?",
		e.StartOffset, e.Partition, e.From, e.To, e.SegmentID)
}

func (c *Copier) notice(info segment.Info, text string) {
	c.o.Logger.Warn(text, "partition", info.Partition, "start", info.StartOffset, "end", info.EndOffset)
	if c.o.Events.Noticed != nil {
		c.o.Events.Noticed(info, text)
	}
}

// start returns the STARTED record under which this plan is uploaded: the one
// that an earlier attempt of the same writer left, or a new one.
func (c *Copier) start(ctx context.Context, plan *transfer.Plan, info segment.Info, w metadata.Writer) (*metadata.Segment, error) {
	view, err := c.meta.View(info.Partition)
	if err != nil {
		return nil, err
	}
	fingerprint := plan.Fingerprint()
	epochs := info.Epochs.Range(info.StartOffset, info.EndOffset)
	for _, old := range view.Started(w, info.StartOffset, info.EndOffset) {
		if bytes.Equal(old.Custom, fingerprint) && slices.Equal(old.Epochs, epochs) {
			c.announce(old, plan)
			return old, nil
		}
		if err := c.abandon(ctx, old, w); err != nil {
			return nil, err
		}
	}
	seg := &metadata.Segment{
		Partition:     info.Partition,
		ID:            segment.NewUUID(),
		StartOffset:   info.StartOffset,
		EndOffset:     info.EndOffset,
		MaxTimestamp:  plan.MaxTimestamp(),
		SizeBytes:     plan.LogSize(),
		Epochs:        epochs,
		Custom:        fingerprint,
		TxnIndexEmpty: plan.TxnIndexEmpty(),
	}
	ev, err := metadata.Started(seg, w, c.o.Now().UnixMilli())
	if err != nil {
		return nil, err
	}
	// An outcome that is unknown needs no reading back here: if STARTED did
	// happen, the next attempt finds it, and without it nothing is sent.
	if err := c.meta.Publish(ctx, ev); err != nil {
		return nil, fmt.Errorf("%s: %w", metadata.CopySegmentStarted, err)
	}
	c.announce(ev.Segment(), plan)
	return ev.Segment(), nil
}

// retire ends what older leaders have announced of the same range. Since STARTED
// of this writer is durable they are fenced and can never finish; the event is
// decided on STARTED, so whatever did happen before is not undone. Their objects
// are the collector's: an upload may still be under way. Where leader epochs are
// not kept (-1) nobody can tell who is older.
func (c *Copier) retire(ctx context.Context, started *metadata.Segment, w metadata.Writer) error {
	view, err := c.meta.View(started.Partition)
	if err != nil {
		return err
	}
	for _, old := range view.Exactly(started.StartOffset, started.EndOffset) {
		if old.State != metadata.CopySegmentStarted || old.LeaderEpoch < 0 || old.LeaderEpoch >= w.LeaderEpoch || old.ID == started.ID {
			continue
		}
		ev, err := metadata.DeleteStarted(old, w, c.o.Now().UnixMilli())
		if err != nil {
			return err
		}
		if err := c.meta.Publish(ctx, ev); err != nil && !errors.Is(err, metadata.ErrTransition) {
			return fmt.Errorf("%s of segment %s, which leader epoch %d left: %w", metadata.DeleteSegmentStarted, old.ID, old.LeaderEpoch, err)
		}
		c.o.Logger.Info("copy of an older leader was given up", "partition", old.Partition, "start", old.StartOffset, "id", old.ID, "leaderEpoch", old.LeaderEpoch)
	}
	return nil
}

// finish makes the segment readable. When the answer is lost, the state decides, and nothing is undone.
func (c *Copier) finish(ctx context.Context, started *metadata.Segment, r transfer.Receipt, w metadata.Writer) (*metadata.Segment, error) {
	ev, err := metadata.Finished(started, r, w, c.o.Now().UnixMilli())
	if err != nil {
		return nil, err
	}
	err = c.meta.Publish(ctx, ev)
	if err == nil {
		return ev.Segment(), nil
	}
	if view, verr := c.meta.View(started.Partition); verr == nil {
		if seg, ok := view.Get(started.ID); ok && seg.State == metadata.CopySegmentFinished {
			return seg, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", metadata.CopySegmentFinished, err)
}

// end makes sure that an id is never finished: DELETE_STARTED.
func (c *Copier) end(ctx context.Context, seg *metadata.Segment, w metadata.Writer) (*metadata.Segment, error) {
	ev, err := metadata.DeleteStarted(seg, w, c.o.Now().UnixMilli())
	if err != nil {
		return nil, err
	}
	if err := c.meta.Publish(ctx, ev); err != nil {
		return nil, fmt.Errorf("%s: %w", metadata.DeleteSegmentStarted, err)
	}
	return ev.Segment(), nil
}

// abandon ends an id whose source is not what it was, and deletes what was
// uploaded under it: DELETE_STARTED, the object, DELETE_FINISHED. It was never
// readable.
func (c *Copier) abandon(ctx context.Context, seg *metadata.Segment, w metadata.Writer) error {
	ending, err := c.end(ctx, seg, w)
	if err != nil {
		return err
	}
	key := object.Key(seg.Partition, seg.StartOffset, seg.ID)
	if err := c.ep.Delete(ctx, key); err != nil {
		return err
	}
	switch _, err := c.ep.Stat(ctx, key); { // a store may delete later than it says
	case err == nil:
		return fmt.Errorf("object %s is still there after it was deleted", key)
	case !errors.Is(err, objstore.ErrNotExist):
		return err
	}
	ev, err := metadata.DeleteFinished(ending, w, c.o.Now().UnixMilli())
	if err != nil {
		return err
	}
	if err := c.meta.Publish(ctx, ev); err != nil {
		return fmt.Errorf("%s: %w", metadata.DeleteSegmentFinished, err)
	}
	return nil
}

func (c *Copier) announce(seg *metadata.Segment, plan *transfer.Plan) {
	if c.o.Events.Started != nil {
		c.o.Events.Started(seg, plan.Size())
	}
}

// progress counts what an upload did not have to send.
type progress struct{ resumed, resumedBytes atomic.Int64 }

// uploadOptions passes on what an upload tells to the host, the log and told.
func (c *Copier) uploadOptions(seg *metadata.Segment, told *progress) transfer.UploadOptions {
	return transfer.UploadOptions{
		Confirmed: func(e objstore.PartEvidence) {
			if e.Resumed {
				told.resumed.Add(1)
				told.resumedBytes.Add(e.Sum.Len)
			}
			if f := c.o.Events.PartConfirmed; f != nil {
				f(seg, e)
			}
		},
		Retried: func(cause error) {
			c.o.Logger.Info("an upload is tried again", "partition", seg.Partition, "start", seg.StartOffset, "id", seg.ID, "cause", cause)
			if f := c.o.Events.Retried; f != nil {
				f(seg, cause)
			}
		},
	}
}

// covers reports whether metadata has a readable segment over an offset.
func (c *Copier) covers(p segment.Partition, offset int64) bool {
	view, err := c.meta.View(p)
	if err != nil {
		return false
	}
	_, ok := view.Lookup(nil, offset)
	return ok
}

// Copying reports whether a Copy of the segment with that base offset runs.
func (c *Copier) Copying(p segment.Partition, startOffset int64) bool {
	c.order.mu.Lock()
	defer c.order.mu.Unlock()
	q := c.order.partitions[p]
	if q == nil {
		return false
	}
	_, ok := q.running[startOffset]
	return ok
}

// Forget says that the partition's log now starts at logStart: segments that end
// below it will not be copied any more, so those that failed to be hold nothing
// back.
func (c *Copier) Forget(p segment.Partition, logStart int64) { c.order.forget(p, logStart) }

// checkOwner makes sure that the prefix is ours, or nobody's and metadata has
// nothing in it: a metadata store with readable segments and a prefix without
// their owner's marker do not belong together. It asks once.
func (c *Copier) checkOwner(ctx context.Context) error {
	c.owner.Lock()
	checked := c.owner.checked
	c.owner.Unlock()
	if checked {
		return nil
	}
	err := transfer.CheckOwner(ctx, c.ep, c.meta.ID())
	var owner *transfer.OwnerError
	if errors.As(err, &owner) && owner.Owner == "" {
		var some bool
		if some, err = c.anyReadable(); err == nil && some {
			// The first copy may have ended meanwhile. Whatever is readable was
			// announced behind the marker, so this look is the one that counts.
			err = transfer.CheckOwner(ctx, c.ep, c.meta.ID())
		}
	}
	if err != nil {
		return err
	}
	c.owner.Lock()
	c.owner.checked = true
	c.owner.Unlock()
	return nil
}

func (c *Copier) anyReadable() (bool, error) {
	partitions, err := c.meta.Partitions()
	if err != nil {
		return false, err
	}
	for _, p := range partitions {
		view, err := c.meta.View(p)
		if err != nil {
			return false, err
		}
		for seg := range view.All() {
			if seg.State == metadata.CopySegmentFinished {
				return true, nil
			}
		}
	}
	return false, nil
}

// claim makes sure that the prefix names our metadata store as its owner, before
// the first STARTED. It asks once.
func (c *Copier) claim(ctx context.Context) error {
	c.owner.Lock()
	claimed := c.owner.claimed
	c.owner.Unlock()
	if claimed {
		return nil
	}
	if err := transfer.ClaimOwner(ctx, c.ep, c.meta.ID()); err != nil {
		return err
	}
	c.owner.Lock()
	c.owner.claimed = true
	c.owner.Unlock()
	return nil
}
