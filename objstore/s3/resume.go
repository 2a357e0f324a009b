package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

const (
	// maxCandidates is how many unfinished uploads of one object are looked into,
	// the newest first, and maxOthers how many are remembered to be aborted.
	maxCandidates = 8
	maxOthers     = 1000
	// partPages bounds a listing of parts: S3 needs 10 pages for as many as there
	// can be; some services make smaller ones.
	partPages = 200
)

// resume finds the parts that an earlier try left. Nothing was written down about
// them: they are listed, and accepted only if their sums are ours.
func (m *multipart) resume(ctx context.Context) error {
	var left []types.MultipartUpload
	err := m.s.uploads(ctx, m.name, func(u types.MultipartUpload) bool {
		if aws.ToString(u.Key) == m.name && aws.ToString(u.UploadId) != "" {
			left = append(left, u)
		}
		// Names that go on after ours come behind it.
		return len(left) < maxOthers && aws.ToString(u.Key) <= m.name
	})
	if optionalListing(err) {
		m.s.opts.Logger.DebugContext(ctx, "unfinished uploads cannot be listed: nothing is resumed", "store", m.s.String(), "key", m.req.Key, "err", err)
	} else if err != nil {
		return err
	}
	slices.SortStableFunc(left, func(a, b types.MultipartUpload) int {
		return aws.ToTime(b.Initiated).Compare(aws.ToTime(a.Initiated))
	})
	var best map[int]listedPart
	var bestBytes int64
	for n, u := range left {
		id := *u.UploadId
		m.others = append(m.others, id)
		if n >= maxCandidates || bestBytes == m.req.Size {
			continue
		}
		usable, size, err := m.usableParts(ctx, id)
		if err != nil {
			return err
		}
		if size > bestBytes {
			best, bestBytes, m.id = usable, size, id
		}
	}
	m.others = slices.DeleteFunc(m.others, func(id string) bool { return id == m.id })
	if m.id == "" {
		return nil
	}
	m.resumed, m.refused = true, bestBytes == m.req.Size
	m.s.stats.resumed.Add(bestBytes)
	m.s.opts.Logger.DebugContext(ctx, "resuming an upload", "store", m.s.String(), "key", m.req.Key, "upload", m.id, "parts", len(best), "bytes", bestBytes)
	for i, part := range best {
		m.etags[i] = part.etag
		m.proof[i].resumed = true
		if m.abilities.PartChecksum {
			m.confirm(i, objstore.Listed)
		}
	}
	return nil
}

// optionalListing reports whether err means that there is no listing here, for
// us or for anybody, which an upload can do without.
func optionalListing(err error) bool {
	return errors.Is(err, errNotImplemented) || errors.Is(err, errPaging) || errors.Is(err, objstore.ErrRefused)
}

// usableParts returns the parts of an unfinished upload that are exactly ours.
func (m *multipart) usableParts(ctx context.Context, id string) (map[int]listedPart, int64, error) {
	listed, err := m.listParts(ctx, id)
	if errors.Is(err, errNoUpload) || errors.Is(err, objstore.ErrNotExist) || optionalListing(err) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	size := int64(0)
	for i, part := range listed {
		p := &m.parts[i]
		if part.twice || part.etag == "" || part.size != p.sum.Len || part.crc != checksum.Base64(p.sum.CRC32C) {
			delete(listed, i)
			continue
		}
		size += part.size
	}
	return listed, size, nil
}

// errGhost: an upload that was resumed is not what we once created.
var errGhost = errors.New("the unfinished upload that was resumed keeps no checksums of the parts sent to it now")

// isOurs looks whether a resumed upload still is what it was created as. Its old
// parts were accepted since their sums are listed. A ghost, see tidy, has such a
// part too, but keeps no sums of those that come later: no object can be made of it.
func (m *multipart) isOurs(ctx context.Context) error {
	if !m.resumed || m.refused {
		return nil
	}
	listed, err := m.listParts(ctx, m.id)
	if errors.Is(err, errPaging) {
		return nil // so is what was found before
	}
	if err != nil {
		return err
	}
	for i := range m.parts {
		if part, ok := listed[i]; ok && part.etag == m.etags[i] && part.crc == "" {
			return m.partFailed(i, errGhost)
		}
	}
	return nil
}

// listedPart is what the service says of a part.
type listedPart struct {
	etag, crc string
	size      int64
	twice     bool // listed more than once: which is which?
}

// listParts returns the parts of an unfinished upload by their index, those that
// are none of ours left out.
func (m *multipart) listParts(ctx context.Context, id string) (map[int]listedPart, error) {
	in := &awss3.ListPartsInput{
		Bucket: &m.s.opts.Bucket, Key: &m.name, UploadId: &id, ExpectedBucketOwner: optional(m.s.opts.ExpectedBucketOwner),
	}
	listed := make(map[int]listedPart)
	marker := 0
	for pages := 1; ; pages++ {
		out, err := send(ctx, m.s, "ListParts", m.s.opts.StallTimeout, m.s.client.ListParts, in)
		if err != nil {
			return nil, err
		}
		for _, part := range out.Parts {
			i := int(aws.ToInt32(part.PartNumber)) - 1
			if i < 0 || i >= len(m.parts) {
				continue
			}
			_, twice := listed[i]
			listed[i] = listedPart{
				etag: aws.ToString(part.ETag), crc: unquote(aws.ToString(part.ChecksumCRC32C)), size: aws.ToInt64(part.Size), twice: twice,
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return listed, nil
		}
		next, grows := nextMarker(out.NextPartNumberMarker, marker)
		if !grows || pages >= partPages {
			return nil, fmt.Errorf("%w: parts behind number %d of upload %s", errPaging, marker, id)
		}
		marker, in.PartNumberMarker = next, out.NextPartNumberMarker
	}
}

// nextMarker reads the number behind which the next page of parts begins, which
// must grow.
func nextMarker(text *string, after int) (next int, grows bool) {
	next, err := strconv.Atoi(aws.ToString(text))
	return next, err == nil && next > after
}
