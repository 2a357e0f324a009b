package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier/internal/pace"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// Level is how much a verification reads. Each level does all that the cheaper
// ones do.
type Level uint8

// The levels.
const (
	LevelFull     Level = iota // every byte of every object
	LevelMetadata              // nothing of the store: gaps, overlaps, order, sizes
	LevelHead                  // is each object there, and as long as recorded?
	LevelSample                // the tail of each object, and some of its chunks
)

// String returns the level's name.
func (l Level) String() string {
	switch l {
	case LevelFull:
		return "full"
	case LevelMetadata:
		return "metadata"
	case LevelHead:
		return "head"
	case LevelSample:
		return "sample"
	}
	return "unknown"
}

// Options says what to verify. The zero value is every byte of everything in
// metadata.
type Options struct {
	Partitions []segment.Partition // nil: every partition

	Level Level
	// SampleFraction is the fraction of an object's chunks that LevelSample reads,
	// at least one of each object; 0 is 0.01. SampleSeed decides which: the same
	// seed reads the same chunks.
	SampleFraction float64
	SampleSeed     uint64

	// BytesPerSecond bounds how fast objects are read; 0 is no bound.
	BytesPerSecond int64
	// Parallel is how many objects are read at a time, each with some 10 MiB of
	// memory and its tail; 0 is 4.
	Parallel int

	// Resume, if not nil, is where an earlier run of the same verification stood:
	// what lies before it is not looked at again, and the report goes on from
	// there. Checkpoint, if not nil, is called after each segment with where the
	// verification stands: everything before is done.
	Resume     *Cursor
	Checkpoint func(Cursor)

	// Found, if not nil, is called for each finding as it is made, from Verify's
	// own goroutine, in the order of partitions and offsets. Verified is called
	// after each segment.
	Found    func(Finding)
	Verified func(seg *metadata.Segment, damaged bool)
}

const (
	defaultParallel = 4
	defaultSample   = 0.01
)

// validate says what is wrong with o and fills in what was left out.
func (o *Options) validate() error {
	switch {
	case o.Level > LevelSample:
		return fmt.Errorf("verify: level %d is not known", o.Level)
	case o.SampleFraction < 0 || o.SampleFraction > 1 || o.SampleFraction != o.SampleFraction: // the last is NaN
		return fmt.Errorf("verify: SampleFraction %v is not from 0 to 1", o.SampleFraction)
	case o.BytesPerSecond < 0 || o.Parallel < 0:
		return fmt.Errorf("verify: negative option: BytesPerSecond %d, Parallel %d", o.BytesPerSecond, o.Parallel)
	}
	if o.SampleFraction == 0 {
		o.SampleFraction = defaultSample
	}
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	return nil
}

// Report sums a verification up.
type Report struct {
	Segments int   `json:"segments"`  // readable segments verified
	Damaged  int   `json:"damaged"`   // of those, with at least one damage
	Findings int   `json:"findings"`  // damages in all
	Notices  int   `json:"notices"`   // findings that are no damage
	Unread   int   `json:"unread"`    // segments that could not be read, which says nothing about them
	Bytes    int64 `json:"sizeBytes"` // of the objects verified, as recorded
}

// Verify compares readable segments with their objects, and their records with
// each other. Findings are no error: the report counts them. An error means that
// the verification is incomplete: some segments could not be read, or, after
// several in a row, none any more. The report then says how far it came.
func Verify(ctx context.Context, meta metadata.Store, ep *endpoint.Endpoint, o Options) (Report, error) {
	if err := o.validate(); err != nil {
		return Report{}, err
	}
	v := verifier{meta: meta, ep: ep, o: o, pace: pace.New(o.BytesPerSecond, pace.Clock{})}
	if err := v.resume(); err != nil {
		return Report{}, err
	}
	partitions, err := v.partitions()
	if err != nil {
		return v.report, err
	}
	if err := v.run(ctx, partitions); err != nil {
		return v.report, err
	}
	switch {
	case v.unread != nil:
		return v.report, fmt.Errorf("verify: %d segments could not be read, the first: %w", v.report.Unread, v.unread)
	case v.report.Unread > 0:
		return v.report, fmt.Errorf("verify: %d segments could not be read before it was interrupted: verify again", v.report.Unread)
	case v.report.Segments == 0 || o.Level == LevelMetadata:
		return v.report, nil
	}
	owner, err := v.owner(ctx)
	if err == nil {
		v.foundOwner(owner)
	}
	return v.report, err
}

type verifier struct {
	meta    metadata.Store
	ep      *endpoint.Endpoint
	o       Options
	pace    *pace.Pacer
	base    Cursor // that stands nowhere yet
	report  Report
	unread  error // of the first segment that could not be read
	failing int   // segments in a row that could not be read
}

// partitions returns those to verify in their order.
func (v *verifier) partitions() ([]segment.Partition, error) {
	partitions := v.o.Partitions
	if partitions == nil {
		var err error
		if partitions, err = v.meta.Partitions(); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(slices.Values(partitions), comparePartitions), nil
}

// comparePartitions orders partitions by topic, topic id and number.
func comparePartitions(a, b segment.Partition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	if c := strings.Compare(a.TopicID.String(), b.TopicID.String()); c != 0 {
		return c
	}
	return int(a.Number) - int(b.Number)
}

// maxFailing is how many segments in a row may fail to be read before the store
// is taken to be out of reach.
const maxFailing = 8

// job is one segment to be looked at, or what the records of a partition say.
type job struct {
	partition segment.Partition
	seg       *metadata.Segment // nil: of the partition
	findings  []Finding
	size      int64
	err       error
	done      chan struct{} // closed when findings, size and err are set
}

// run has several segments examined at a time and takes the outcomes in order.
//
//	produce ─► work ─► examine (Parallel of them)
//	   └─────► queue ─────────────────────────► take, in order
func (v *verifier) run(ctx context.Context, partitions []segment.Partition) error {
	inner, cancel := context.WithCancel(ctx)
	g, gctx := errgroup.WithContext(inner)
	queue, work := make(chan *job, v.o.Parallel), make(chan *job)
	g.Go(func() error {
		defer close(queue)
		defer close(work)
		return v.produce(gctx, partitions, queue, work)
	})
	for range v.o.Parallel {
		g.Go(func() error {
			for j := range work {
				j.findings, j.size, j.err = v.examine(gctx, j.seg)
				close(j.done)
			}
			return nil
		})
	}
	var err error
	for j := range queue {
		if err == nil {
			select {
			case <-j.done:
				err = v.take(ctx, j)
			case <-gctx.Done():
				err = context.Cause(gctx)
			}
			if err != nil {
				err = fmt.Errorf("verify %s: %w", j.partition, err)
				cancel()
			}
		}
	}
	cancel()
	if werr := g.Wait(); err == nil || ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = werr // the first of all
	}
	return err
}

// produce puts the segments of the partitions into both channels, in order.
func (v *verifier) produce(ctx context.Context, partitions []segment.Partition, queue, work chan<- *job) error {
	send := func(to chan<- *job, j *job) error {
		select {
		case to <- j:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, p := range partitions {
		if v.before(p) {
			continue
		}
		view, err := v.meta.View(p)
		if err != nil {
			return fmt.Errorf("verify %s: %w", p, err)
		}
		if !v.within(p) {
			j := &job{partition: p, findings: checkRecords(view), done: make(chan struct{})}
			close(j.done)
			if err := send(queue, j); err != nil {
				return err
			}
		}
		for seg := range view.All() {
			if seg.State != metadata.CopySegmentFinished || v.beforeSegment(seg) {
				continue
			}
			j := &job{partition: p, seg: seg, done: make(chan struct{})}
			if err := send(queue, j); err != nil {
				return err
			}
			if err := send(work, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// take counts what was found of a segment. What metadata has stopped calling
// FINISHED meanwhile is not damage.
func (v *verifier) take(ctx context.Context, j *job) error {
	if j.seg == nil {
		for _, f := range j.findings {
			v.found(f)
		}
		return nil
	}
	if j.err != nil {
		// One object that cannot be read must not hide the damage of the next.
		if v.failing++; ctx.Err() != nil || v.failing == maxFailing {
			return j.err
		}
		v.report.Unread++
		if v.unread == nil {
			v.unread = j.err
		}
		v.checkpoint(j.seg)
		return nil
	}
	v.failing = 0
	if v.report.Segments == 0 && slices.ContainsFunc(j.findings, func(f Finding) bool { return f.Reason == ObjectMissing }) {
		// The wrong store looks like one that lost everything. A reader's copy of
		// the metadata has a name of its own, so a name alone says nothing.
		owner, err := v.owner(ctx)
		if err != nil || owner != nil && owner.Owner != "" {
			return errors.Join(err, asError(owner))
		}
		v.foundOwner(owner)
	}
	damaged := slices.ContainsFunc(j.findings, func(f Finding) bool { return !f.Reason.Notice() })
	if damaged {
		gone, err := v.gone(j.seg)
		if err != nil || gone {
			return err
		}
		v.report.Damaged++
	}
	v.report.Segments++
	v.report.Bytes += j.size
	for _, f := range j.findings {
		v.found(f)
	}
	if v.o.Verified != nil {
		v.o.Verified(j.seg, damaged)
	}
	v.checkpoint(j.seg)
	return nil
}

// gone reports whether a segment is not readable any more.
func (v *verifier) gone(seg *metadata.Segment) (bool, error) {
	view, err := v.meta.View(seg.Partition)
	if err != nil {
		return false, err
	}
	now, ok := view.Get(seg.ID)
	return !ok || now.State != metadata.CopySegmentFinished, nil
}

// found counts a finding and passes it on.
func (v *verifier) found(f Finding) {
	if f.Reason.Notice() {
		v.report.Notices++
	} else {
		v.report.Findings++
	}
	if v.o.Found != nil {
		v.o.Found(f)
	}
}

// foundOwner tells, once, that nobody owns the prefix.
func (v *verifier) foundOwner(owner *transfer.OwnerError) {
	if owner == nil || owner.Owner != "" || v.base.OwnerMissing {
		return
	}
	v.base.OwnerMissing = true
	v.found(Finding{Reason: OwnerMissing, StartOffset: -1, EndOffset: -1, Key: object.OwnerKey, Err: owner})
}

// owner asks whose prefix it is; nil is ours.
func (v *verifier) owner(ctx context.Context) (*transfer.OwnerError, error) {
	err := transfer.CheckOwner(ctx, v.ep, v.meta.ID())
	if owner, ok := errors.AsType[*transfer.OwnerError](err); ok {
		return owner, nil
	}
	return nil, err
}

// asError is owner as an error, nil if there is none.
func asError(owner *transfer.OwnerError) error {
	if owner == nil {
		return nil
	}
	return owner
}
