package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/internal/pace"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// DeleterOptions configures a Deleter. The zero value is useful.
type DeleterOptions struct {
	// Delay is how long readers have after DELETE_STARTED before objects go; 0 is
	// 60 s, less is none. It is waited for in full: no clock is compared with
	// another, so none that jumps can make it shorter.
	Delay time.Duration

	// PerSecond is how many objects all calls together delete in a second at most;
	// 0 is 100, less is no bound. Each costs up to four requests.
	PerSecond int

	// Concurrency is how many objects all calls together delete at once; 0 is 4.
	// With 1 a call does everything in its caller's goroutine.
	Concurrency int

	Now    func() time.Time                                 // the clock of event timestamps; nil is time.Now
	Wait   func(ctx context.Context, d time.Duration) error // returns after d, or with an error when ctx ends; nil waits for a timer
	Events DeleteEvents
	Logger *slog.Logger // nil is silent
}

func (o *DeleterOptions) setDefaults() error {
	if o.Concurrency < 0 {
		return fmt.Errorf("deleter: negative option: Concurrency %d", o.Concurrency)
	}
	if o.Delay == 0 {
		o.Delay = 60 * time.Second
	}
	if o.PerSecond == 0 {
		o.PerSecond = 100
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == nil {
		o.Wait = pace.Wait
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// DeleteEvents tells the host what deletions do. Each func is optional, may be
// called from several goroutines at once, never under a lock, and should return
// soon.
type DeleteEvents struct {
	// Started: DELETE_SEGMENT_STARTED is durable, readers are told to skip.
	Started func(seg *metadata.Segment)
	// Finished: the object is gone and DELETE_SEGMENT_FINISHED is durable.
	Finished func(seg *metadata.Segment)
	// Failed: the segment was not deleted. Unless it is of another plugin, it is
	// DELETE_SEGMENT_STARTED and is tried again by the next call.
	Failed func(seg *metadata.Segment, err error)
}

// Deleter deletes segments and partitions. Its methods may be called
// concurrently, for the same segments too, and in several processes at once.
//
// Whatever was interrupted, by an error or a crash, is in metadata as
// DELETE_SEGMENT_STARTED, and Resume finds it there.
type Deleter struct {
	meta metadata.Store
	ep   *endpoint.Endpoint
	o    DeleterOptions
	gate gate

	slots chan struct{} // one for each deletion that runs
	pace  *pace.Pacer   // of PerSecond
	stats deleteCounters

	mu     sync.Mutex
	waited map[segment.UUID]struct{} // had their delay, and are still there; at most maxWaited; guarded by mu
}

// maxWaited bounds what a Deleter remembers of failed deletions: above it some
// segments wait for their readers once more.
const maxWaited = 10_000

// NewDeleter returns a Deleter for the objects in ep and the events in meta. Both
// stay the caller's.
func NewDeleter(meta metadata.Store, ep *endpoint.Endpoint, o DeleterOptions) (*Deleter, error) {
	if meta == nil || ep == nil {
		return nil, errors.New("deleter: a metadata store and an endpoint are required")
	}
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	return &Deleter{
		meta: meta, ep: ep, o: o,
		slots: make(chan struct{}, o.Concurrency), pace: pace.New(int64(o.PerSecond), pace.Clock{Wait: o.Wait}),
		waited: map[segment.UUID]struct{}{},
	}, nil
}

// Close cancels the deletions that run, waits for them, and makes later ones fail
// with ErrClosed. What it interrupts is found again by Resume. It closes nothing
// that it was given and may be called again.
func (d *Deleter) Close() { d.gate.close() }

// Delete deletes segments of one partition, in whatever state they are: it makes
// all of them unreadable, gives readers their delay, and deletes their objects.
// It blocks for at least the delay. Each is decided on as it is given: one that has
// become another since is metadata.ErrTransition; one that is being deleted or
// has ended already is fine.
//
// A failure of one segment does not keep it from the others. What failed, or was
// interrupted, stays DELETE_SEGMENT_STARTED and is found by Resume. The log start
// is not moved: who deletes what readers may still want makes a hole, and
// package fetch says what they are told there.
//
// Before anything happens: metadata.ErrIncomplete if the partition has records
// that are not understood, *transfer.OwnerError if the store is not the
// metadata's.
func (d *Deleter) Delete(ctx context.Context, w metadata.Writer, segs ...*metadata.Segment) error {
	if len(segs) == 0 {
		return nil
	}
	var p segment.Partition
	for i, s := range segs {
		if s == nil {
			return fmt.Errorf("deletion of %d segments: number %d is nil", len(segs), i)
		}
		if i == 0 {
			p = s.Partition
		}
		if s.Partition != p {
			return fmt.Errorf("deletion of segments of %s and %s: they must be of one partition", p, s.Partition)
		}
	}
	return d.run(ctx, p, func(ctx context.Context, j *job) error {
		j.writer = w
		return j.deleteAll(ctx, segs)
	})
}

// Resume goes on with every deletion of the partition that was begun and has not
// ended: by whom and when does not matter. Where there is none it does nothing.
// Otherwise it is as Delete.
func (d *Deleter) Resume(ctx context.Context, p segment.Partition, w metadata.Writer) error {
	return d.run(ctx, p, func(ctx context.Context, j *job) error {
		j.writer = w
		view, err := j.look()
		if err != nil {
			return err
		}
		return j.removeAll(ctx, deleting(view))
	})
}

// DeletePartition deletes all segments of a partition and ends it for good:
// DELETE_PARTITION_MARKED, from which on nothing is copied to it, STARTED, the
// segments, FINISHED. The host stops copies of it first. It may be called again
// after an error or a crash, and goes on where it was. Memory is bounded,
// however many segments there are.
//
// A segment that cannot be deleted (another plugin's, or one under whose key
// somebody else's bytes lie) leaves the partition in DELETE_PARTITION_STARTED,
// with an error.
func (d *Deleter) DeletePartition(ctx context.Context, p segment.Partition, w metadata.Writer) error {
	return d.run(ctx, p, func(ctx context.Context, j *job) error {
		j.writer = w
		return j.deletePartition(ctx)
	})
}

// run runs one call.
func (d *Deleter) run(ctx context.Context, p segment.Partition, f func(context.Context, *job) error) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("deletion in %s: %w", p, err)
	}
	ctx, leave, err := d.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := d.meta.Assign(ctx, []segment.Partition{p}, nil); err != nil {
		return fmt.Errorf("deletion in %s: %w", p, told(ctx, err))
	}
	if err := f(ctx, &job{d: d, p: p}); err != nil {
		return fmt.Errorf("deletion in %s: %w", p, told(ctx, err))
	}
	return nil
}

// deleting yields the segments whose deletion was begun.
func deleting(view *metadata.View) iter.Seq[*metadata.Segment] {
	return func(yield func(*metadata.Segment) bool) {
		for seg := range view.All() {
			if seg.State == metadata.DeleteSegmentStarted && !yield(seg) {
				return
			}
		}
	}
}

// DeleterStats are counters since NewDeleter.
type DeleterStats struct {
	Started  int64 // segments made unreadable
	Finished int64 // segments deleted
	Bytes    int64 // of their logs
	Aborted  int64 // unfinished uploads of ended segments
	Failed   int64 // attempts to delete a segment
	Running  int   // objects being deleted now
}

type deleteCounters struct {
	started, finished, bytes, aborted, failed atomic.Int64
}

// Stats returns the counters so far.
func (d *Deleter) Stats() DeleterStats {
	c := &d.stats
	return DeleterStats{
		Started: c.started.Load(), Finished: c.finished.Load(), Bytes: c.bytes.Load(),
		Aborted: c.aborted.Load(), Failed: c.failed.Load(), Running: len(d.slots),
	}
}
