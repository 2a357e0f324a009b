package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/mint"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// Receipt is proof that the object of one segment is durable and equal to its
// source. It cannot be made outside this package; the zero Receipt proves
// nothing.
type Receipt = mint.Receipt

// UploadOptions are the rare wishes of an Upload.
type UploadOptions struct {
	// Confirmed, if not nil, is called for each part once the store has confirmed
	// it, for progress. Calls come from several goroutines. It proves nothing.
	Confirmed func(objstore.PartEvidence)

	// Retried, if not nil, is called when something is about to be sent again,
	// with the reason. Calls may come from several goroutines.
	Retried func(cause error)
}

// Upload creates the object of a scanned segment under the key of header h,
// which is the segment's STARTED record, and proves that it is there. src must
// be the source that was scanned; its files are read in place. An object with
// the same bytes that is there already is proven the same way, so that a failed
// or interrupted Upload can simply be repeated.
//
// The error wraps objstore.ErrConflict if other bytes lie under the key,
// ErrSourceChanged if the source is not what was scanned, ErrUnconfirmed if the
// store cannot prove that it holds what was sent, *DamageError if it reads back
// wrong, and the store's error otherwise. There is no receipt then.
func Upload(ctx context.Context, ep *endpoint.Endpoint, src segment.Source, p *Plan, h object.Header, o UploadOptions) (Receipt, error) {
	if src == nil || p == nil {
		return Receipt{}, errors.New("transfer: Upload needs a source and the plan of its Scan")
	}
	if err := p.agrees(&h); err != nil {
		return Receipt{}, err
	}
	loc, tail, err := p.seal(h)
	if err != nil {
		return Receipt{}, err
	}
	if err := unchanged(src); err != nil {
		return Receipt{}, err
	}
	req := objstore.UploadRequest{
		Key:       h.Key(),
		Body:      p.body(src, tail),
		Size:      loc.ObjectSize,
		PartSize:  p.partSize,
		PartSums:  p.partSums(tail),
		Token:     Token(h.SegmentID, p.Fingerprint()),
		Confirmed: o.Confirmed,
		Retried:   o.Retried,
	}
	// What is proven below is what was scanned: the store is given the sums, and
	// must show them. It gets a copy, lest it show what it wrote there itself.
	want := slices.Clone(req.PartSums)
	ev, err := ep.Upload(ctx, req)
	if err != nil {
		return Receipt{}, sourceError(src, err)
	}
	level, err := checkEvidence(&req, want, ev)
	if err != nil {
		return Receipt{}, err
	}
	if err := unchanged(src); err != nil {
		return Receipt{}, err
	}
	if err := readBack(ctx, ep, req.Key, ev, loc, tail); err != nil {
		return Receipt{}, err
	}
	return mint.New(mint.Facts{
		Partition:   h.Partition,
		SegmentID:   h.SegmentID,
		StartOffset: h.StartOffset,
		EndOffset:   h.EndOffset,
		LogSize:     h.SizeBytes,
		Key:         req.Key,
		Object:      checksum.Sum{Len: loc.ObjectSize, CRC32C: loc.ObjectCRC32C},
		Location:    loc.Append(nil),
		Evidence:    level.String(),
	}), nil
}

// partSums returns the sums of all parts of the object that ends with tail.
func (p *Plan) partSums(tail []byte) []checksum.Sum {
	end := pieces{size: p.partSize, start: p.parts.total.Len}
	_, _ = end.Write(tail) // never fails
	return p.parts.join(end).sums
}

// unchanged asks the source whether it still is what was opened.
func unchanged(src segment.Source) error {
	if err := src.Unchanged(); err != nil {
		info := src.Info()
		return &ScanError{
			Partition: info.Partition, StartOffset: info.StartOffset, File: segment.Log, Pos: -1,
			Err: fmt.Errorf("%w: %w", ErrSourceChanged, err),
		}
	}
	return nil
}

// sourceError returns the error of an upload, and says so if a source that
// changed is behind it: the store merely sees sums that differ.
func sourceError(src segment.Source, err error) error {
	if changed := unchanged(src); changed != nil && !errors.Is(err, ErrSourceChanged) {
		return errors.Join(changed, err)
	}
	return err
}

// checkEvidence holds the evidence of an upload against the sums of the scan
// and returns the level of the weakest part.
func checkEvidence(req *objstore.UploadRequest, want []checksum.Sum, ev objstore.Evidence) (objstore.Level, error) {
	fail := func(format string, args ...any) (objstore.Level, error) {
		return objstore.Unconfirmed, fmt.Errorf("object %s: %w: %s", req.Key, ErrUnconfirmed, fmt.Sprintf(format, args...))
	}
	level := objstore.ReadBack
	for i, part := range ev.Parts {
		if i >= len(want) {
			return fail("it confirmed %d parts of %d", len(ev.Parts), len(want))
		}
		off, n := req.Part(i)
		switch {
		case part.Part != i:
			return fail("part %d (bytes [%d,%d)) is missing, part %d came in its place", i, off, off+n, part.Part)
		case part.Level < objstore.Echoed:
			return fail("part %d (bytes [%d,%d)) is %s", i, off, off+n, part.Level)
		case part.Sum != want[i]:
			return fail("part %d (bytes [%d,%d)) has %d bytes with CRC32C %08x, sent were %d with %08x",
				i, off, off+n, part.Sum.Len, part.Sum.CRC32C, want[i].Len, want[i].CRC32C)
		}
		level = min(level, part.Level)
	}
	if i := len(ev.Parts); i < len(want) {
		off, n := req.Part(i)
		return fail("part %d (bytes [%d,%d)) is missing", i, off, off+n)
	}
	if ev.Size != req.Size {
		return fail("the object has %d bytes, sent were %d", ev.Size, req.Size)
	}
	return level, nil
}

// readBack asks the store for the object's size and reads its tail back: what
// every later read begins with.
func readBack(ctx context.Context, ep *endpoint.Endpoint, key string, ev objstore.Evidence, loc object.Location, tail []byte) error {
	info, err := ep.Stat(ctx, key)
	if err != nil {
		return damage(key, 0, 0, "object", err)
	}
	if err := checkSize(key, info, loc); err != nil {
		return err
	}
	if info.HasCRC32C && info.CRC32C != loc.ObjectCRC32C {
		return &DamageError{
			Reason: Corrupt, Key: key, What: "object",
			Err: fmt.Errorf("the store says CRC32C %08x, sent were %08x", info.CRC32C, loc.ObjectCRC32C),
		}
	}
	if ev.Identity != "" && info.Identity != "" && ev.Identity != info.Identity {
		return &DamageError{Reason: Mismatch, Key: key, What: "identity", Err: fmt.Errorf("uploaded as %q, found as %q", ev.Identity, info.Identity)}
	}
	got, _, err := readTail(ctx, ep, key, info.Identity, loc)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, tail) {
		return &DamageError{Reason: Corrupt, Key: key, Off: loc.TailOffset, Len: loc.TailSize(), What: "tail", Err: errors.New("read back other bytes than were sent")}
	}
	return nil
}
