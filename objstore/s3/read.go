package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/segtier/segtier/objstore"
)

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	at := objstore.Error{Op: "get", Key: key, Off: off, Len: n}
	ctx, c, err := s.enter(ctx)
	if err != nil {
		return objstore.Info{}, nil, failed(at, err)
	}
	info, content, err := s.get(ctx, key, off, n, opts.IfMatch)
	if err != nil {
		c.leave()
		return objstore.Info{}, nil, failed(at, err)
	}
	c.detach()
	return info, &body{call: c, ctx: ctx, content: content, rest: n, at: at}, nil
}

// get asks for a range and checks that the answer is about exactly that range.
func (s *Store) get(ctx context.Context, key string, off, n int64, ifMatch string) (objstore.Info, io.ReadCloser, error) {
	name, err := s.key(key)
	if err != nil {
		return objstore.Info{}, nil, err
	}
	return s.getName(ctx, name, key, off, n, ifMatch)
}

func (s *Store) getName(ctx context.Context, name, key string, off, n int64, ifMatch string) (objstore.Info, io.ReadCloser, error) {
	if off < 0 || n <= 0 || off+n < off {
		return objstore.Info{}, nil, fmt.Errorf("%w: %d bytes from %d", objstore.ErrRange, n, off)
	}
	in := &awss3.GetObjectInput{
		Bucket: &s.opts.Bucket, Key: &name, ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1)), IfMatch: optional(ifMatch),
	}
	// Not through send: the context must live as long as the body.
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		err = s.fault(ctx, "GetObject", err)
		if errors.Is(err, errPrecondition) {
			err = fmt.Errorf("%w: it is not %s any more: %w", objstore.ErrChanged, ifMatch, err)
		}
		return objstore.Info{}, nil, err
	}
	s.answered.Store(true)
	info, err := checkRange(out, off, n, ifMatch)
	if err != nil {
		_ = out.Body.Close() // of an answer that is thrown away
		var lacks *AbilityError
		if errors.As(err, &lacks) && s.ranged.Load() {
			err = fmt.Errorf("%w: %w", objstore.ErrBadAnswer, lacks.Err) // it has ranged reads, as was seen
		}
		return objstore.Info{}, nil, err
	}
	if !s.ranged.Load() && out.ContentRange != nil {
		s.ranged.Store(true)
	}
	info.Key = key
	return info, out.Body, nil
}

// checkRange returns what an answer says of the object, or why it is not an
// answer to the request for n bytes from off.
func checkRange(out *awss3.GetObjectOutput, off, n int64, ifMatch string) (objstore.Info, error) {
	status, _ := answer(out.ResultMetadata)
	info := objstore.Info{
		Identity: aws.ToString(out.ETag), Modified: aws.ToTime(out.LastModified),
		Now: serverTime(out.ResultMetadata), Token: token(out.Metadata),
	}
	length := int64(-1)
	if out.ContentLength != nil {
		length = *out.ContentLength
	}
	switch {
	case ifMatch != "" && info.Identity != ifMatch:
		return info, fmt.Errorf("%w: it is %s, expected %s", objstore.ErrChanged, info.Identity, ifMatch)
	case info.Identity == "":
		return info, fmt.Errorf("%w: it has no ETag", objstore.ErrBadAnswer)
	case out.ContentEncoding != nil && *out.ContentEncoding != "" && *out.ContentEncoding != "identity":
		return info, fmt.Errorf("%w: it is encoded (%s), so its bytes are not the object's", objstore.ErrBadAnswer, shorten(*out.ContentEncoding, 40))
	}
	if status != 206 {
		// The whole object, as if no range had been asked for. It will do if that
		// is what was wanted.
		info.Size = length
		if status == 200 && off == 0 && length == n {
			return info, nil
		}
		if status == 200 && length >= 0 {
			if err := objstore.CheckRange(off, n, length); err != nil {
				return info, err
			}
		}
		return info, &AbilityError{Ability: "ranged reads", Err: fmt.Errorf("asked for %d bytes from %d it answered %d with %d bytes", n, off, status, length)}
	}
	first, last, total, ok := parseContentRange(aws.ToString(out.ContentRange))
	if !ok {
		return info, fmt.Errorf("%w: its Content-Range %q cannot be read", objstore.ErrBadAnswer, shorten(aws.ToString(out.ContentRange), 80))
	}
	info.Size = total
	if err := objstore.CheckRange(off, n, total); err != nil {
		return info, err
	}
	if first != off || last != off+n-1 || length >= 0 && length != n {
		return info, fmt.Errorf("%w: it is bytes [%d,%d) in %d bytes, asked for were [%d,%d)", objstore.ErrBadAnswer, first, last+1, length, off, off+n)
	}
	return info, nil
}

// parseContentRange reads "bytes first-last/total".
func parseContentRange(text string) (first, last, total int64, ok bool) {
	span, ok := strings.CutPrefix(text, "bytes ")
	if !ok {
		return 0, 0, 0, false
	}
	span, size, ok1 := strings.Cut(span, "/")
	from, to, ok2 := strings.Cut(span, "-")
	first, err1 := parseSize(from)
	last, err2 := parseSize(to)
	total, err3 := parseSize(size)
	ok = ok1 && ok2 && err1 == nil && err2 == nil && err3 == nil && first <= last && last < total
	return first, last, total, ok
}

// parseSize reads a decimal number without a sign, below 2^62 so that sums of two
// do not overflow.
func parseSize(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 62)
	return int64(n), err
}

// body reads the range of a Get.
type body struct {
	call    *call
	ctx     context.Context //nolint:containedctx // of the Get: reading is part of it
	content io.ReadCloser
	rest    int64 // bytes that are to come
	err     error // what Read has ended with
	at      objstore.Error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err == nil && b.ctx.Err() != nil {
		b.fail(ended(b.ctx))
	}
	if b.err != nil {
		return 0, b.err
	}
	if b.rest == 0 {
		b.err = io.EOF
		return 0, b.err
	}
	n, err := b.content.Read(p[:min(int64(len(p)), b.rest)])
	b.rest -= int64(n)
	switch {
	case err == nil, b.rest == 0:
		return n, nil // an error behind the last byte is no news
	case b.ctx.Err() != nil:
		err = ended(b.ctx)
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	b.fail(err)
	return n, b.err
}

func (b *body) fail(err error) {
	e := b.at
	e.Err = err
	b.err = &e
}

// Close implements io.Closer. A transfer that is not over is aborted, with its
// connection.
func (b *body) Close() error {
	if b.call == nil {
		return nil
	}
	b.call.leave()
	b.call = nil
	_ = b.content.Close() // what was not read is not wanted
	b.fail(errors.New("read of a closed body"))
	return nil
}

// Stat implements objstore.Store.
func (s *Store) Stat(ctx context.Context, key string) (objstore.Info, error) {
	at := objstore.Error{Op: "stat", Key: key}
	ctx, c, err := s.enter(ctx)
	if err != nil {
		return objstore.Info{}, failed(at, err)
	}
	defer c.leave()
	name, err := s.anyKey(key)
	if err != nil {
		return objstore.Info{}, failed(at, err)
	}
	h, err := s.head(ctx, name, 0)
	if err != nil {
		return objstore.Info{}, failed(at, s.absent(ctx, err))
	}
	h.info.Key = key
	return h.info, nil
}

// head is what HEAD says of an object.
type head struct {
	info objstore.Info
	crc  string // the object's CRC32C as sent, "" if none
	kind types.ChecksumType
}

func (s *Store) head(ctx context.Context, name string, limit time.Duration) (*head, error) {
	out, err := send(ctx, s, "HeadObject", limit, s.client.HeadObject, &awss3.HeadObjectInput{
		Bucket: &s.opts.Bucket, Key: &name, ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
		ChecksumMode: types.ChecksumModeEnabled,
	})
	if err != nil {
		return nil, err
	}
	h := &head{crc: aws.ToString(out.ChecksumCRC32C), kind: out.ChecksumType}
	h.info = objstore.Info{
		Size: aws.ToInt64(out.ContentLength), Identity: aws.ToString(out.ETag), Modified: aws.ToTime(out.LastModified),
		Now: serverTime(out.ResultMetadata), Token: token(out.Metadata),
	}
	if h.info.Identity == "" || out.ContentLength == nil {
		return nil, errors.New("HeadObject: the answer has no ETag or no length")
	}
	// Only where it is said to be the sum of the whole object: a composite sum
	// may come without its suffix.
	if h.kind == types.ChecksumTypeFullObject {
		h.info.CRC32C, h.info.HasCRC32C = parseCRC(h.crc)
	}
	return h, nil
}

// absent looks, once, whether it is the bucket that does not exist: HEAD cannot
// say.
func (s *Store) absent(ctx context.Context, err error) error {
	if !errors.Is(err, objstore.ErrNotExist) || s.answered.Load() {
		return err
	}
	_, bucket := send(ctx, s, "HeadBucket", s.opts.StallTimeout, s.client.HeadBucket, &awss3.HeadBucketInput{
		Bucket: &s.opts.Bucket, ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
	})
	if errors.Is(bucket, objstore.ErrNotExist) {
		return fmt.Errorf("%w: there is no bucket %s at this endpoint; create it, or check its name", objstore.ErrRefused, s.opts.Bucket)
	}
	// That HeadBucket is denied says nothing about the object.
	return err
}

// optional returns nil for "".
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
