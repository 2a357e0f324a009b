package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// apply deletes what may go, one after the other, each looked at again first. One
// that cannot be deleted keeps no other from it; several in a row end it.
func (c *collector) apply(ctx context.Context) error {
	var first error
	failing := 0
	for i := range c.doomed {
		o := &c.doomed[i]
		gone, err := c.remove(ctx, o)
		switch {
		case err != nil && (ctx.Err() != nil || blind(err)):
			return err
		case err != nil:
			c.report.Failed++
			if first == nil {
				first = err
			}
			if failing++; failing == maxFailing {
				return fmt.Errorf("%d could not be deleted, the first: %w", c.report.Failed, first)
			}
			continue
		case !gone:
			c.report.Spared++
		default:
			if c.o.Removed != nil {
				c.o.Removed(*o)
			}
		}
		failing = 0
	}
	if first != nil {
		return fmt.Errorf("%d could not be deleted, the first: %w", c.report.Failed, first)
	}
	return nil
}

// unproven asks once more whose the prefix is, before something goes of which
// metadata knows nothing. A collection may take long, and what is unknown here may be
// what a rebuild by others has found and made readable meanwhile; what has ended has
// ended in any metadata.
func (c *collector) unproven(ctx context.Context, o *Orphan) error {
	if o.Proof != "" {
		return nil
	}
	return c.stillOurs(ctx)
}

// blind reports whether an error says that metadata cannot be seen any more:
// then nothing more is deleted. It is the same if the prefix is another's by now.
func blind(err error) bool {
	if _, ok := errors.AsType[*transfer.OwnerError](err); ok || errors.Is(err, ErrRebuilding) {
		return true
	}
	for _, target := range []error{
		metadata.ErrNotReady, metadata.ErrUnavailable, metadata.ErrIncomplete, metadata.ErrUnknownPartition, metadata.ErrClosed, objstore.ErrClosed,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// remove deletes one orphan if it still is one. Not gone: it is none any more, or
// was gone before.
func (c *collector) remove(ctx context.Context, o *Orphan) (gone bool, err error) {
	if o.Reason == RecordAbandoned || o.Reason == RecordDeleting {
		return c.end(ctx, o)
	}
	if err := c.pace.Wait(ctx, 1); err != nil {
		return false, err
	}
	if o.UploadID != "" {
		return c.abort(ctx, o)
	}
	// The object first: it must be the one that was judged, and old enough still.
	info, err := c.ep.Stat(ctx, o.Key)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return false, nil // a listing may be late, or somebody else was faster
	case err != nil:
		return false, err
	case info.Identity != o.Identity || info.Size != o.Size:
		return false, nil
	case c.o.OlderThan > 0 && age(info.Now, info.Modified) < c.o.OlderThan:
		return false, nil
	case o.Reason == ProbeLeft: // metadata knows nothing of it, and no key of one is used twice
		return c.delete(ctx, o)
	}
	// And then metadata, which alone decides. What has ended stays ended, and no new
	// record takes an id that is there, so nothing can come between this and the
	// deletion.
	now := *o
	now.Kept = ""
	live, err := c.judge(ctx, &now)
	if err != nil {
		return false, err
	}
	if live || now.Kept != "" || now.Reason != o.Reason {
		return false, nil
	}
	return c.delete(ctx, o)
}

// delete deletes an object.
func (c *collector) delete(ctx context.Context, o *Orphan) (gone bool, err error) {
	if err := c.unproven(ctx, o); err != nil {
		return false, err
	}
	if err := c.ep.Delete(ctx, o.Key); err != nil {
		return false, err
	}
	c.report.Deleted++
	c.report.DeletedBytes += o.Size
	return true, nil
}

// abort discards an unfinished upload.
func (c *collector) abort(ctx context.Context, o *Orphan) (gone bool, err error) {
	now := *o
	if o.SegmentID != (segment.UUID{}) { // of a marker or a probe metadata knows nothing
		now.Kept = ""
		live, err := c.judgeUpload(&now)
		if err != nil {
			return false, err
		}
		if live || now.Kept != "" || now.Reason != o.Reason {
			return false, nil
		}
	}
	if err := c.unproven(ctx, o); err != nil {
		return false, err
	}
	if err := c.ep.Abort(ctx, objstore.Pending{Key: o.Key, ID: o.UploadID}); err != nil {
		return false, err
	}
	c.report.Aborted++
	return true, nil
}

// end ends a record. Should it be FINISHED at this very moment, the event is
// refused: it is decided on the state that was seen.
func (c *collector) end(ctx context.Context, o *Orphan) (gone bool, err error) {
	view, err := c.whole(o.Partition)
	if err != nil {
		return false, err
	}
	seg, ok := view.Get(o.SegmentID)
	if !ok || seg.State != o.Segment.State {
		return false, nil
	}
	if seg.State == metadata.CopySegmentStarted {
		now := *o
		now.Kept, now.Segment = "", seg
		epoch := int32(-1)
		for s := range view.All() {
			epoch = max(epoch, s.LeaderEpoch)
		}
		if err := c.abandoned(ctx, view, &now, epoch); err != nil || now.Kept != "" {
			return false, err
		}
	}
	if err := c.o.End(ctx, seg); err != nil {
		if errors.Is(err, metadata.ErrTransition) {
			return false, nil // it became another
		}
		return false, err
	}
	c.report.Ended++
	return true, nil
}
