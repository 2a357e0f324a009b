package s3

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// proof is what is known of one sent part.
type proof struct {
	level   objstore.Level
	resumed bool // an earlier try had sent it
	told    bool // Confirmed was called
}

// confirm raises the level of part i, and tells the caller once it is enough.
func (u *upload) confirm(i int, level objstore.Level) {
	p := &u.proof[i]
	p.level = max(p.level, level)
	if p.told || p.level < u.s.opts.Evidence {
		return
	}
	p.told = true
	if u.req.Confirmed == nil {
		return
	}
	for _, ev := range u.evidence(i) {
		u.req.Confirmed(ev)
	}
}

// evidence returns the evidence for the parts of the request that part i covers.
func (u *upload) evidence(i int) []objstore.PartEvidence {
	p := &u.parts[i]
	evs := make([]objstore.PartEvidence, p.count)
	for k := range evs {
		evs[k] = objstore.PartEvidence{
			Part: p.first + k, Sum: u.req.PartSums[p.first+k], Level: u.proof[i].level, Resumed: u.proof[i].resumed,
		}
	}
	return evs
}

// doubt forgets what was proven: something said otherwise. Who was told that a
// part is confirmed is not told again.
func (u *upload) doubt() {
	for i := range u.proof {
		u.proof[i].level = objstore.Unconfirmed
	}
}

// echo compares what the service answered to part i with what was sent. An
// answer without a sum leaves the part unconfirmed; one of a service that does
// not verify says nothing.
func (u *upload) echo(i int, answered string, verifies bool) error {
	if answered == "" {
		return nil
	}
	p := &u.parts[i]
	if unquote(answered) != checksum.Base64(p.sum.CRC32C) {
		return fmt.Errorf("%w: %w", objstore.ErrCorrupt, mismatch(i, p, unquote(answered)))
	}
	if verifies {
		u.confirm(i, objstore.Echoed)
	}
	return nil
}

// short reports whether a part has less proof than is asked for.
func (u *upload) short() bool {
	for i := range u.proof {
		if u.proof[i].level < u.s.opts.Evidence {
			return true
		}
	}
	return false
}

// confirmByList raises the proof of the parts to Listed, before the object is
// made of them, if that is wanted or the only way short of reading back.
func (m *multipart) confirmByList(ctx context.Context) error {
	if !m.abilities.PartChecksum || m.s.opts.Evidence > objstore.Attributed || !m.short() {
		return nil
	}
	listed, err := m.listParts(ctx, m.id)
	if errors.Is(err, errNotImplemented) || errors.Is(err, errPaging) || errors.Is(err, objstore.ErrRefused) {
		return nil // reading back is left
	}
	if err != nil {
		return err
	}
	for i := range m.parts {
		part, ok := listed[i]
		if !ok || part.crc == "" || part.etag != m.etags[i] {
			continue
		}
		if part.size != m.parts[i].sum.Len || part.crc != checksum.Base64(m.parts[i].sum.CRC32C) {
			return m.partFailed(i, fmt.Errorf("%w: the service lists %d bytes: %w", objstore.ErrCorrupt, part.size, mismatch(i, &m.parts[i], part.crc)))
		}
		m.confirm(i, objstore.Listed)
	}
	return nil
}

// verdict is what an object's sum says about its being ours.
type verdict uint8

const (
	unsaid verdict = iota // nothing, or the sum of other parts
	same
	other
)

// compare compares the sum that HEAD shows with ours.
func (u *upload) compare(h *head) verdict {
	full, isFull := parseCRC(h.crc)
	ours := composite(u.parts)
	switch {
	case h.crc == "":
		return unsaid
	case h.kind == types.ChecksumTypeFullObject && isFull:
		if full == u.whole.CRC32C {
			return same
		}
		return other
	case h.crc == ours, h.kind == types.ChecksumTypeComposite && h.crc == unquote(ours):
		return same
	case h.kind == "" && isFull && full == u.whole.CRC32C:
		return same
	}
	// The sum of other sums: of other bytes, or of the same in other parts.
	return unsaid
}

// origin says how we came to look at an object.
type origin uint8

const (
	found   origin = iota // it was there, whoever wrote it
	written               // our write of it succeeded, or it has our token
)

// conclude decides about the object that is there: proven to be ours and so the
// evidence of this upload, or not.
func (u *upload) conclude(ctx context.Context, h *head, from origin) (objstore.Evidence, error) {
	if h.info.Size != u.req.Size {
		return u.wrong(ctx, h, from, fmt.Errorf("it has %d bytes, not %d", h.info.Size, u.req.Size))
	}
	if from == found {
		u.doubt() // of what was sent, which is not what is there
		for i := range u.proof {
			u.proof[i].resumed = true
		}
	}
	verifies := u.abilities.PutChecksum && (len(u.parts) == 1 || u.abilities.PartChecksum)
	said := u.compare(h)
	switch {
	case said == same && verifies:
		// Of one part the object's attribute is the part's sum; of several it is
		// made of the parts' sums.
		level := objstore.Listed
		if h.kind == types.ChecksumTypeFullObject {
			level = objstore.Attributed
		}
		for i := range u.parts {
			u.confirm(i, level)
		}
	case said == other && verifies && from == found:
		return u.wrong(ctx, h, from, fmt.Errorf("its CRC32C is %s, not %s", h.crc, checksum.Base64(u.whole.CRC32C)))
	case said == other, said == unsaid && h.crc != "":
		u.doubt()
	}
	if u.short() && verifies && u.s.opts.Evidence == objstore.Attributed && len(u.parts) > 1 {
		if err := u.confirmByAttributes(ctx, h); err != nil {
			return objstore.Evidence{}, err
		}
	}
	if u.short() {
		err := u.readBack(ctx, h)
		if errors.Is(err, objstore.ErrCorrupt) {
			return u.wrong(ctx, h, from, err)
		}
		if err != nil {
			return objstore.Evidence{}, fmt.Errorf("reading back: %w", plain(err))
		}
	}
	ev := objstore.Evidence{Size: h.info.Size, Identity: h.info.Identity, Existed: from == found, Parts: make([]objstore.PartEvidence, 0, len(u.req.PartSums))}
	for i := range u.parts {
		ev.Parts = append(ev.Parts, u.evidence(i)...)
	}
	return ev, nil
}

// wrong ends an upload under whose key something else lies. If it is our own
// write that went wrong, it is deleted: nothing that is not what was to be
// written stays.
func (u *upload) wrong(ctx context.Context, h *head, from origin, why error) (objstore.Evidence, error) {
	if from == found {
		return objstore.Evidence{}, fmt.Errorf("%w: %s", objstore.ErrConflict, why.Error())
	}
	ours := h.info.Token == u.req.Token || h.info.Token == "" && !u.abilities.Token
	if !ours {
		return objstore.Evidence{}, fmt.Errorf("%w: it was replaced: %s", objstore.ErrConflict, why.Error())
	}
	if !errors.Is(why, objstore.ErrCorrupt) {
		why = fmt.Errorf("%w: %w", objstore.ErrCorrupt, why)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := u.s.deleteObject(ctx, u.name); err != nil {
		return objstore.Evidence{}, fmt.Errorf("%w; it could not be deleted: %s", why, err.Error())
	}
	return objstore.Evidence{}, fmt.Errorf("what was written is deleted: %w", why)
}

// confirmByAttributes raises the proof to Attributed, where the service lists the
// parts of a finished object.
func (u *upload) confirmByAttributes(ctx context.Context, h *head) error {
	in := &awss3.GetObjectAttributesInput{
		Bucket: &u.s.opts.Bucket, Key: &u.name, ExpectedBucketOwner: optional(u.s.opts.ExpectedBucketOwner),
		ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesObjectParts, types.ObjectAttributesEtag},
	}
	marker, pages := 0, 0
	for {
		out, err := send(ctx, u.s, "GetObjectAttributes", u.s.opts.StallTimeout, u.s.client.GetObjectAttributes, in)
		if err != nil {
			if optionalListing(err) || errors.Is(err, objstore.ErrNotExist) || unreadable(err) {
				return nil // not for us, or not to be read: reading back is left
			}
			return err
		}
		parts := out.ObjectParts
		if parts == nil || etagText(aws.ToString(out.ETag)) != etagText(h.info.Identity) {
			return nil
		}
		for _, part := range parts.Parts {
			i := int(aws.ToInt32(part.PartNumber)) - 1
			if i < 0 || i >= len(u.parts) || part.ChecksumCRC32C == nil {
				continue
			}
			if aws.ToInt64(part.Size) == u.parts[i].sum.Len && unquote(*part.ChecksumCRC32C) == checksum.Base64(u.parts[i].sum.CRC32C) {
				u.confirm(i, objstore.Attributed)
			}
		}
		next, grows := nextMarker(parts.NextPartNumberMarker, marker)
		if pages++; !aws.ToBool(parts.IsTruncated) || !grows || pages > partPages {
			return nil
		}
		marker, in.PartNumberMarker = next, parts.NextPartNumberMarker
	}
}

// unreadable reports whether an answer came and could not be made sense of: one
// service answers with the object's bytes.
func unreadable(err error) bool {
	var e *ServiceError
	return errors.As(err, &e) && e.Status/100 == 2
}

// etagText strips the quotes that some answers have and others lack.
func etagText(etag string) string {
	if len(etag) >= 2 && etag[0] == '"' && etag[len(etag)-1] == '"' {
		return etag[1 : len(etag)-1]
	}
	return etag
}

// readBack reads the parts that lack proof and sums them. Other bytes are
// ErrCorrupt.
func (u *upload) readBack(ctx context.Context, h *head) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(u.s.opts.Concurrency)
	for i := range u.parts {
		if u.proof[i].level >= u.s.opts.Evidence {
			continue
		}
		g.Go(func() error {
			err := u.readPart(ctx, h, i)
			if err != nil {
				return u.partFailed(i, err)
			}
			u.confirm(i, objstore.ReadBack)
			return nil
		})
	}
	return g.Wait()
}

func (u *upload) readPart(ctx context.Context, h *head, i int) error {
	p := &u.parts[i]
	ctx, w := watch(ctx, u.s.opts.StallTimeout)
	defer w.stop()
	_, content, err := u.s.getName(ctx, u.name, u.req.Key, p.off, p.sum.Len, h.info.Identity)
	if err != nil {
		return err
	}
	defer content.Close()
	buf := make([]byte, readBuffer)
	var got checksum.Sum
	for got.Len < p.sum.Len {
		n, err := content.Read(buf[:min(readBuffer, p.sum.Len-got.Len)])
		w.progress()
		got.CRC32C, got.Len = checksum.Update(got.CRC32C, buf[:n]), got.Len+int64(n)
		u.s.stats.read.Add(int64(n))
		switch {
		case got.Len == p.sum.Len:
		case ctx.Err() != nil:
			return ended(ctx)
		case err != nil:
			return fmt.Errorf("after %d of %d bytes: %w", got.Len, p.sum.Len, err)
		}
	}
	if got != p.sum {
		return fmt.Errorf("%w: %w", objstore.ErrCorrupt, mismatch(i, p, checksum.Base64(got.CRC32C)))
	}
	return nil
}

// readBuffer is what is read back at a time.
const readBuffer = 128 << 10
