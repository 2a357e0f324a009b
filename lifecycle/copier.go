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
	// Failed: the copy ended with an error; the segment is not readable.
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
		claimed bool
	}
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
	return &Copier{meta: meta, ep: ep, o: o, order: orders{partitions: map[segment.Partition]*order{}}}, nil
}

// Copy copies the segment and returns its record once it is readable. If the
// range with these leader epochs is readable already, that record is returned.
// After an error the segment is not readable by this call, nothing of the source
// was lost, and Copy may simply be called again; see the package comment for
// what it finds then. The errors of the packages it goes through can be told by
// errors.Is and errors.As: *transfer.ScanError for a source that must not be
// copied, objstore.ErrFull, metadata.ErrFenced, *OwnerError, *OrderError, and so on.
func (c *Copier) Copy(ctx context.Context, src segment.Source, w metadata.Writer) (*metadata.Segment, error) {
	info := src.Info()
	seg, existed, err := c.copy(ctx, src, info, w)
	if err != nil {
		err = fmt.Errorf("copy of offsets %d to %d of %s: %w", info.StartOffset, info.EndOffset, info.Partition, err)
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
	turn := c.order.enter(info.Partition, info.StartOffset)
	defer func() { turn.leave(err) }()

	if err := c.meta.Assign(ctx, []segment.Partition{info.Partition}, nil); err != nil {
		return nil, false, err
	}
	if seg, err := c.readable(src, info); seg != nil || err != nil {
		return seg, true, err
	}
	plan, err := transfer.Scan(ctx, src, c.o.Scan)
	if err != nil {
		return nil, false, err
	}
	if err := c.claim(ctx); err != nil {
		return nil, false, err
	}
	started, err := c.start(ctx, plan, info, w)
	if err != nil {
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
			// Something else lies under this id's own key. The id can never be
			// finished; the next attempt takes a new one.
			err = errors.Join(err, c.abandon(ctx, started, w))
		}
		return nil, false, err
	}
	if err := turn.await(ctx, c.covers); err != nil {
		return nil, false, err
	}
	seg, err := c.finish(ctx, started, receipt, w)
	return seg, false, err
}

// readable returns the FINISHED segment of exactly this range and history, nil if there is none.
func (c *Copier) readable(src segment.Source, info segment.Info) (*metadata.Segment, error) {
	view, err := c.meta.View(info.Partition)
	if err != nil {
		return nil, err
	}
	epochs := info.Epochs.Range(info.StartOffset, info.EndOffset)
	for seg := range view.All() {
		if seg.State != metadata.CopySegmentFinished || seg.StartOffset != info.StartOffset ||
			seg.EndOffset != info.EndOffset || !slices.Equal(seg.Epochs, epochs) {
			continue
		}
		if _, size := src.File(segment.Log); size != seg.SizeBytes {
			// Kafka's brokers never rewrite what they tier; a log compacted
			// since is the likely reason. What is in the tier stays the truth.
			c.o.Logger.Warn("segment is readable in the tier with another size than here",
				"partition", info.Partition, "start", info.StartOffset, "id", seg.ID, "tier", seg.SizeBytes, "here", size)
		}
		return seg, nil
	}
	return nil, nil
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

// abandon ends an id that can never be finished: DELETE_STARTED, its object,
// DELETE_FINISHED. It was never readable.
func (c *Copier) abandon(ctx context.Context, seg *metadata.Segment, w metadata.Writer) error {
	ev, err := metadata.DeleteStarted(seg, w, c.o.Now().UnixMilli())
	if err != nil {
		return err
	}
	if err := c.meta.Publish(ctx, ev); err != nil {
		return fmt.Errorf("%s: %w", metadata.DeleteSegmentStarted, err)
	}
	if err := c.ep.Delete(ctx, object.Key(seg.Partition, seg.StartOffset, seg.ID)); err != nil {
		return err
	}
	if ev, err = metadata.DeleteFinished(ev.Segment(), w, c.o.Now().UnixMilli()); err != nil {
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
