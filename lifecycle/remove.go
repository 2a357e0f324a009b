package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"sync"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// job is one call of a Deleter.
type job struct {
	d      *Deleter
	p      segment.Partition
	writer metadata.Writer
}

// look returns the partition's metadata if it is whole: what is not understood
// might say anything.
func (j *job) look() (*metadata.View, error) {
	view, err := j.d.meta.View(j.p)
	if err != nil {
		return nil, err
	}
	if n := view.Incomplete(); n > 0 {
		return nil, fmt.Errorf("%w: %d of its records are not understood", metadata.ErrIncomplete, n)
	}
	return view, nil
}

// deleteAll takes segments from whatever state they are in to the end.
func (j *job) deleteAll(ctx context.Context, segs []*metadata.Segment) error {
	if _, err := j.look(); err != nil {
		return err
	}
	if err := transfer.CheckOwner(ctx, j.d.ep, j.d.meta.ID()); err != nil {
		return err
	}
	var f failures
	var doomed []*metadata.Segment
	for _, seg := range segs {
		ending, err := j.announce(ctx, seg)
		switch {
		case errors.Is(err, metadata.ErrTransition) || errors.Is(err, metadata.ErrForeignSegment):
			f.add(err) // of this one alone
		case err != nil:
			f.add(err)
			return f.err() // what was announced is found again
		case ending != nil:
			doomed = append(doomed, ending)
		}
	}
	f.add(j.removeAll(ctx, func(yield func(*metadata.Segment) bool) {
		for _, seg := range doomed {
			if !yield(seg) {
				return
			}
		}
	}))
	return f.err()
}

// deletePartition takes the partition through Kafka's states of a deletion, one
// at a time, each decided on the one that is there.
func (j *job) deletePartition(ctx context.Context) error {
	view, err := j.look()
	if err != nil {
		return err
	}
	for range view.All() { // a partition of which nothing is tiered needs no store
		if err := transfer.CheckOwner(ctx, j.d.ep, j.d.meta.ID()); err != nil {
			return err
		}
		break
	}
	for _, step := range [][2]metadata.PartitionState{
		{metadata.PartitionKept, metadata.DeletePartitionMarked},
		{metadata.DeletePartitionMarked, metadata.DeletePartitionStarted},
	} {
		if err := j.advance(ctx, step[0], step[1]); err != nil {
			return err
		}
	}
	if view, err = j.look(); err != nil {
		return err
	}
	var f failures
	for seg := range view.All() { // one by one: a partition may have a million
		_, err := j.announce(ctx, seg)
		switch {
		case errors.Is(err, metadata.ErrForeignSegment):
			f.add(err)
		case err != nil && !errors.Is(err, metadata.ErrTransition): // a copy that was faster is met again below
			f.add(err)
			return f.err()
		}
	}
	if view, err = j.look(); err != nil {
		return err
	}
	f.add(j.removeAll(ctx, deleting(view)))
	if err := f.err(); err != nil {
		return err
	}
	return j.advance(ctx, metadata.DeletePartitionStarted, metadata.DeletePartitionFinished)
}

// advance takes the partition from one state of its deletion to the next; that
// it is there or further is fine.
func (j *job) advance(ctx context.Context, from, to metadata.PartitionState) error {
	view, err := j.look()
	if err != nil {
		return err
	}
	if view.Info().Deletion >= to {
		return nil
	}
	ev, err := metadata.DeletePartition(j.p, from, to, j.writer, j.d.o.Now().UnixMilli())
	if err != nil {
		return err
	}
	if err := j.d.meta.Publish(ctx, ev); err != nil {
		// Somebody else may have been faster, or the answer was lost.
		if view, verr := j.d.meta.View(j.p); verr == nil && view.Info().Deletion >= to {
			return nil
		}
		return fmt.Errorf("%s: %w", to, err)
	}
	return nil
}

// announce makes a segment unreadable: DELETE_STARTED is durable when it
// returns its record. nil, without an error, is a segment that has ended.
func (j *job) announce(ctx context.Context, seg *metadata.Segment) (*metadata.Segment, error) {
	if !ours(seg) {
		err := fmt.Errorf("segment %s: %w", seg.ID, metadata.ErrForeignSegment)
		j.failed(seg, err)
		return nil, err
	}
	switch seg.State {
	case metadata.DeleteSegmentStarted:
		return seg, nil
	case metadata.DeleteSegmentFinished:
		return nil, nil
	case metadata.None, metadata.CopySegmentStarted, metadata.CopySegmentFinished:
	}
	ev, err := metadata.DeleteStarted(seg, j.writer, j.d.o.Now().UnixMilli())
	if err != nil {
		return nil, err
	}
	err = j.d.meta.Publish(ctx, ev)
	if err == nil {
		ending := ev.Segment()
		j.d.stats.started.Add(1)
		j.d.o.Logger.Info("segment is being deleted", "partition", j.p, "start", seg.StartOffset, "end", seg.EndOffset, "id", seg.ID)
		if f := j.d.o.Events.Started; f != nil {
			f(ending)
		}
		return ending, nil
	}
	// Somebody else may have been faster, or the answer was lost.
	if now, gone := j.read(seg.ID); gone {
		return nil, nil
	} else if now != nil && now.State == metadata.DeleteSegmentStarted {
		return now, nil
	}
	return nil, fmt.Errorf("%s of segment %s: %w", metadata.DeleteSegmentStarted, seg.ID, err)
}

// read returns a segment as it is now, gone if it has ended; nil and not gone if
// that cannot be known.
func (j *job) read(id segment.UUID) (seg *metadata.Segment, gone bool) {
	view, err := j.d.meta.View(j.p)
	if err != nil || view.Incomplete() > 0 {
		return nil, false
	}
	seg, ok := view.Get(id)
	return seg, !ok || seg.State == metadata.DeleteSegmentFinished
}

// ours reports whether segtier wrote the segment: another plugin's objects are
// where its own metadata says, and the key that we would delete means nothing.
func ours(seg *metadata.Segment) bool {
	return object.IsLocation(seg.Custom) || transfer.IsFingerprint(seg.Custom)
}

// removeAll takes segments in DELETE_STARTED to their end: their uploads, the
// delay, their objects, DELETE_FINISHED. segs may be ranged over several times.
func (j *job) removeAll(ctx context.Context, segs iter.Seq[*metadata.Segment]) error {
	some, delay := false, false
	for seg := range segs {
		some = true
		if !j.d.hasWaited(seg.ID) {
			delay = j.d.o.Delay > 0
			break
		}
	}
	if !some {
		return nil
	}
	// A writer that does not know yet is stopped now; what it begins until then is
	// looked for again before the objects go.
	if err := j.abortUploads(ctx); err != nil {
		return err
	}
	if delay {
		if err := j.d.o.Wait(ctx, j.d.o.Delay); err != nil {
			return err
		}
		if err := j.abortUploads(ctx); err != nil {
			return err
		}
	}
	// The moment before the first byte is deleted is the one that counts: somebody
	// may have taken the prefix over meanwhile.
	if err := transfer.CheckOwner(ctx, j.d.ep, j.d.meta.ID()); err != nil {
		return err
	}
	return j.removeEach(ctx, segs)
}

// giveUp is how many failures in a row end a call: then it is not the segments.
const giveUp = 16

// removeEach removes segments, some of them at once.
func (j *job) removeEach(ctx context.Context, segs iter.Seq[*metadata.Segment]) error {
	var f failures
	var running sync.WaitGroup
	for seg := range segs {
		if !ours(seg) {
			continue // announced by its own plugin
		}
		err := j.d.takeSlot(ctx)
		if err != nil || f.inRow() >= giveUp {
			if err == nil {
				<-j.d.slots
			}
			f.add(err)
			break
		}
		if cap(j.d.slots) == 1 {
			j.removeOne(ctx, seg, &f)
			continue
		}
		running.Go(func() { j.removeOne(ctx, seg, &f) })
	}
	running.Wait()
	return f.err()
}

// removeOne removes a segment and gives its slot back.
func (j *job) removeOne(ctx context.Context, seg *metadata.Segment, f *failures) {
	defer func() { <-j.d.slots }()
	ended, err := j.remove(ctx, seg)
	j.d.setWaited(seg.ID, err != nil)
	if err != nil {
		err = fmt.Errorf("segment %s at offset %d: %w", seg.ID, seg.StartOffset, err)
		j.failed(seg, err)
		f.add(err)
		return
	}
	f.succeeded()
	if ended == nil {
		return // by somebody else
	}
	j.d.stats.finished.Add(1)
	j.d.stats.bytes.Add(seg.SizeBytes)
	j.d.o.Logger.Info("segment was deleted", "partition", j.p, "start", seg.StartOffset, "end", seg.EndOffset, "id", seg.ID)
	if e := j.d.o.Events.Finished; e != nil {
		e(ended)
	}
}

func (j *job) failed(seg *metadata.Segment, err error) {
	j.d.stats.failed.Add(1)
	j.d.o.Logger.Warn("segment was not deleted", "partition", j.p, "start", seg.StartOffset, "id", seg.ID, "err", err)
	if f := j.d.o.Events.Failed; f != nil {
		f(seg, err)
	}
}

// remove deletes the object of a segment, makes sure that it is gone, and says
// so. It returns the record, nil if somebody else was faster.
func (j *job) remove(ctx context.Context, seg *metadata.Segment) (*metadata.Segment, error) {
	// The delay has passed since the record was seen: what is it now?
	now, gone := j.read(seg.ID)
	switch {
	case gone:
		return nil, nil
	case now == nil:
		return nil, fmt.Errorf("its metadata cannot be read back: %w", metadata.ErrUnavailable)
	case now.State != metadata.DeleteSegmentStarted:
		return nil, fmt.Errorf("%w: it is in %s", metadata.ErrTransition, now.State)
	}
	key := object.Key(now.Partition, now.StartOffset, now.ID)
	there, err := j.mine(ctx, now, key)
	if err != nil {
		return nil, err
	}
	if there {
		if err := j.d.ep.Delete(ctx, key); err != nil {
			return nil, err
		}
		// A store that deletes later than it says, or an upload that was faster: in
		// both cases it is not over.
		switch _, err := j.d.ep.Stat(ctx, key); {
		case err == nil:
			return nil, fmt.Errorf("object %s is still there after it was deleted", key)
		case !errors.Is(err, objstore.ErrNotExist):
			return nil, err
		}
	}
	ev, err := metadata.DeleteFinished(now, j.writer, j.d.o.Now().UnixMilli())
	if err != nil {
		return nil, err
	}
	if err := j.d.meta.Publish(ctx, ev); err != nil {
		if _, gone := j.read(seg.ID); gone {
			return ev.Segment(), nil
		}
		return nil, fmt.Errorf("%s: %w", metadata.DeleteSegmentFinished, err)
	}
	return ev.Segment(), nil
}

// mine reports whether there is an object to be deleted under the segment's key.
// Of a segment that was FINISHED there was a receipt, and keys are never
// overwritten: whatever is there now is what is left of it. Of one that never was,
// nobody has proven anything; its key may hold what somebody else put there,
// which is not ours to delete: a *ForeignObjectError.
func (j *job) mine(ctx context.Context, seg *metadata.Segment, key string) (there bool, err error) {
	if object.IsLocation(seg.Custom) {
		return true, nil
	}
	info, err := j.d.ep.Stat(ctx, key)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.Token != "" && info.Token == transfer.Token(seg.ID, seg.Custom):
		return true, nil
	}
	h, err := readHeader(ctx, j.d.ep, key, info)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return false, nil
	case errors.Is(err, object.ErrCorrupt) || errors.Is(err, object.ErrVersion):
		return false, &ForeignObjectError{Key: key, SegmentID: seg.ID, Err: err}
	case err != nil:
		return false, err
	case h.SegmentID != seg.ID || h.Key() != key:
		return false, &ForeignObjectError{Key: key, SegmentID: seg.ID, Err: fmt.Errorf("it says that it is segment %s of %s", h.SegmentID, h.Partition)}
	}
	return true, nil
}

// ForeignObjectError says that the key of a segment that never became readable
// holds an object that is not known to be the segment's. It is not deleted, and
// the segment stays DELETE_SEGMENT_STARTED. If nobody needs the object, remove it
// with the store's own tools; the next deletion then ends the segment.
type ForeignObjectError struct {
	Key       string
	SegmentID segment.UUID
	Err       error // what was found there
}

// Error says what to do.
func (e *ForeignObjectError) Error() string {
	return fmt.Sprintf("object %s is not known to be segment %s (%v), so it is not deleted: if nobody needs it, remove it with the store's own tools and delete again", e.Key, e.SegmentID, e.Err)
}

// Unwrap returns what was found.
func (e *ForeignObjectError) Unwrap() error { return e.Err }

// abortUploads discards the unfinished uploads of all segments of the partition
// that are being deleted or have ended; one listing finds them all. Others may be
// somebody's work. A store that refuses to list or abort them is left to its
// lifecycle rules.
func (j *job) abortUploads(ctx context.Context) error {
	view, err := j.look()
	if err != nil {
		return err
	}
	prefix := path.Dir(object.Key(j.p, 0, segment.UUID{1})) + "/"
	for up, err := range j.d.ep.Uploads(ctx, prefix) {
		switch {
		case errors.Is(err, objstore.ErrRefused) || errors.Is(err, errors.ErrUnsupported):
			j.d.o.Logger.Warn("unfinished uploads cannot be listed, so none is aborted", "partition", j.p, "err", err)
			return nil
		case err != nil:
			return fmt.Errorf("unfinished uploads: %w", err)
		}
		_, _, id, err := object.ParseKey(up.Key)
		if err != nil {
			continue // not a segment's
		}
		seg, ok := view.Get(id)
		if !ok || seg.State != metadata.DeleteSegmentStarted && seg.State != metadata.DeleteSegmentFinished || up.Key != object.Key(j.p, seg.StartOffset, id) {
			continue
		}
		switch err := j.d.ep.Abort(ctx, up); {
		case errors.Is(err, objstore.ErrRefused):
			j.d.o.Logger.Warn("an unfinished upload cannot be aborted", "key", up.Key, "upload", up.ID, "err", err)
			continue
		case err != nil:
			return fmt.Errorf("unfinished upload %s of %s: %w", up.ID, up.Key, err)
		}
		j.d.stats.aborted.Add(1)
		j.d.o.Logger.Info("unfinished upload was aborted", "key", up.Key, "upload", up.ID)
	}
	return nil
}

func (d *Deleter) hasWaited(id segment.UUID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.waited[id]
	return ok
}

// setWaited remembers that a segment has had its delay and is still there.
func (d *Deleter) setWaited(id segment.UUID, still bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !still {
		delete(d.waited, id)
		return
	}
	if len(d.waited) >= maxWaited {
		clear(d.waited)
	}
	d.waited[id] = struct{}{}
}

// takeSlot waits until another object may be deleted: for one of Concurrency,
// and for its time by PerSecond.
func (d *Deleter) takeSlot(ctx context.Context) error {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := d.pace.Wait(ctx, 1)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		<-d.slots
	}
	return err
}

// failures collects the errors of a call. The zero value has none.
type failures struct {
	mu    sync.Mutex
	first []error // at most keepFailures; guarded by mu
	n     int     // guarded by mu
	row   int     // since the last success; guarded by mu
}

const keepFailures = 8

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.row++; len(f.first) < keepFailures {
		f.first = append(f.first, err)
	}
	f.n++
}

func (f *failures) succeeded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.row = 0
}

func (f *failures) inRow() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.row
}

// err returns the first errors and how many more there were.
func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := errors.Join(f.first...)
	if len(f.first) == 1 {
		err = f.first[0]
	}
	if more := f.n - len(f.first); more > 0 {
		return fmt.Errorf("%w\n(and %d more)", err, more)
	}
	return err
}
