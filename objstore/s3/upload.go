package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// schedule hands the parts to confirming, several at a time, between its Create
// and its Complete. This is all that manager is used for: it is given parts of a
// body that nobody reads through it, and neither its errors nor its abort count.
func (m *multipart) schedule(ctx context.Context) error {
	//nolint:staticcheck // SA1019: its successor buffers every part and cannot resume; docs/decisions/0006-s3-manager.md
	uploader := manager.NewUploader(confirming{m}, func(u *manager.Uploader) {
		u.PartSize = m.partSize
		u.Concurrency = min(m.s.opts.Concurrency, len(m.parts))
		u.LeavePartsOnError = true // what becomes of them is decided when the outcome is known
		u.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		u.BufferProvider = nil // of some platforms only; the body is not read through it
	})
	//nolint:staticcheck // SA1019: as above
	_, err := uploader.Upload(ctx, &awss3.PutObjectInput{
		Bucket: &m.s.opts.Bucket, Key: &m.name, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		Body: io.NewSectionReader(m.req.Body, 0, m.req.Size),
	})
	return err
}

// errStopped is what is left to say of a part that was not sent, or given up,
// because another one failed.
var errStopped = errors.New("another part failed")

// multipart is one try to make the object out of parts.
type multipart struct {
	*upload
	partSize int64
	id       string   // of S3's multipart upload, "" before there is one
	etags    []string // by part; each written by the one who sends or finds the part
	others   []string // ids of other unfinished uploads of this object
	anew     bool     // nothing is resumed
	resumed  bool     // id was found, with parts that are ours
	refused  bool     // all parts were there: an earlier try failed at Complete
	spoiled  bool     // what was resumed cannot be completed and is given up

	// cancel ends the requests in flight, stop only the waiting for slots: a part
	// in flight is worth its end if what failed may pass.
	cancel, stop context.CancelCauseFunc
	waiting      context.Context //nolint:containedctx // ends with stop

	mu        sync.Mutex
	err       error // the first that failed; guarded by mu
	completed bool  // Complete was sent; guarded by mu
	cut       bool  // a part may be on its way still, without us; guarded by mu
}

// fail notes why the try fails. The first error is the one that is reported; if it
// cannot pass, the parts in flight are given up.
func (m *multipart) fail(err error) {
	m.mu.Lock()
	first := m.err == nil
	if first {
		m.err = err
	}
	m.mu.Unlock()
	if !first {
		return
	}
	m.stop(errStopped)
	if permanent(err) {
		m.cancel(errStopped)
	}
}

func (m *multipart) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// permanent reports whether sending the parts in flight is of no use.
func permanent(err error) bool {
	for _, p := range []error{
		objstore.ErrRefused, objstore.ErrCorrupt, objstore.ErrFull, objstore.ErrClosed,
		context.Canceled, context.DeadlineExceeded, errBody, errNoUpload,
	} {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}

// run makes the object, or says whether the outcome must be looked for.
func (m *multipart) run(ctx context.Context) error {
	if !m.anew {
		if err := m.resume(ctx); err != nil {
			return err
		}
	}
	ctx, m.cancel = context.WithCancelCause(ctx)
	defer m.cancel(nil)
	m.waiting, m.stop = context.WithCancelCause(ctx)
	defer m.stop(nil)
	err := m.schedule(ctx)
	if first := m.failure(); first != nil {
		return first
	}
	return err
}

// confirming is the client that manager is given.
type confirming struct{ *multipart }

var _ manager.UploadAPIClient = confirming{}

// PutObject is for objects of one part, which never come here.
func (c confirming) PutObject(context.Context, *awss3.PutObjectInput, ...func(*awss3.Options)) (*awss3.PutObjectOutput, error) {
	return nil, errors.New("an object of one part has no parts to schedule")
}

// CreateMultipartUpload begins an upload, unless one that was left goes on.
func (c confirming) CreateMultipartUpload(ctx context.Context, _ *awss3.CreateMultipartUploadInput, _ ...func(*awss3.Options)) (*awss3.CreateMultipartUploadOutput, error) {
	if c.id == "" {
		in := c.s.createInput(c.name, c.metadata)
		out, err := send(ctx, c.s, "CreateMultipartUpload", c.s.opts.StallTimeout, c.s.client.CreateMultipartUpload, in)
		if err == nil && aws.ToString(out.UploadId) == "" {
			err = errors.New("CreateMultipartUpload: the answer has no upload id")
		}
		if err != nil {
			c.fail(err)
			return nil, err
		}
		c.id = *out.UploadId
	}
	return &awss3.CreateMultipartUploadOutput{UploadId: &c.id}, nil
}

// UploadPart sends a part and compares the echo, unless the part is there.
func (c confirming) UploadPart(ctx context.Context, in *awss3.UploadPartInput, _ ...func(*awss3.Options)) (*awss3.UploadPartOutput, error) {
	i := int(aws.ToInt32(in.PartNumber)) - 1
	if i < 0 || i >= len(c.parts) {
		err := fmt.Errorf("part %d of %d was scheduled", i+1, len(c.parts))
		c.fail(err)
		return nil, err
	}
	if c.etags[i] == "" {
		if err := c.sendPart(ctx, i); err != nil {
			c.fail(err)
			return nil, err
		}
	}
	return &awss3.UploadPartOutput{ETag: &c.etags[i]}, nil
}

func (m *multipart) sendPart(ctx context.Context, i int) error {
	release, err := m.slot(m.waiting, i)
	if err != nil {
		return err
	}
	defer release()
	if m.failure() != nil {
		return errStopped
	}
	p := &m.parts[i]
	ctx, w := watch(ctx, m.s.opts.StallTimeout)
	defer w.stop()
	body := newPartBody(m.req.Body, p, w.progress)
	out, err := m.s.client.UploadPart(ctx, &awss3.UploadPartInput{
		Bucket: &m.s.opts.Bucket, Key: &m.name, UploadId: &m.id, PartNumber: aws.Int32(int32(i + 1)), //nolint:gosec // at most 10,000
		Body: body, ContentLength: &p.sum.Len, ChecksumCRC32C: aws.String(checksum.Base64(p.sum.CRC32C)),
		ExpectedBucketOwner: optional(m.s.opts.ExpectedBucketOwner),
	}, unsignedPayload)
	if err != nil {
		err = m.bodyFault(ctx, "UploadPart", body, err)
		var answered *ServiceError
		if !errors.As(err, &answered) {
			m.mu.Lock()
			m.cut = true
			m.mu.Unlock()
		}
		return m.partFailed(i, err)
	}
	m.s.answered.Store(true)
	etag := aws.ToString(out.ETag)
	if etag == "" {
		return m.partFailed(i, errors.New("UploadPart: the answer has no ETag"))
	}
	if err := m.echo(i, aws.ToString(out.ChecksumCRC32C), m.abilities.PartChecksum); err != nil {
		return m.partFailed(i, err)
	}
	m.s.stats.sent.Add(p.sum.Len)
	m.etags[i] = etag
	return nil
}

// CompleteMultipartUpload makes the object visible. Which parts it has we say
// ourselves, 1 to N, with our sums and our ETags.
func (c confirming) CompleteMultipartUpload(ctx context.Context, _ *awss3.CompleteMultipartUploadInput, _ ...func(*awss3.Options)) (*awss3.CompleteMultipartUploadOutput, error) {
	out, err := c.complete(ctx)
	if err != nil {
		c.fail(err)
	}
	return out, err
}

func (m *multipart) complete(ctx context.Context) (*awss3.CompleteMultipartUploadOutput, error) {
	parts := make([]types.CompletedPart, len(m.parts))
	for i := range m.parts {
		if m.etags[i] == "" {
			return nil, m.partFailed(i, errors.New("the part was not sent"))
		}
		parts[i] = types.CompletedPart{
			PartNumber: aws.Int32(int32(i + 1)), ETag: &m.etags[i], //nolint:gosec // at most 10,000
			ChecksumCRC32C: aws.String(checksum.Base64(m.parts[i].sum.CRC32C)),
		}
	}
	if err := m.isOurs(ctx); err != nil {
		return nil, err
	}
	if err := m.confirmByList(ctx); err != nil {
		return nil, err
	}
	in := &awss3.CompleteMultipartUploadInput{
		Bucket: &m.s.opts.Bucket, Key: &m.name, UploadId: &m.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}, MpuObjectSize: &m.req.Size,
		ExpectedBucketOwner: optional(m.s.opts.ExpectedBucketOwner),
	}
	if m.abilities.ConditionalComplete {
		in.IfNoneMatch = aws.String("*")
	}
	m.mu.Lock()
	m.completed = true
	m.mu.Unlock()
	return send(ctx, m.s, "CompleteMultipartUpload", 5*m.s.opts.StallTimeout, m.s.client.CompleteMultipartUpload, in)
}

// AbortMultipartUpload does nothing: at this point manager does not know whether
// the object exists, and neither do we yet. See multipart.end.
func (c confirming) AbortMultipartUpload(context.Context, *awss3.AbortMultipartUploadInput, ...func(*awss3.Options)) (*awss3.AbortMultipartUploadOutput, error) {
	return &awss3.AbortMultipartUploadOutput{}, nil
}
