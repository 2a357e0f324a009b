package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segtier/segtier/internal/pace"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// Orphans finds what no readable segment needs, and deletes of it what metadata
// can prove ended, if it is told to. The package comment says what is proof, and
// when it does nothing at all: then the error is one of metadata's,
// *transfer.OwnerError, ErrSuspect, ErrTooMany, ErrRebuilding or ErrOtherPlan, and
// the report says what was found.
//
// It may run while copies, deletions, retention and readers do, in this process
// and in others.
func Orphans(ctx context.Context, meta metadata.Store, ep *endpoint.Endpoint, o OrphanOptions) (OrphanReport, error) {
	if err := o.validate(); err != nil {
		return OrphanReport{}, err
	}
	c := collector{meta: meta, ep: ep, o: o, pace: pace.New(int64(o.PerSecond), pace.Clock{Wait: o.Wait})}
	err := c.run(ctx)
	if err != nil {
		err = fmt.Errorf("orphans: %w", err)
	}
	return c.report, err
}

// readersHave is how long a deletion is left alone whatever OlderThan is: readers of
// the segment have a minute, and this is twice that.
const readersHave = 2 * time.Minute

// probesTake is how long a probe is left alone whatever OlderThan is: it is ten small
// requests, and may still be under way.
const probesTake = time.Hour

// maxOrphans bounds what one run takes, some 50 MiB; the next run goes on.
const maxOrphans = 100_000

// collector is one run of Orphans.
type collector struct {
	meta metadata.Store
	ep   *endpoint.Endpoint
	o    OrphanOptions
	pace *pace.Pacer // of what is deleted

	report  OrphanReport
	names   map[segment.UUID]string // of the topics that metadata knows
	records bool                    // metadata has a record of some segment
	newest  int64                   // time of the newest event, ms
	now     time.Time               // the store's clock, zero if it does not say
	suspect *SuspectError           // the first
	doomed  []Orphan                // what may go
	planned map[PlanItem]bool       // nil: there is no plan
}

func (c *collector) run(ctx context.Context) error {
	if err := c.plan(); err != nil {
		return err
	}
	if err := c.knowledge(); err != nil {
		return err
	}
	owner, err := c.owner(ctx)
	if err != nil {
		return err
	}
	if err := c.objects(ctx); err != nil {
		return err
	}
	if owner != nil {
		if c.report.Objects > 0 {
			return owner // objects of ours, and nobody's prefix
		}
		return nil
	}
	if err := c.uploads(ctx); err != nil {
		return err
	}
	if err := c.probes(ctx); err != nil {
		return err
	}
	if err := c.unfinished(ctx); err != nil {
		return err
	}
	if c.report.Objects > 0 && !c.records {
		c.suspicion("", "the store has %d objects of segments and metadata has no segment at all", c.report.Objects)
	}
	if c.suspect != nil && !c.o.TrustMetadata {
		return c.suspect
	}
	if err := c.fraction(); err != nil {
		return err
	}
	if !c.o.Apply || len(c.doomed) == 0 {
		return nil
	}
	if err := c.stillOurs(ctx); err != nil { // listing may have taken long
		return err
	}
	return c.apply(ctx)
}

// stillOurs makes sure that the prefix has not become another's or nobody's since it
// was looked at, and is not being rebuilt.
func (c *collector) stillOurs(ctx context.Context) error {
	nobody, err := c.owner(ctx)
	if err == nil && nobody != nil {
		err = nobody
	}
	return err
}

// plan takes the plan in.
func (c *collector) plan() error {
	p := c.o.Plan
	if p == nil {
		return nil
	}
	if p.MetadataID != c.meta.ID() {
		return fmt.Errorf("%w: of %q, not of %q", ErrOtherPlan, p.MetadataID, c.meta.ID())
	}
	c.planned = make(map[PlanItem]bool, len(p.Items))
	for _, item := range p.Items {
		c.planned[item] = true
	}
	return nil
}

// knowledge makes sure that metadata is there, and whole: a partition that is not
// loaded, or of which a record is not understood, may have any object.
func (c *collector) knowledge() error {
	partitions, err := c.meta.Partitions()
	if err != nil {
		return err
	}
	c.names = make(map[segment.UUID]string)
	for _, p := range partitions {
		c.names[p.TopicID] = p.Topic
		view, err := c.whole(p)
		if err != nil {
			return err
		}
		for seg := range view.All() {
			c.records, c.newest = true, max(c.newest, seg.EventTimestamp)
		}
		for seg := range view.Ended() {
			c.records, c.newest = true, max(c.newest, seg.EventTimestamp)
		}
		// A partition may have outlived all that is known of its segments.
		c.records = c.records || view.Info().Deletion != metadata.PartitionKept || len(view.Info().Epochs) > 0
	}
	return nil
}

// whole returns the View of a partition, unless something in it is not known.
func (c *collector) whole(p segment.Partition) (*metadata.View, error) {
	view, err := c.meta.View(p)
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", p, err)
	}
	if n := view.Incomplete(); n > 0 {
		return nil, fmt.Errorf("partition %s: %d records are not understood: %w", p, n, metadata.ErrIncomplete)
	}
	return view, nil
}

// owner makes sure that the prefix is ours, and that nobody rebuilds its metadata.
// An OwnerError that is returned as a value says that it is nobody's.
func (c *collector) owner(ctx context.Context) (nobody *transfer.OwnerError, err error) {
	_, err = c.ep.Stat(ctx, object.RebuildKey)
	switch {
	case err == nil:
		return nil, fmt.Errorf("%w: %s is there", ErrRebuilding, object.RebuildKey)
	case !errors.Is(err, objstore.ErrNotExist):
		return nil, err
	}
	err = transfer.CheckOwner(ctx, c.ep, c.meta.ID())
	if owner, ok := errors.AsType[*transfer.OwnerError](err); ok && owner.Owner == "" {
		return owner, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := c.ep.Stat(ctx, object.OwnerKey)
	if err == nil {
		c.now = info.Now
	}
	return nil, err
}

// suspicion takes the first suspicion down.
func (c *collector) suspicion(key, format string, args ...any) {
	if c.suspect == nil {
		c.suspect = &SuspectError{Reason: fmt.Sprintf(format, args...), Key: key}
	}
}

// age is how old something is by the store's clock, -1 if it does not say.
func age(now, then time.Time) time.Duration {
	if now.IsZero() || then.IsZero() {
		return -1
	}
	return max(0, now.Sub(then))
}

// objects lists everything under the prefix and judges it.
func (c *collector) objects(ctx context.Context) error {
	for info, err := range c.ep.List(ctx, "", "") {
		if err != nil {
			return err
		}
		if info.Key == object.OwnerKey || info.Key == object.RebuildKey || objstore.IsProbe(info.Key) {
			continue
		}
		orphan := Orphan{Key: info.Key, Identity: info.Identity, Size: info.Size, Age: age(info.Now, info.Modified), modified: info.Modified}
		p, start, id, err := object.ParseKey(info.Key)
		if err != nil {
			c.report.Foreign++
			orphan.Reason, orphan.Kept = ForeignObject, "it is not ours"
			c.found(orphan)
			continue
		}
		c.report.Objects++
		c.report.Bytes += info.Size
		orphan.Partition, orphan.StartOffset, orphan.SegmentID = p, start, id
		// The View is taken after the object was seen: its STARTED was durable before
		// the first byte was sent, so a copy that has just begun is not unknown.
		live, err := c.judge(ctx, &orphan)
		if err != nil {
			return err
		}
		if live {
			c.report.Live++
			continue
		}
		c.found(orphan)
	}
	return nil
}

// judge says what an object is by what metadata knows of its id now.
func (c *collector) judge(ctx context.Context, o *Orphan) (live bool, err error) {
	view, proof, state, err := c.known(o)
	if view == nil {
		return false, err
	}
	o.Segment, _ = view.Get(o.SegmentID)
	switch {
	case state != metadata.None && o.Segment.StartOffset != o.StartOffset:
		o.Reason, o.Kept = OrphanMisplaced, fmt.Sprintf("the record of this id begins at offset %d", o.Segment.StartOffset)
	case proof != "":
		o.Reason, o.Proof = OrphanEnded, proof
	case state != metadata.None:
		return true, nil
	default:
		return false, c.unknown(ctx, view, o)
	}
	return false, nil
}

// known is what metadata says of an id now. No View, without an error: the key is of
// another topic than metadata's.
func (c *collector) known(o *Orphan) (view *metadata.View, proof string, state metadata.State, err error) {
	if name, known := c.names[o.Partition.TopicID]; known && name != o.Partition.Topic {
		o.Reason, o.Kept = OrphanMisplaced, fmt.Sprintf("its topic id is that of topic %s", name)
		return nil, "", metadata.None, nil
	}
	if view, err = c.whole(o.Partition); err != nil {
		return nil, "", metadata.None, err
	}
	proof, state = c.proof(view, o)
	return view, proof, state, nil
}

// proof is what says that an id has ended: DELETE_SEGMENT_FINISHED, or, where the
// id is not known any more, DELETE_PARTITION_FINISHED. Both are final, so that an
// older copy of the metadata that says so is right too.
func (c *collector) proof(view *metadata.View, o *Orphan) (proof string, state metadata.State) {
	state = metadata.None
	if seg, ok := view.Get(o.SegmentID); ok {
		state = seg.State
	}
	switch {
	case state == metadata.DeleteSegmentFinished:
		return state.String(), state
	case state == metadata.None && view.Info().Deletion == metadata.DeletePartitionFinished:
		return metadata.DeletePartitionFinished.String(), state
	}
	return "", state
}

// unknown judges an object whose id no record knows, by what it says of itself.
func (c *collector) unknown(ctx context.Context, view *metadata.View, o *Orphan) error {
	o.Reason = OrphanUnknown
	if !c.o.Unknown {
		o.Kept = "no record knows its id"
	}
	tail, _, err := transfer.Describe(ctx, c.ep, o.Key, o.Size)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		o.Kept = "it is gone already"
		return nil
	case errors.Is(err, object.ErrVersion):
		o.Kept = err.Error()
		c.suspicion(o.Key, "object %s was written by a newer version, and no record knows it", o.Key)
		return nil
	case errors.Is(err, transfer.ErrDamaged):
		return nil // no segment can be made of it
	case err != nil:
		return err
	}
	h := &tail.Header
	if from, ok := needed(view, h.Epochs, h.StartOffset, h.EndOffset); ok {
		if o.Reason = OrphanNeeded; !c.o.TrustMetadata || !c.o.Unknown {
			o.Kept = fmt.Sprintf("no readable segment has offset %d, and it does", from)
		}
		c.suspicion(o.Key, "object %s has offsets %d to %d, no record knows it, and offset %d is in no readable segment", o.Key, h.StartOffset, h.EndOffset, from)
		return nil
	}
	// Somebody's copier made it, so its STARTED was in metadata. What has ended is
	// remembered for longer than this, so metadata has lost it.
	switch {
	case o.Age >= 0 && o.Age < c.o.Remembered:
		c.suspicion(o.Key, "object %s is %v old and no record knows it, although metadata remembers what has ended for %v", o.Key, o.Age.Round(time.Second), c.o.Remembered)
	case o.modified.UnixMilli() > c.newest:
		c.suspicion(o.Key, "object %s is newer than the newest event in metadata, and no record knows it", o.Key)
	}
	return nil
}

// needed returns the first offset of a range, at or above the log start, that no
// FINISHED segment has in these leader epochs. Not ok: there is none.
func needed(view *metadata.View, epochs segment.Lineage, from, to int64) (int64, bool) {
	for at := max(from, view.LogStart()); at <= to; {
		seg, ok := view.Lookup(epochs, at)
		if !ok {
			return at, true
		}
		_, last, _ := seg.Along(epochs, at)
		if last >= to {
			return 0, false
		}
		at = last + 1
	}
	return 0, false
}

// found tells what was found and takes it down if it may go.
func (c *collector) found(o Orphan) {
	old := c.o.OlderThan < 0 || o.Age >= c.o.OlderThan
	switch {
	case o.Kept != "":
	case o.Age < 0 && c.o.OlderThan > 0:
		o.Kept = "the store does not say how old it is"
	case !old:
		o.Kept = fmt.Sprintf("it is %v old, less than %v", o.Age.Round(time.Second), c.o.OlderThan)
	case c.planned != nil && !c.planned[o.Item()]:
		o.Kept = "it is not in the plan"
	case len(c.doomed) == maxOrphans:
		o.Kept = "one run takes no more"
		c.report.More++
	}
	if o.Kept != "" {
		if o.Reason != ForeignObject {
			c.report.Kept++
		}
	} else {
		c.doomed = append(c.doomed, o)
		switch {
		case o.Reason == ProbeLeft:
			c.report.Probes++
		case o.UploadID != "":
			c.report.Uploads++
		case o.Reason == RecordAbandoned || o.Reason == RecordDeleting:
			c.report.Records++
		default:
			c.report.Orphans++
			c.report.OrphanBytes += o.Size
		}
	}
	if c.o.Found != nil {
		c.o.Found(o)
	}
}

// uploads lists unfinished uploads and judges them. Aborting one never loses
// anything that is readable; too early, it makes a copy begin anew.
func (c *collector) uploads(ctx context.Context) error {
	for u, err := range c.ep.Uploads(ctx, "") {
		if err != nil {
			return err
		}
		if objstore.IsProbe(u.Key) {
			continue
		}
		o := Orphan{Key: u.Key, UploadID: u.ID, Age: age(c.now, u.Started)}
		switch u.Key {
		case object.OwnerKey:
			o.Reason, o.Proof = UploadEnded, "the marker is there"
			c.found(o)
			continue
		case object.RebuildKey:
			o.Reason, o.Proof = UploadEnded, "no rebuild is under way"
			c.found(o)
			continue
		}
		if o.Partition, o.StartOffset, o.SegmentID, err = object.ParseKey(u.Key); err != nil {
			c.report.Foreign++
			o.Reason, o.Kept = ForeignObject, "it is not ours"
			c.found(o)
			continue
		}
		live, err := c.judgeUpload(&o)
		if err != nil {
			return err
		}
		if !live {
			c.found(o)
		}
	}
	return nil
}

// judgeUpload says what an upload is by what metadata knows of its id now.
func (c *collector) judgeUpload(o *Orphan) (live bool, err error) {
	view, proof, state, err := c.known(o)
	if view == nil {
		return false, err
	}
	switch {
	case proof != "":
		o.Reason, o.Proof = UploadEnded, proof
	case state == metadata.CopySegmentStarted:
		return true, nil // its record's end is its end
	case state != metadata.None:
		o.Reason, o.Proof = UploadEnded, state.String()
	default:
		o.Reason = UploadUnknown
		if !c.o.Unknown {
			o.Kept = "no record knows its id"
		}
	}
	return false, nil
}

// probes finds what processes have left that were killed while they found out what
// the store can do. A store shows it to who asks for it. One that may be under way
// is not told of.
func (c *collector) probes(ctx context.Context) error {
	left := func(o Orphan) {
		if o.Age < probesTake {
			return
		}
		o.Reason, o.Proof = ProbeLeft, "segtier wrote it to see what the store can do"
		c.found(o)
	}
	for info, err := range c.ep.List(ctx, objstore.ProbePrefix, "") {
		if err != nil {
			return err
		}
		if objstore.IsProbe(info.Key) {
			left(Orphan{Key: info.Key, Identity: info.Identity, Size: info.Size, Age: age(info.Now, info.Modified)})
		}
	}
	for u, err := range c.ep.Uploads(ctx, objstore.ProbePrefix) {
		if err != nil {
			return err
		}
		if objstore.IsProbe(u.Key) {
			left(Orphan{Key: u.Key, UploadID: u.ID, Age: age(c.now, u.Started)})
		}
	}
	return nil
}

// unfinished goes through the records that are neither readable nor ended.
func (c *collector) unfinished(ctx context.Context) error {
	partitions, err := c.meta.Partitions()
	if err != nil {
		return err
	}
	slices.SortFunc(partitions, comparePartitions)
	for _, p := range partitions {
		view, err := c.whole(p)
		if err != nil {
			return err
		}
		epoch := int32(-1) // of the newest leader that has written
		for seg := range view.All() {
			epoch = max(epoch, seg.LeaderEpoch)
		}
		for seg := range view.All() {
			if seg.State == metadata.CopySegmentFinished {
				continue
			}
			o := Orphan{
				Reason: RecordDeleting, Proof: seg.State.String(), Key: object.Key(p, seg.StartOffset, seg.ID),
				Partition: p, StartOffset: seg.StartOffset, SegmentID: seg.ID, Segment: seg,
				Age: age(c.now, time.UnixMilli(seg.EventTimestamp)),
			}
			if o.Age >= 0 && (o.Age < c.o.OlderThan || o.Age < readersHave) {
				continue // somebody is at it
			}
			if !object.IsLocation(seg.Custom) && !transfer.IsFingerprint(seg.Custom) {
				o.Reason, o.Kept = ForeignSegment, "another storage plugin wrote it"
			} else if seg.State == metadata.CopySegmentStarted {
				if err := c.abandoned(ctx, view, &o, epoch); err != nil {
					return err
				}
			} else if o.Age < 0 && object.IsLocation(seg.Custom) {
				o.Kept = "the store does not say what time it is, and readers may have it still"
			}
			if o.Kept == "" && c.o.End == nil {
				o.Kept = "nobody is there to end records"
			}
			c.found(o)
		}
	}
	return nil
}

// abandoned judges a record in STARTED. Its writer is dead if a newer leader has
// written, for then it is fenced, or if nobody else can write at all. Whatever is
// wrong about that, DELETE_STARTED is decided on STARTED and stops a live writer
// before it is FINISHED; but where metadata is an older copy, it may have been
// FINISHED, so a whole object stays unless its offsets are readable otherwise.
func (c *collector) abandoned(ctx context.Context, view *metadata.View, o *Orphan, epoch int32) error {
	seg := o.Segment
	o.Reason = RecordAbandoned
	switch {
	case seg.LeaderEpoch >= 0 && epoch > seg.LeaderEpoch:
		o.Proof = fmt.Sprintf("leader epoch %d has written since, its own is %d", epoch, seg.LeaderEpoch)
	case c.o.Exclusive:
		o.Proof = "nobody else can write to the metadata"
	default:
		o.Proof, o.Kept = "", "its writer may be alive"
		return nil
	}
	info, err := c.ep.Stat(ctx, o.Key) // a listing may be late
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	o.Size, o.Identity = info.Size, info.Identity
	if from, ok := needed(view, seg.Epochs, seg.StartOffset, seg.EndOffset); ok {
		o.Reason, o.Kept = RecordComplete, fmt.Sprintf("its object is whole, and no readable segment has offset %d: copy it again, which finishes it", from)
	}
	return nil
}

// fraction refuses to delete more than one run may.
func (c *collector) fraction() error {
	n, bytes := c.report.Orphans, c.report.OrphanBytes
	for _, o := range c.doomed {
		if o.Segment != nil && o.Reason == RecordAbandoned && o.Size > 0 {
			n, bytes = n+1, bytes+o.Size
		}
	}
	limit := c.o.MaxFraction
	if limit == 0 {
		if limit = defaultFraction; n <= alwaysAllowed {
			return nil
		}
	}
	if float64(n) <= limit*float64(c.report.Objects) && float64(bytes) <= limit*float64(c.report.Bytes) {
		return nil
	}
	return fmt.Errorf("%w: %d of %d objects, %d of %d bytes; the limit is %v of each", ErrTooMany, n, c.report.Objects, bytes, c.report.Bytes, limit)
}
