package s3

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// upload is one Upload in progress.
type upload struct {
	s         *Store
	req       *objstore.UploadRequest
	name      string // in the bucket
	metadata  map[string]string
	abilities Abilities
	parts     []sentPart
	whole     checksum.Sum
	proof     []proof // by part of parts; each written by one goroutine at a time
}

// Upload implements objstore.Store. See the package comment for its steps.
func (s *Store) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	ev, err := s.upload(ctx, &req)
	if err != nil {
		return objstore.Evidence{}, failed(objstore.Error{Op: "upload", Key: req.Key}, err)
	}
	return ev, nil
}

func (s *Store) upload(ctx context.Context, req *objstore.UploadRequest) (ev objstore.Evidence, err error) {
	ctx, c, err := s.enter(ctx)
	if err != nil {
		return ev, err
	}
	defer c.leave()
	if err := req.Validate(); err != nil {
		return ev, err
	}
	if s.opts.ReadOnly {
		return ev, s.readOnly()
	}
	u := &upload{s: s, req: req, whole: req.Sum()}
	if u.name, err = s.key(req.Key); err != nil {
		return ev, err
	}
	if u.metadata, err = metadata(req.Token); err != nil {
		return ev, err
	}
	var partSize int64
	if partSize, u.parts, err = planParts(req); err != nil {
		return ev, err
	}
	u.proof = make([]proof, len(u.parts))
	unlock, err := s.keys.lock(ctx, u.name)
	if err != nil {
		return ev, err
	}
	defer unlock()
	if u.abilities, err = s.abilities(ctx); err != nil {
		return ev, err
	}
	// Before a byte is sent: it may all be there, and what is denied or missing
	// shows at a request without a body.
	h, err := s.head(ctx, u.name, s.opts.StallTimeout)
	switch {
	case err == nil:
		return u.conclude(ctx, h, found)
	case !errors.Is(err, objstore.ErrNotExist):
		return ev, err
	case len(u.parts) == 1:
		return u.single(ctx)
	}
	m := u.inParts(partSize)
	ev, err = m.end(ctx, m.run(ctx))
	if !m.spoiled {
		return ev, err
	}
	s.opts.Logger.DebugContext(ctx, "what an earlier try left cannot be completed: beginning anew", "store", s.String(), "key", req.Key, "upload", m.id, "err", err)
	u.proof = make([]proof, len(u.parts))
	anew := u.inParts(partSize)
	anew.anew, anew.others = true, m.others
	return anew.end(ctx, anew.run(ctx))
}

func (u *upload) inParts(partSize int64) *multipart {
	return &multipart{upload: u, partSize: partSize, etags: make([]string, len(u.parts))}
}

// putInput is what every object written by PutObject is written with.
func (s *Store) putInput(name string, metadata map[string]string) *awss3.PutObjectInput {
	return &awss3.PutObjectInput{
		Bucket: &s.opts.Bucket, Key: &name, Metadata: metadata, Tagging: tagging(s.opts.Tags),
		StorageClass: types.StorageClass(s.opts.StorageClass), ServerSideEncryption: types.ServerSideEncryption(s.opts.SSE),
		SSEKMSKeyId: optional(s.opts.KMSKeyID), ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
		ContentType: aws.String("application/octet-stream"),
	}
}

// createInput is the same for an object made of parts. For CRC32C its type is
// COMPOSITE, which keeps the parts' sums readable; some services do not know the
// header that says so.
func (s *Store) createInput(name string, metadata map[string]string) *awss3.CreateMultipartUploadInput {
	return &awss3.CreateMultipartUploadInput{
		Bucket: &s.opts.Bucket, Key: &name, Metadata: metadata, Tagging: tagging(s.opts.Tags),
		StorageClass: types.StorageClass(s.opts.StorageClass), ServerSideEncryption: types.ServerSideEncryption(s.opts.SSE),
		SSEKMSKeyId: optional(s.opts.KMSKeyID), ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
		ContentType: aws.String("application/octet-stream"), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	}
}

// single makes the object with one request.
func (u *upload) single(ctx context.Context) (objstore.Evidence, error) {
	err := u.put(ctx)
	if err != nil {
		return u.unclear(ctx, err)
	}
	h, err := u.s.head(ctx, u.name, u.s.opts.StallTimeout)
	if err != nil {
		return objstore.Evidence{}, fmt.Errorf("looking at what was written: %w", plain(err))
	}
	return u.conclude(ctx, h, written)
}

func (u *upload) put(ctx context.Context) error {
	release, err := u.slot(ctx, 0)
	if err != nil {
		return err
	}
	defer release()
	p := &u.parts[0]
	ctx, w := watch(ctx, u.s.opts.StallTimeout)
	defer w.stop()
	body := newPartBody(u.req.Body, p, w.progress)
	in := u.s.putInput(u.name, u.metadata)
	in.Body, in.ContentLength, in.ChecksumCRC32C = body, &p.sum.Len, aws.String(checksum.Base64(p.sum.CRC32C))
	if u.abilities.ConditionalPut {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := u.s.client.PutObject(ctx, in, unsignedPayload)
	if err != nil {
		return u.partFailed(0, u.bodyFault(ctx, "PutObject", body, err))
	}
	u.s.answered.Store(true)
	u.s.stats.sent.Add(p.sum.Len)
	// The object is there already. What it holds, if the echo is wrong, is read.
	_ = u.echo(0, aws.ToString(out.ChecksumCRC32C), u.abilities.PutChecksum)
	return nil
}

// slot waits for the slot of a request that carries part i.
func (u *upload) slot(ctx context.Context, i int) (func(), error) {
	if u.req.Slots == nil {
		return func() {}, nil
	}
	release, err := u.req.Slots(ctx, u.parts[i].sum.Len)
	if err == nil {
		return release, nil
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	return nil, fmt.Errorf("no slot: %w", err)
}

// partFailed names the part in its error. Parts count from 0, as those of the
// request do.
func (u *upload) partFailed(i int, err error) error {
	p := &u.parts[i]
	return failed(objstore.Error{Op: "upload", Key: u.req.Key, Off: p.off, Len: p.sum.Len},
		fmt.Errorf("part %d of %d: %w", i, len(u.parts), err))
}

// errBody: the bytes to send could not be read.
var errBody = errors.New("reading the body")

// bodyFault is the error of a request with a body: what the body's reader said,
// if it failed, since the transport only sees that bytes are missing.
func (u *upload) bodyFault(ctx context.Context, operation string, body *partBody, err error) error {
	if cause := body.failed(); cause != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", errBody, cause)
	}
	return u.s.fault(ctx, operation, err)
}

// partBody is the body of one request: a part, read in place. Nothing reads it
// after the request has returned: the SDK sees to that.
type partBody struct {
	r        io.ReaderAt
	off, n   int64
	progress func()

	pos int64
	err error
}

func newPartBody(r io.ReaderAt, p *sentPart, progress func()) *partBody {
	return &partBody{r: r, off: p.off, n: p.sum.Len, progress: progress}
}

// Read implements io.Reader. A body that is shorter than its part is an error,
// never an end.
func (b *partBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.pos == b.n {
		return 0, io.EOF
	}
	b.progress()
	p = p[:min(int64(len(p)), b.n-b.pos)]
	n, err := b.r.ReadAt(p, b.off+b.pos)
	b.pos += int64(n)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	b.err = err
	return n, err
}

// Seek implements io.Seeker, for the SDK to learn the length.
func (b *partBody) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.pos
	case io.SeekEnd:
		offset += b.n
	}
	if offset < 0 || offset > b.n {
		return 0, errors.New("seek outside the part")
	}
	b.pos = offset
	return offset, nil
}

// failed returns the error that Read has ended with.
func (b *partBody) failed() error { return b.err }
