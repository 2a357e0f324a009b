package segtier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// Options wires a Tier. Store and Metadata are required and stay the caller's;
// everything else has a useful zero value.
type Options struct {
	Store    objstore.Store
	Metadata metadata.Store

	// MemoryBytes is the greatest number of bytes of segment data held in memory
	// for reads: cached, in flight and leased by results. 0 is a quarter of what the process
	// may use, by its control group or the machine. It lies outside Go's heap on
	// Linux, where GOMEMLIMIT does not see it: lower that by as much. Two chunks
	// (ChunkSize) are the least: reading a batch across them takes both.
	// See Tier.SetMemoryBytes.
	MemoryBytes int64

	// Requests and BytesInFlight bound what is in flight to the store at any
	// moment, reads and writes together. 0 is 64 requests and 256 MiB.
	Requests      int
	BytesInFlight int64

	// UploadBytesPerSecond bounds how fast all copies together send; 0 is no bound.
	// TenantRequests and TenantBytesInFlight bound what the reads of one tenant
	// (fetch.Request.Tenant) have in flight; 0 is no bound. Of HedgeBytes and less, reads
	// that somebody waits for are asked for twice if the store is slow; 0 is none. See
	// endpoint.Options, and docs/tuning.md for what they cost and buy.
	UploadBytesPerSecond int64
	TenantRequests       int
	TenantBytesInFlight  int64
	HedgeBytes           int64

	// Attempts and RetryBudget bound the tries of one call and of all calls;
	// ProgressTimeout and UploadProgressTimeout are the patience with a store that sends
	// or takes nothing. 0 is the default of endpoint.Options: 4, 100, 10 s, 2 minutes.
	Attempts, RetryBudget                  int
	ProgressTimeout, UploadProgressTimeout time.Duration

	// RunBytes bounds one GET for data, TailBytes the memory for what is known of
	// segments, beside MemoryBytes; VisibilityGrace is how long the object of a new
	// segment may be missing. 0 is the default of fetch.Options: 16 MiB, 32 MiB, a minute.
	RunBytes, TailBytes int64
	VisibilityGrace     time.Duration

	// ChunkSize and PartSize, in bytes, are those of objects written from now
	// on; objects in the store keep theirs. 0 is 1 MiB and 16 MiB.
	ChunkSize, PartSize int64

	// DeleteDelay is how long readers have before the objects of segments that are
	// deleted or expire go; 0 is 60 s, less is none. DeletesPerSecond is how many of
	// them go in a second at most; 0 is 100, less is no bound.
	DeleteDelay      time.Duration
	DeletesPerSecond int

	// LogStartMoved takes over a log start that Expire has moved, before anything is
	// deleted; see lifecycle.ExpirerOptions.
	LogStartMoved func(ctx context.Context, p segment.Partition, offset int64) error

	Events       lifecycle.Events       // what copies do; optional
	DeleteEvents lifecycle.DeleteEvents // what deletions do; optional
	FetchEvents  fetch.Events           // what fetches do; optional

	// ProfileLabels has goroutines carry the pprof label "segtier" with what they
	// do: "copy", "delete", "expire", "verify", "orphans", "rebuild",
	// "lookup", "fetch", and within it "fill" and "tail". It costs a fetch some hundred nanoseconds and an allocation.
	ProfileLabels bool

	Logger *slog.Logger // nil is silent

	// Now is the clock of event timestamps; nil is time.Now.
	Now func() time.Time
}

// validate explains what is wrong with the options.
func (o *Options) validate() error {
	switch {
	case o.Store == nil:
		return errors.New("segtier: Options.Store is required")
	case o.Metadata == nil:
		return errors.New("segtier: Options.Metadata is required")
	}
	if err := (transfer.ScanOptions{ChunkSize: o.ChunkSize, PartSize: o.PartSize}).Validate(); err != nil {
		return fmt.Errorf("segtier: %w", err)
	}
	if o.ChunkSize == 0 {
		o.ChunkSize = object.DefaultChunkSize
	}
	var err error
	o.MemoryBytes, err = memoryBytes(o.MemoryBytes, o.ChunkSize)
	return err
}

// memoryBytes returns the budget that n stands for, or what is wrong with it.
func memoryBytes(n, chunk int64) (int64, error) {
	switch least := 2 * chunk; {
	case n == 0:
		return max(cache.DefaultMemoryBytes(), least), nil
	case n < least:
		return 0, fmt.Errorf("segtier: Options.MemoryBytes is %d: write 0 for the default, or %d at least, two chunks of %d bytes, which reading a batch across them takes", n, least, chunk)
	}
	return n, nil
}

// Tier is the object-store tier of a broker's partitions: it copies closed
// segments up and reads them back. Its methods may be called concurrently.
type Tier struct {
	meta   metadata.Store
	ep     *endpoint.Endpoint
	cache  *cache.Cache
	reader *fetch.Reader
	copier *lifecycle.Copier
	del    *lifecycle.Deleter
	expire *lifecycle.Expirer
	labels bool // see Options.ProfileLabels
	now    func() time.Time
	pace   int // see Options.DeletesPerSecond
	chunk  int64
	log    *slog.Logger
	close  func() error
}

// Open makes a Tier over a store and its metadata. It starts nothing and
// contacts nothing; the first Copy claims the store's prefix for the metadata.
func Open(ctx context.Context, o Options) (*Tier, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := &Tier{chunk: o.ChunkSize, meta: o.Metadata, labels: o.ProfileLabels, now: o.Now, pace: o.DeletesPerSecond, log: o.Logger}
	t.close = sync.OnceValue(t.shut)
	var err error
	t.ep, err = endpoint.New(o.Store, endpoint.Options{
		Requests:              o.Requests,
		BytesInFlight:         o.BytesInFlight,
		TenantRequests:        o.TenantRequests,
		TenantBytesInFlight:   o.TenantBytesInFlight,
		UploadBytesPerSecond:  o.UploadBytesPerSecond,
		Attempts:              o.Attempts,
		RetryBudget:           o.RetryBudget,
		ProgressTimeout:       o.ProgressTimeout,
		UploadProgressTimeout: o.UploadProgressTimeout,
		HedgeBytes:            o.HedgeBytes,
		Logger:                o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("segtier: %w", err)
	}
	if t.cache, err = cache.New(cache.Options{MemoryBytes: o.MemoryBytes}); err != nil {
		return nil, errors.Join(fmt.Errorf("segtier: %w", err), t.Close())
	}
	t.reader, err = fetch.New(o.Metadata, t.ep, t.cache, fetch.Options{
		TailBytes:       o.TailBytes,
		RunBytes:        o.RunBytes,
		VisibilityGrace: o.VisibilityGrace,
		Labels:          o.ProfileLabels,
		Events:          o.FetchEvents,
		Logger:          o.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("segtier: %w", err), t.Close())
	}
	t.copier, err = lifecycle.NewCopier(o.Metadata, t.ep, lifecycle.CopierOptions{
		Scan:   transfer.ScanOptions{ChunkSize: o.ChunkSize, PartSize: o.PartSize},
		Now:    o.Now,
		Events: o.Events,
		Logger: o.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("segtier: %w", err), t.Close())
	}
	deletes := 4
	if o.Requests > 0 { // most of them are for reads
		deletes = max(1, min(deletes, o.Requests/4))
	}
	t.del, err = lifecycle.NewDeleter(o.Metadata, t.ep, lifecycle.DeleterOptions{
		Concurrency: deletes,
		Delay:       o.DeleteDelay,
		PerSecond:   o.DeletesPerSecond,
		Now:         o.Now,
		Events:      o.DeleteEvents,
		Logger:      o.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("segtier: %w", err), t.Close())
	}
	t.expire, err = lifecycle.NewExpirer(t.del, lifecycle.ExpirerOptions{Copying: t.copier.Copying, LogStartMoved: o.LogStartMoved})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("segtier: %w", err), t.Close())
	}
	return t, nil
}

// Copy copies a closed segment and returns its record once it is readable; see
// lifecycle.Copier.Copy.
func (t *Tier) Copy(ctx context.Context, src segment.Source, w metadata.Writer) (seg *metadata.Segment, err error) {
	t.labelled(ctx, "copy", func(ctx context.Context) { seg, err = t.copier.Copy(ctx, src, w) })
	return seg, err
}

// Delete deletes segments of one partition, whatever state they are in; see
// lifecycle.Deleter.Delete. It takes at least the DeleteDelay.
func (t *Tier) Delete(ctx context.Context, w metadata.Writer, segs ...*metadata.Segment) (err error) {
	t.labelled(ctx, "delete", func(ctx context.Context) { err = t.del.Delete(ctx, w, segs...) })
	return err
}

// DeletePartition deletes a partition for good, once nothing is copied to it any
// more; see lifecycle.Deleter.DeletePartition. Several may run at once.
func (t *Tier) DeletePartition(ctx context.Context, p segment.Partition, w metadata.Writer) (err error) {
	t.labelled(ctx, "delete", func(ctx context.Context) { err = t.del.DeletePartition(ctx, p, w) })
	return err
}

// ResumeDeletes goes on with all deletions of a partition that were begun; see
// lifecycle.Deleter.Resume. Expire does that too.
func (t *Tier) ResumeDeletes(ctx context.Context, p segment.Partition, w metadata.Writer) (err error) {
	t.labelled(ctx, "delete", func(ctx context.Context) { err = t.del.Resume(ctx, p, w) })
	return err
}

// Expire applies retention to a partition, from time to time, on its leader; see
// lifecycle.Expirer.Expire. Segments that failed to be copied and end below the new
// log start hold back no others from then on.
func (t *Tier) Expire(ctx context.Context, req lifecycle.ExpireRequest) (x lifecycle.Expiry, err error) {
	t.labelled(ctx, "expire", func(ctx context.Context) { x, err = t.expire.Expire(ctx, req) })
	if !req.ReportOnly && (err == nil || len(x.Expired) > 0) {
		t.copier.Forget(req.Partition, x.LogStart)
	}
	return x, err
}

// Outlived reports whether a segment that is not in the tier would expire as soon
// as it were, so that it need not be copied; see lifecycle.Expirer.Outlived.
func (t *Tier) Outlived(info segment.Info, maxTimestamp, retentionMs int64) (bool, error) {
	return t.expire.Outlived(info, maxTimestamp, retentionMs)
}

// labelled runs f, under the label segtier=<what> if goroutines are to have labels.
func (t *Tier) labelled(ctx context.Context, what string, f func(context.Context)) {
	if !t.labels {
		f(ctx)
		return
	}
	pprof.Do(ctx, pprof.Labels("segtier", what), f)
}

// Fetch reads whole batches from an offset on into res; see fetch.Reader.Fetch.
func (t *Tier) Fetch(ctx context.Context, req fetch.Request, res *fetch.Result) (err error) {
	if !t.labels { // without a closure, which would be an allocation
		return t.reader.Fetch(ctx, req, res)
	}
	t.labelled(ctx, "fetch", func(ctx context.Context) { err = t.reader.Fetch(ctx, req, res) })
	return err
}

// FetchMany reads several partitions until ctx ends; see fetch.Reader.FetchMany.
func (t *Tier) FetchMany(ctx context.Context, req fetch.ManyRequest, answers []fetch.Answer) []fetch.Answer {
	t.labelled(ctx, "fetch", func(ctx context.Context) { answers = t.reader.FetchMany(ctx, req, answers) })
	return answers
}

// Announce says that a consumer will read a partition from an offset on, so that
// the cache keeps what it is about to need; see fetch.Reader.Announce.
func (t *Tier) Announce(p segment.Partition, offset int64) *fetch.Cursor {
	return t.reader.Announce(p, offset)
}

// Stream reads a partition in sequence, fetching ahead from the first read on; see
// fetch.Reader.Stream.
func (t *Tier) Stream(req fetch.Request) *fetch.Stream { return t.reader.Stream(req) }

// SetMemoryBytes changes Options.MemoryBytes while the Tier is in use; what that may be
// holds here too. What no result holds is given back at once, the rest as
// results are released; see cache.Cache.SetMemoryBytes. On an error the budget is what it was.
func (t *Tier) SetMemoryBytes(n int64) error {
	n, err := memoryBytes(n, t.chunk)
	if err != nil {
		return err
	}
	if err := t.cache.SetMemoryBytes(n); err != nil {
		return fmt.Errorf("segtier: %w", err)
	}
	return nil
}

// OffsetForTime finds the earliest offset at or after a time; see
// fetch.Reader.OffsetForTime.
func (t *Tier) OffsetForTime(ctx context.Context, req fetch.TimeRequest) (pos fetch.TimePosition, err error) {
	if !t.labels {
		return t.reader.OffsetForTime(ctx, req)
	}
	t.labelled(ctx, "lookup", func(ctx context.Context) { pos, err = t.reader.OffsetForTime(ctx, req) })
	return pos, err
}

// Explain tells how a fetch would be answered, without fetching data; see
// fetch.Reader.Explain.
func (t *Tier) Explain(ctx context.Context, req fetch.Request) (fetch.Explanation, error) {
	return t.reader.Explain(ctx, req)
}

// Verify reads every byte of every readable segment; see audit.Verify.
func (t *Tier) Verify(ctx context.Context, o audit.Options) (report audit.Report, err error) {
	t.labelled(ctx, "verify", func(ctx context.Context) { report, err = audit.Verify(ctx, t.meta, t.ep, o) })
	return report, err
}

// Orphans finds what no readable segment needs, and deletes it if it is told to; see
// audit.Orphans. Records are ended as Options.End says, or by a lifecycle.Deleter.
// Unless it says otherwise, it deletes at the rate of DeletesPerSecond.
func (t *Tier) Orphans(ctx context.Context, o audit.OrphanOptions) (report audit.OrphanReport, err error) {
	if o.PerSecond == 0 {
		o.PerSecond = t.pace
	}
	if o.End == nil {
		// What it is given was never readable, or has been unreadable for longer than
		// readers may take.
		deleter, err := lifecycle.NewDeleter(t.meta, t.ep, lifecycle.DeleterOptions{Delay: -1, PerSecond: t.pace, Now: t.now, Logger: t.log})
		if err != nil {
			return report, fmt.Errorf("segtier: %w", err)
		}
		defer deleter.Close()
		o.End = func(ctx context.Context, seg *metadata.Segment) error {
			w, err := t.lastWriter(seg)
			if err != nil {
				return err
			}
			return deleter.Delete(ctx, w, seg)
		}
	}
	t.labelled(ctx, "orphans", func(ctx context.Context) { report, err = audit.Orphans(ctx, t.meta, t.ep, o) })
	return report, err
}

// lastWriter is who has written of a segment, with the greatest leader epoch that
// has written of its partition: so nobody is fenced who was not before.
func (t *Tier) lastWriter(seg *metadata.Segment) (metadata.Writer, error) {
	view, err := t.meta.View(seg.Partition)
	if err != nil {
		return metadata.Writer{}, err
	}
	w := metadata.Writer{BrokerID: seg.BrokerID, LeaderEpoch: seg.LeaderEpoch}
	for s := range view.All() {
		w.LeaderEpoch = max(w.LeaderEpoch, s.LeaderEpoch)
	}
	for s := range view.Ended() {
		w.LeaderEpoch = max(w.LeaderEpoch, s.LeaderEpoch)
	}
	return w, nil
}

// Rebuild makes metadata from the objects in the store, in empty metadata; see
// audit.Rebuild.
func (t *Tier) Rebuild(ctx context.Context, o audit.RebuildOptions) (report audit.RebuildReport, err error) {
	t.labelled(ctx, "rebuild", func(ctx context.Context) { report, err = audit.Rebuild(ctx, t.meta, t.ep, o) })
	return report, err
}

// Partitions returns the partitions that metadata knows.
func (t *Tier) Partitions() ([]segment.Partition, error) { return t.meta.Partitions() }

// View returns what metadata knows of a partition now.
func (t *Tier) View(p segment.Partition) (*metadata.View, error) { return t.meta.View(p) }

// CopiedUpTo returns the frontier of a partition: the greatest offset such that
// every offset from the log start up to it is readable here, logStart-1 if none
// is. A host may delete its local segments that end at or below it. On an error
// it may delete nothing. lineage nil is the newest history in metadata.
func (t *Tier) CopiedUpTo(p segment.Partition, lineage segment.Lineage, logStart int64) (int64, error) {
	if err := lineage.Validate(); err != nil {
		return logStart - 1, fmt.Errorf("segtier: the lineage of %s: %w", p, err)
	}
	view, err := t.meta.View(p)
	if err != nil {
		return logStart - 1, err
	}
	return view.CoveredUpTo(lineage, logStart), nil
}

// Forget says that a partition's log now starts at logStart, so that segments
// which failed to be copied and end below it hold back no others; see
// lifecycle.Copier.Forget.
func (t *Tier) Forget(p segment.Partition, logStart int64) { t.copier.Forget(p, logStart) }

// CheckOwner asks whether the store's prefix belongs to this metadata: nil, or a
// *transfer.OwnerError. Ask it when objects seem to be missing: a wrong store
// looks like a lost one.
func (t *Tier) CheckOwner(ctx context.Context) error {
	return transfer.CheckOwner(ctx, t.ep, t.meta.ID())
}

// Stats are counters since Open.
type Stats struct {
	Endpoint endpoint.Stats
	Cache    cache.Stats
	Fetch    fetch.Stats
	Deletes  lifecycle.DeleterStats
}

// Stats returns the counters of the Tier's parts. It does no I/O.
func (t *Tier) Stats() Stats {
	return Stats{Endpoint: t.ep.Stats(), Cache: t.cache.Stats(), Fetch: t.reader.Stats(), Deletes: t.del.Stats()}
}

// Close ends running copies, deletions and reads, waits for them, and releases what Open
// made; Store and Metadata stay open. Results remain valid until they are
// released. A Verify that runs ends with an error. It may be called more than
// once.
func (t *Tier) Close() error { return t.close() }

func (t *Tier) shut() error {
	var errs []error
	if t.copier != nil {
		t.copier.Close()
	}
	if t.del != nil {
		t.del.Close()
	}
	if t.reader != nil {
		errs = append(errs, t.reader.Close())
	}
	if t.cache != nil {
		t.cache.Close()
	}
	if t.ep != nil {
		errs = append(errs, t.ep.Close())
	}
	return errors.Join(errs...)
}
