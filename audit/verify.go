package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/segtier/segtier/internal/header"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// Reason is the stable code of a finding.
type Reason string

// The reasons; the package comment says what each means.
const (
	OwnerMissing    Reason = "OWNER_MISSING"
	ObjectMissing   Reason = "OBJECT_MISSING"
	ObjectSize      Reason = "OBJECT_SIZE"
	ObjectCorrupt   Reason = "OBJECT_CORRUPT"
	RecordMismatch  Reason = "RECORD_MISMATCH"
	LocationInvalid Reason = "LOCATION_INVALID"
)

// Finding is one damage.
type Finding struct {
	Reason  Reason
	Segment *metadata.Segment // nil for OWNER_MISSING, which is of the whole prefix
	Key     string
	Off     int64 // the damaged range of the object in bytes; Len 0 is all of it
	Len     int64
	Err     error // the evidence
}

// Options says what to verify. The zero value is everything in metadata.
type Options struct {
	Partitions []segment.Partition // nil: every partition

	// Found, if not nil, is called for each finding as it is made, from Verify's
	// own goroutine. Verified is called after each segment.
	Found    func(Finding)
	Verified func(seg *metadata.Segment, damaged bool)
}

// Report sums a verification up.
type Report struct {
	Segments int   // readable segments verified
	Damaged  int   // of those, with at least one finding
	Findings int   // in all
	Unread   int   // segments that could not be read, which says nothing about them
	Bytes    int64 // of the objects verified, as recorded
}

// Verify reads every byte of every readable segment. Findings are no error: the
// report counts them. An error means that the verification is incomplete: some
// segments could not be read, or, after several in a row, none any more. The
// report then says how far it came.
func Verify(ctx context.Context, meta metadata.Store, ep *endpoint.Endpoint, o Options) (Report, error) {
	v := verifier{meta: meta, ep: ep, o: o}
	partitions := o.Partitions
	if partitions == nil {
		var err error
		if partitions, err = meta.Partitions(); err != nil {
			return v.report, err
		}
		partitions = slices.SortedFunc(slices.Values(partitions), func(a, b segment.Partition) int {
			if c := strings.Compare(a.Topic, b.Topic); c != 0 {
				return c
			}
			if c := strings.Compare(a.TopicID.String(), b.TopicID.String()); c != 0 {
				return c
			}
			return int(a.Number) - int(b.Number)
		})
	}
	for _, p := range partitions {
		if err := v.partition(ctx, p); err != nil {
			return v.report, fmt.Errorf("verify %s: %w", p, err)
		}
	}
	if v.unread != nil {
		return v.report, fmt.Errorf("verify: %d segments could not be read, the first: %w", v.report.Unread, v.unread)
	}
	if v.report.Segments == 0 {
		return v.report, nil
	}
	owner, err := v.owner(ctx)
	if err == nil && owner != nil && owner.Owner == "" {
		v.report.Findings++
		if o.Found != nil {
			o.Found(Finding{Reason: OwnerMissing, Key: object.OwnerKey, Err: owner})
		}
	}
	return v.report, err
}

type verifier struct {
	meta    metadata.Store
	ep      *endpoint.Endpoint
	o       Options
	report  Report
	unread  error // of the first segment that could not be read
	failing int   // segments in a row that could not be read
}

// maxFailing is how many segments in a row may fail to be read before the store
// is taken to be out of reach.
const maxFailing = 8

// owner asks whose prefix it is; nil is ours.
func (v *verifier) owner(ctx context.Context) (*transfer.OwnerError, error) {
	err := transfer.CheckOwner(ctx, v.ep, v.meta.ID())
	if owner, ok := errors.AsType[*transfer.OwnerError](err); ok {
		return owner, nil
	}
	return nil, err
}

func (v *verifier) partition(ctx context.Context, p segment.Partition) error {
	view, err := v.meta.View(p)
	if err != nil {
		return err
	}
	for seg := range view.All() {
		if seg.State != metadata.CopySegmentFinished {
			continue
		}
		if err := v.segment(ctx, seg); err != nil {
			return err
		}
	}
	return nil
}

// segment verifies one object in full. Findings are collected first: what
// metadata has stopped calling FINISHED meanwhile is not damage.
func (v *verifier) segment(ctx context.Context, seg *metadata.Segment) error {
	findings, size, err := v.examine(ctx, seg)
	if err != nil {
		// One object that cannot be read must not hide the damage of the next.
		if v.failing++; ctx.Err() != nil || v.failing == maxFailing {
			return err
		}
		v.report.Unread++
		if v.unread == nil {
			v.unread = err
		}
		return nil
	}
	v.failing = 0
	if v.report.Segments == 0 && slices.ContainsFunc(findings, func(f Finding) bool { return f.Reason == ObjectMissing }) {
		// The wrong store looks like one that lost everything. A reader's copy of
		// the metadata has a name of its own, so a name alone says nothing.
		if owner, err := v.owner(ctx); err != nil || owner != nil && owner.Owner != "" {
			return errors.Join(err, asError(owner))
		}
	}
	if len(findings) > 0 {
		view, err := v.meta.View(seg.Partition)
		if err != nil {
			return err
		}
		if now, ok := view.Get(seg.ID); !ok || now.State != metadata.CopySegmentFinished {
			return nil
		}
	}
	v.report.Segments++
	v.report.Bytes += size
	v.report.Findings += len(findings)
	if len(findings) > 0 {
		v.report.Damaged++
	}
	for _, f := range findings {
		if v.o.Found != nil {
			v.o.Found(f)
		}
	}
	if v.o.Verified != nil {
		v.o.Verified(seg, len(findings) > 0)
	}
	return nil
}

// asError is owner as an error, nil if there is none.
func asError(owner *transfer.OwnerError) error {
	if owner == nil {
		return nil
	}
	return owner
}

// maxFindings bounds what is kept of one object's damage; a destroyed object
// would otherwise list every chunk.
const maxFindings = 64

func (v *verifier) examine(ctx context.Context, seg *metadata.Segment) (findings []Finding, size int64, err error) {
	key := object.Key(seg.Partition, seg.StartOffset, seg.ID)
	found := func(r Reason, off, n int64, err error) {
		if len(findings) < maxFindings {
			findings = append(findings, Finding{Reason: r, Segment: seg, Key: key, Off: off, Len: n, Err: err})
		}
	}
	loc, err := object.ParseLocation(seg.Custom)
	if err != nil {
		found(LocationInvalid, 0, 0, err)
		return findings, 0, nil
	}
	_, err = transfer.Confirm(ctx, v.ep, header.Of(seg), loc, transfer.ConfirmOptions{
		Found: func(d *transfer.DamageError) { found(reasonOf(d), d.Off, d.Len, d) },
	})
	switch {
	case err == nil:
	case errors.Is(err, transfer.ErrDamaged), errors.Is(err, objstore.ErrNotExist):
		if len(findings) == 0 {
			found(ObjectMissing, 0, 0, err)
		}
	default:
		return nil, 0, err
	}
	return findings, loc.ObjectSize, nil
}

// reasonOf names a damage by its stable code.
func reasonOf(d *transfer.DamageError) Reason {
	switch d.Reason {
	case transfer.Missing:
		return ObjectMissing
	case transfer.WrongSize:
		return ObjectSize
	case transfer.Mismatch:
		return RecordMismatch
	default:
		return ObjectCorrupt
	}
}
