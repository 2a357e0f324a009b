package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier/internal/pace"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// What a rebuild makes of an object; the package comment says what each means.
const (
	Rebuilt        Reason = "REBUILT"
	LeftDamaged    Reason = "LEFT_DAMAGED"
	LeftConflict   Reason = "LEFT_CONFLICT"
	LeftDuplicate  Reason = "LEFT_DUPLICATE"
	LeftDeleted    Reason = "LEFT_DELETED"
	LeftBelowGap   Reason = "LEFT_BELOW_GAP"
	LeftMetadata   Reason = "LEFT_BY_METADATA"
	rebuildRunning        = 2 // jobs under way for each that is confirmed at a time
)

// Restored is what a rebuild makes of one object.
type Restored struct {
	Reason  Reason
	Key     string
	Size    int64             // of the object in bytes
	Segment *metadata.Segment // the record, nil if the object says nothing that can be understood

	// Candidate says that no copy of the partition was begun after this object was
	// complete, so that nothing tells it from one whose copy died before FINISHED.
	// (A copy begun later says that the host had gone on.) The object is whole either
	// way.
	Candidate bool

	Note string // what a person should know of it: overlaps, and why it was left
	Err  error  // the evidence of damage
}

// RebuildOptions says what a rebuild may do. The zero value changes nothing.
type RebuildOptions struct {
	// Apply takes the prefix over and writes records; without it everything is only
	// told, from the headers alone.
	Apply bool
	// Doubtful makes objects readable too that look as if retention had deleted
	// them: LEFT_DELETED by the partition's own history, and LEFT_BELOW_GAP.
	Doubtful bool
	// LogStart, if not nil, returns a partition's log start as the host knows it:
	// what ends below it was deleted by retention, and is not made readable.
	LogStart func(p segment.Partition) (offset int64, ok bool)

	// Parallel is how many objects are read at a time, each with some 10 MiB; 0 is 4.
	// BytesPerSecond bounds how fast; 0 is no bound.
	Parallel       int
	BytesPerSecond int64

	// Found, if not nil, is called for every object of a segment, by partition, from
	// Rebuild's own goroutine, when it is known what becomes of it.
	Found func(Restored)
}

func (o *RebuildOptions) validate() error {
	if o.Parallel < 0 || o.BytesPerSecond < 0 {
		return fmt.Errorf("rebuild: negative option: Parallel %d, BytesPerSecond %d", o.Parallel, o.BytesPerSecond)
	}
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	return nil
}

// RebuildReport sums a rebuild up.
type RebuildReport struct {
	Owner string `json:"owner"` // the metadata store that owned the prefix before, "" if none did

	Partitions int   `json:"partitions"`
	Objects    int   `json:"objects"` // of segments
	Bytes      int64 `json:"sizeBytes"`
	Foreign    int   `json:"foreign"` // objects that are not ours

	Rebuilt    int `json:"rebuilt"`    // readable now, or with Apply
	Existing   int `json:"existing"`   // of those, by an earlier run that was interrupted
	Candidates int `json:"candidates"` // of those, that may never have been FINISHED

	Damaged    int `json:"damaged"`
	Conflicts  int `json:"conflicts"`
	Duplicates int `json:"duplicates"`
	Deleted    int `json:"deleted"`
	BelowGap   int `json:"belowGap"`
	Refused    int `json:"refused"` // by metadata
}

// ErrNotEmpty: metadata that is to be rebuilt has something in it. Rebuild into new
// metadata.
var ErrNotEmpty = errors.New("metadata is not empty")

// Rebuild makes metadata from the headers of the objects, in an empty metadata
// store: a segment becomes readable only after its object was read whole. The
// prefix, whosever it was, is then this metadata store's. What an interrupted
// rebuild left is gone on with. The package comment says what can be brought back
// and what cannot.
//
// Nobody may copy to the prefix or delete from it meanwhile, with whatever
// metadata.
func Rebuild(ctx context.Context, meta metadata.Store, ep *endpoint.Endpoint, o RebuildOptions) (RebuildReport, error) {
	if err := o.validate(); err != nil {
		return RebuildReport{}, err
	}
	r := rebuilder{meta: meta, ep: ep, o: o, pace: pace.New(o.BytesPerSecond, pace.Clock{})}
	err := r.run(ctx)
	if err != nil {
		err = fmt.Errorf("rebuild: %w", err)
	}
	return r.report, err
}

type rebuilder struct {
	meta   metadata.Store
	ep     *endpoint.Endpoint
	o      RebuildOptions
	pace   *pace.Pacer
	report RebuildReport
}

func (r *rebuilder) run(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if r.o.Apply {
		if err := transfer.TakeOver(ctx, r.ep, r.meta.ID()); err != nil {
			return err
		}
	}
	if err := r.all(ctx); err != nil {
		return err
	}
	if r.o.Apply {
		return transfer.EndRebuild(ctx, r.ep)
	}
	return nil
}

// prepare makes sure that metadata is empty, or was being rebuilt.
func (r *rebuilder) prepare(ctx context.Context) error {
	err := transfer.CheckOwner(ctx, r.ep, r.meta.ID())
	var owner *transfer.OwnerError
	switch {
	case err == nil:
		r.report.Owner = r.meta.ID()
	case errors.As(err, &owner):
		r.report.Owner = owner.Owner
	default:
		return err
	}
	partitions, err := r.meta.Partitions()
	if err != nil {
		return err
	}
	empty := true
	for _, p := range partitions {
		view, err := r.meta.View(p)
		if err != nil {
			return fmt.Errorf("partition %s: %w", p, err)
		}
		for range view.All() {
			empty = false
		}
		for range view.Ended() {
			empty = false
		}
		empty = empty && view.Incomplete() == 0
	}
	err = transfer.CheckRebuild(ctx, r.ep, r.meta.ID())
	switch {
	case err == nil:
		return nil // ours, interrupted
	case errors.As(err, &owner) && owner.Owner != "":
		return fmt.Errorf("%w by metadata store %s; let that one finish, or remove %s", ErrRebuilding, owner.Owner, object.RebuildKey)
	case errors.As(err, &owner) && !empty:
		return fmt.Errorf("%w: it has %d partitions; rebuild into new metadata", ErrNotEmpty, len(partitions))
	case errors.As(err, &owner):
		return nil
	}
	return err
}

// restoring is one step of a rebuild, in the order in which they are taken: the
// head of a partition, or one range that is to be readable.
type restoring struct {
	part  *partitionObjects
	found *relic        // that is to be FINISHED, others of the same content behind it; nil: the partition's head
	done  chan struct{} // closed when receipt, chosen and err are set

	receipt metadata.Receipt
	chosen  *relic
	err     error
}

// all goes through the partitions of the store.
//
//	list, describe, judge ─► work ─► confirm (Parallel of them)
//	         └─────────────► queue ─────────────► publish, in order
func (r *rebuilder) all(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	g, gctx := errgroup.WithContext(inner)
	queue, work := make(chan *restoring, rebuildRunning*r.o.Parallel), make(chan *restoring)
	g.Go(func() error {
		defer close(queue)
		defer close(work)
		return r.produce(gctx, queue, work)
	})
	for range r.o.Parallel {
		g.Go(func() error {
			for j := range work {
				select {
				case <-j.part.announced:
				case <-gctx.Done():
					return context.Cause(gctx)
				}
				j.chosen, j.receipt, j.err = r.confirm(gctx, j.found)
				close(j.done)
			}
			return nil
		})
	}
	var err error
	for j := range queue {
		if err != nil {
			continue // until the producer has noticed
		}
		select {
		case <-j.done:
		case <-gctx.Done():
			err = context.Cause(gctx)
			continue
		}
		if j.found == nil {
			err = r.begin(ctx, j.part)
		} else {
			err = r.finish(ctx, j)
		}
		if err != nil {
			cancel()
		}
	}
	cancel()
	if werr := g.Wait(); err == nil || ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = werr
	}
	return err
}

// produce lists the store, partition by partition.
func (r *rebuilder) produce(ctx context.Context, queue, work chan<- *restoring) error {
	send := func(to chan<- *restoring, j *restoring) error {
		select {
		case to <- j:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for part, err := range r.partitions(ctx) {
		if err != nil {
			return err
		}
		if err := r.describe(ctx, part); err != nil {
			return err
		}
		part.judge(&r.o)
		head := &restoring{part: part, done: make(chan struct{})}
		close(head.done)
		if err := send(queue, head); err != nil {
			return err
		}
		for _, f := range part.order {
			j := &restoring{part: part, found: f, done: make(chan struct{})}
			if !r.o.Apply {
				j.chosen = f
				close(j.done)
			}
			if err := send(queue, j); err != nil {
				return err
			}
			if r.o.Apply {
				if err := send(work, j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// partitions yields the objects of one partition after the other: keys ascend, so
// those of a partition follow each other.
func (r *rebuilder) partitions(ctx context.Context) iter.Seq2[*partitionObjects, error] {
	return func(yield func(*partitionObjects, error) bool) {
		var part *partitionObjects
		foreign := 0
		for info, err := range r.ep.List(ctx, "", "") {
			if err != nil {
				yield(nil, err)
				return
			}
			p, _, id, err := object.ParseKey(info.Key)
			if err != nil {
				if info.Key != object.OwnerKey && info.Key != object.RebuildKey {
					foreign++
				}
				continue
			}
			if part != nil && part.partition != p {
				if !yield(part, nil) {
					return
				}
				part = nil
			}
			if part == nil {
				part = newPartitionObjects(p)
			}
			part.foreign, foreign = part.foreign+foreign, 0
			part.objects = append(part.objects, &relic{info: info, id: id})
		}
		if part == nil {
			part = newPartitionObjects(segment.Partition{})
		}
		part.foreign += foreign
		yield(part, nil)
	}
}

// describe reads what the objects of a partition say of themselves.
func (r *rebuilder) describe(ctx context.Context, part *partitionObjects) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Parallel)
	for _, f := range part.objects {
		g.Go(func() error {
			tail, loc, err := transfer.Describe(ctx, r.ep, f.info.Key, f.info.Size)
			switch {
			case errors.Is(err, objstore.ErrNotExist):
				f.gone = true // listed although it was deleted
			case errors.Is(err, transfer.ErrDamaged), errors.Is(err, object.ErrVersion):
				f.fail(LeftDamaged, err)
			case err != nil:
				return err
			default:
				f.take(tail, loc)
			}
			return nil
		})
	}
	return g.Wait()
}

// confirm reads an object whole; if it is damaged, one of the same content.
func (r *rebuilder) confirm(ctx context.Context, f *relic) (*relic, metadata.Receipt, error) {
	for ; f != nil; f = f.instead {
		switch {
		case f.reason != Rebuilt:
			continue // metadata would not have it
		case f.existing:
			return f, metadata.Receipt{}, nil
		}
		receipt, err := transfer.Confirm(ctx, r.ep, f.header, f.location, transfer.ConfirmOptions{Pace: r.pace.Wait})
		switch {
		case err == nil:
			return f, receipt, nil
		case !errors.Is(err, transfer.ErrDamaged):
			return nil, metadata.Receipt{}, err
		}
		f.fail(LeftDamaged, err)
	}
	return nil, metadata.Receipt{}, nil
}

// begin writes the records of a partition's objects in STARTED, all that can be
// understood: from then on each id is accounted for, whatever becomes of it.
func (r *rebuilder) begin(ctx context.Context, part *partitionObjects) error {
	r.report.Foreign += part.foreign
	if len(part.objects) > 0 {
		r.report.Partitions++
	}
	for _, f := range part.objects {
		if f.gone {
			continue
		}
		r.report.Objects++
		r.report.Bytes += f.info.Size
		if r.o.Apply && f.segment != nil {
			if err := r.announce(ctx, part, f); err != nil {
				return err
			}
		}
		if f.reason != "" && f.reason != Rebuilt && !f.ordered {
			r.told(f)
		}
	}
	if starts, keeps := r.meta.(metadata.LogStarts); keeps && r.o.Apply && part.logStartKnown && part.logStart > 0 {
		if err := starts.SetLogStart(ctx, part.partition, part.logStart, part.writer(0)); err != nil {
			return fmt.Errorf("log start of %s: %w", part.partition, err)
		}
	}
	close(part.announced)
	return nil
}

// announce publishes STARTED of an object, unless an earlier run did.
func (r *rebuilder) announce(ctx context.Context, part *partitionObjects, f *relic) error {
	view, err := r.meta.View(part.partition)
	if err != nil {
		return err
	}
	if known, ok := view.Get(f.id); ok {
		switch known.State {
		case metadata.CopySegmentStarted:
		case metadata.CopySegmentFinished:
			f.existing = true
		default:
			f.leave(LeftMetadata, "its record is in "+known.State.String())
		}
		f.record = known
		return nil
	}
	ev, err := metadata.Started(f.segment, part.writer(f.header.BrokerID), f.header.EventTimestamp)
	if err != nil {
		return err
	}
	err = r.meta.Publish(ctx, ev)
	switch {
	case errors.Is(err, metadata.ErrDuplicate):
		f.leave(LeftDuplicate, err.Error()) // of one that an earlier run has finished
		return nil
	case err != nil:
		return fmt.Errorf("object %s: %s: %w", f.info.Key, metadata.CopySegmentStarted, err)
	}
	f.record = ev.Segment()
	return nil
}

// finish makes a segment readable that was confirmed.
func (r *rebuilder) finish(ctx context.Context, j *restoring) error {
	if j.err != nil {
		return j.err
	}
	for f := j.found; f != nil; f = f.instead {
		if f != j.chosen {
			if f.reason == Rebuilt {
				f.leave(LeftDuplicate, "segment "+j.chosen.id.String()+" has the same content")
			}
			r.told(f)
			continue
		}
		if r.o.Apply && f.reason == Rebuilt {
			if err := r.publish(ctx, j.part, f, j.receipt); err != nil {
				return err
			}
		}
		r.told(f)
	}
	return nil
}

func (r *rebuilder) publish(ctx context.Context, part *partitionObjects, f *relic, receipt metadata.Receipt) error {
	if f.existing {
		r.report.Existing++
		return nil
	}
	ev, err := metadata.Finished(f.record, receipt, part.writer(f.header.BrokerID), f.header.EventTimestamp)
	if err != nil {
		return err
	}
	err = r.meta.Publish(ctx, ev)
	switch {
	case errors.Is(err, metadata.ErrDuplicate), errors.Is(err, metadata.ErrTransition):
		f.leave(LeftMetadata, err.Error())
	case err != nil:
		return fmt.Errorf("object %s: %s: %w", f.info.Key, metadata.CopySegmentFinished, err)
	default:
		f.segment = ev.Segment()
	}
	return nil
}

// told counts what became of an object and passes it on.
func (r *rebuilder) told(f *relic) {
	switch f.reason {
	case Rebuilt:
		r.report.Rebuilt++
		if f.candidate {
			r.report.Candidates++
		}
	case LeftDamaged:
		r.report.Damaged++
	case LeftConflict:
		r.report.Conflicts++
	case LeftDuplicate:
		r.report.Duplicates++
	case LeftDeleted:
		r.report.Deleted++
	case LeftBelowGap:
		r.report.BelowGap++
	default:
		r.report.Refused++
	}
	if r.o.Found != nil {
		r.o.Found(Restored{
			Reason: f.reason, Key: f.info.Key, Size: f.info.Size, Segment: f.segment,
			Candidate: f.candidate && f.reason == Rebuilt, Note: f.note, Err: f.err,
		})
	}
}
