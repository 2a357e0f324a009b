package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// Abilities are what a service was seen to do before the first upload. What it
// lacks is made up for, and costs what is said here.
type Abilities struct {
	// PutChecksum and PartChecksum: bytes whose CRC32C is not the one sent with
	// them are refused, in PutObject and UploadPart. Otherwise an echo proves
	// nothing, and every object is read back.
	PutChecksum, PartChecksum bool
	// PutEcho and PartEcho: the answer names the sum. Otherwise it is asked for.
	PutEcho, PartEcho bool
	// ConditionalPut and ConditionalComplete: If-None-Match is honoured.
	// Otherwise an object is looked for before and after, uploads of one key take
	// turns within a Store, and only the uniqueness of keys guards against others.
	ConditionalPut, ConditionalComplete bool
	// Token: user metadata comes back. Otherwise a write of ours whose answer
	// was lost is recognised by its bytes.
	Token bool
}

// String lists what is there and what is not: "put-checksum part-checksum
// !put-echo …".
func (a Abilities) String() string {
	var b strings.Builder
	for _, ability := range []struct {
		name string
		has  bool
	}{
		{"put-checksum", a.PutChecksum},
		{"part-checksum", a.PartChecksum},
		{"put-echo", a.PutEcho},
		{"part-echo", a.PartEcho},
		{"conditional-put", a.ConditionalPut},
		{"conditional-complete", a.ConditionalComplete},
		{"token", a.Token},
	} {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if !ability.has {
			b.WriteByte('!')
		}
		b.WriteString(ability.name)
	}
	return b.String()
}

// prober finds out the abilities once, before the first upload.
type prober struct {
	turn chan struct{} // has room for the one who probes

	mu    sync.Mutex
	known bool      // guarded by mu
	found Abilities // guarded by mu
	err   error     // an *AbilityError; guarded by mu
}

func (p *prober) result() (Abilities, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found, p.known, p.err
}

// Abilities returns what the service can do; ok is false before the first upload
// has found out.
func (s *Store) Abilities() (a Abilities, ok bool) {
	a, known, err := s.probe.result()
	return a, known && err == nil
}

// abilities returns the abilities, and finds them out first if need be. A
// failure that may pass is not kept: the next upload probes again.
func (s *Store) abilities(ctx context.Context) (Abilities, error) {
	if a, known, err := s.probe.result(); known {
		return a, err
	}
	select {
	case s.probe.turn <- struct{}{}:
		defer func() { <-s.probe.turn }()
	case <-ctx.Done():
		return Abilities{}, ended(ctx)
	}
	if a, known, err := s.probe.result(); known {
		return a, err
	}
	a, err := s.find(ctx)
	var lacks *AbilityError
	if err != nil && !errors.As(err, &lacks) {
		return a, fmt.Errorf("probing what the service can do: %w", err)
	}
	s.probe.mu.Lock()
	s.probe.known, s.probe.found, s.probe.err = true, a, err
	s.probe.mu.Unlock()
	if err == nil {
		s.opts.Logger.DebugContext(ctx, "probed", "store", s.String(), "abilities", a.String())
		if told := s.opts.Events.Probed; told != nil {
			told(a)
		}
	}
	return a, err
}

const (
	probeContent = "segtier wrote this to see what the service verifies; it may be deleted\n"
	// cleanupTimeout bounds what is cleaned up after a caller has left: a store
	// that hangs must not keep it, nor Close.
	cleanupTimeout = 2 * time.Second
)

// probing is one probe: two objects and a multipart upload, of some bytes each.
type probing struct {
	s         *Store
	a         Abilities
	wrong     string // name of an object that should not come to be
	right     string
	sum       checksum.Sum
	made      []string // names to delete
	uploadID  string   // to abort, "" if there is none
	condition *string  // If-None-Match
}

// find asks the service in ten small requests. It deletes what it made.
func (s *Store) find(ctx context.Context) (Abilities, error) {
	name := s.prefix + objstore.ProbePrefix + strings.ToLower(rand.Text())
	p := &probing{
		s: s, wrong: name + "/wrong", right: name + "/right", condition: aws.String("*"),
		sum: checksum.Sum{Len: int64(len(probeContent)), CRC32C: checksum.CRC32C([]byte(probeContent))},
	}
	defer p.cleanUp(ctx)
	for _, step := range []func(context.Context) error{p.putWrong, p.putRight, p.putAgain, p.read, p.partWrong, p.complete} {
		if err := step(ctx); err != nil {
			return p.a, err
		}
	}
	return p.a, nil
}

// put writes a probe's object with the given sum.
func (p *probing) put(ctx context.Context, name string, crc uint32, condition *string) (*awss3.PutObjectOutput, error) {
	meta, err := metadata("probe")
	if err != nil {
		return nil, err
	}
	in := p.s.putInput(name, meta)
	in.Body, in.ContentLength = strings.NewReader(probeContent), aws.Int64(p.sum.Len)
	in.ChecksumCRC32C, in.IfNoneMatch = aws.String(checksum.Base64(crc)), condition
	return send(ctx, p.s, "PutObject", p.s.opts.StallTimeout, p.s.client.PutObject, in, unsignedPayload)
}

// refused reports whether err is how a service refuses a wrong sum. Not all say
// BadDigest.
func refused(err error) bool {
	var e *ServiceError
	return errors.Is(err, objstore.ErrCorrupt) ||
		errors.As(err, &e) && e.Status == 400 && (e.Code == "InvalidRequest" || e.Code == "InvalidArgument" || e.Code == "InvalidDigest" || e.Code == "BadRequest")
}

func (p *probing) putWrong(ctx context.Context) error {
	_, err := p.put(ctx, p.wrong, p.sum.CRC32C^1, nil)
	switch {
	case err == nil:
		p.made = append(p.made, p.wrong)
	case errors.Is(err, errNotImplemented):
		return &AbilityError{Ability: "checksum headers", Err: err}
	case refused(err):
		p.a.PutChecksum = true
	default:
		return err
	}
	return nil
}

func (p *probing) putRight(ctx context.Context) error {
	out, err := p.put(ctx, p.right, p.sum.CRC32C, p.condition)
	if errors.Is(err, errNotImplemented) {
		p.condition = nil
		out, err = p.put(ctx, p.right, p.sum.CRC32C, nil)
	}
	switch {
	case err == nil:
	case refused(err):
		return &AbilityError{Ability: "checksum headers", Err: fmt.Errorf("a right CRC32C was refused: %w", err)}
	default:
		p.made = append(p.made, p.right) // perhaps
		return err
	}
	p.made = append(p.made, p.right)
	p.a.PutEcho = unquote(aws.ToString(out.ChecksumCRC32C)) == checksum.Base64(p.sum.CRC32C)
	return nil
}

func (p *probing) putAgain(ctx context.Context) error {
	if p.condition == nil {
		return nil
	}
	_, err := p.put(ctx, p.right, p.sum.CRC32C, p.condition)
	p.a.ConditionalPut = errors.Is(err, errPrecondition)
	if p.a.ConditionalPut {
		return nil
	}
	return err
}

// read reads a range of the object back.
func (p *probing) read(ctx context.Context) error {
	ctx, w := watch(ctx, p.s.opts.StallTimeout)
	defer w.stop()
	info, content, err := p.s.getName(ctx, p.right, p.right, 1, p.sum.Len-2, "")
	if errors.Is(err, objstore.ErrNotExist) {
		return &AbilityError{Ability: "read after write", Err: fmt.Errorf("an object just written is not there: %w", err)}
	}
	if errors.Is(err, objstore.ErrRange) {
		return &AbilityError{Ability: "stored bytes", Err: fmt.Errorf("an object just written has another size: %w", err)}
	}
	if err != nil {
		return err
	}
	defer content.Close()
	got, err := io.ReadAll(io.LimitReader(content, p.sum.Len))
	switch {
	case ctx.Err() != nil:
		return ended(ctx)
	case err != nil:
		return err
	case !bytes.Equal(got, []byte(probeContent[1:p.sum.Len-1])) || info.Size != p.sum.Len:
		return &AbilityError{Ability: "stored bytes", Err: fmt.Errorf("an object of %d bytes just written is read back as others, or as one of %d bytes", p.sum.Len, info.Size)}
	}
	p.a.Token = info.Token == "probe"
	return nil
}

func (p *probing) partWrong(ctx context.Context) error {
	in := p.s.createInput(p.right, nil)
	out, err := send(ctx, p.s, "CreateMultipartUpload", p.s.opts.StallTimeout, p.s.client.CreateMultipartUpload, in)
	if err != nil {
		return err
	}
	if p.uploadID = aws.ToString(out.UploadId); p.uploadID == "" {
		return errors.New("CreateMultipartUpload: the answer has no upload id")
	}
	_, err = p.part(ctx, p.sum.CRC32C^1)
	p.a.PartChecksum = refused(err)
	if p.a.PartChecksum {
		return nil
	}
	return err
}

func (p *probing) part(ctx context.Context, crc uint32) (*awss3.UploadPartOutput, error) {
	return send(ctx, p.s, "UploadPart", p.s.opts.StallTimeout, p.s.client.UploadPart, &awss3.UploadPartInput{
		Bucket: &p.s.opts.Bucket, Key: &p.right, UploadId: &p.uploadID, PartNumber: aws.Int32(1),
		Body: strings.NewReader(probeContent), ContentLength: aws.Int64(p.sum.Len), ChecksumCRC32C: aws.String(checksum.Base64(crc)),
		ExpectedBucketOwner: optional(p.s.opts.ExpectedBucketOwner),
	}, unsignedPayload)
}

// complete sends a part as it should be, and completes an upload whose key is
// taken.
func (p *probing) complete(ctx context.Context) error {
	out, err := p.part(ctx, p.sum.CRC32C)
	if refused(err) {
		return &AbilityError{Ability: "checksum headers", Err: fmt.Errorf("a right CRC32C was refused: %w", err)}
	}
	if err != nil {
		return err
	}
	crc := checksum.Base64(p.sum.CRC32C)
	p.a.PartEcho = unquote(aws.ToString(out.ChecksumCRC32C)) == crc
	if p.condition == nil {
		return nil
	}
	_, err = send(ctx, p.s, "CompleteMultipartUpload", 5*p.s.opts.StallTimeout, p.s.client.CompleteMultipartUpload, &awss3.CompleteMultipartUploadInput{
		Bucket: &p.s.opts.Bucket, Key: &p.right, UploadId: &p.uploadID, IfNoneMatch: p.condition, MpuObjectSize: &p.sum.Len,
		MultipartUpload:     &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: out.ETag, PartNumber: aws.Int32(1), ChecksumCRC32C: &crc}}},
		ExpectedBucketOwner: optional(p.s.opts.ExpectedBucketOwner),
	})
	switch {
	case err == nil:
		p.uploadID = "" // it exists no more
	case errors.Is(err, errPrecondition):
		p.a.ConditionalComplete = true
	case errors.Is(err, errNotImplemented):
	default:
		return err
	}
	return nil
}

// cleanUp deletes what the probe made, even if the caller has left.
func (p *probing) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var errs []error
	if p.uploadID != "" {
		errs = append(errs, p.s.abort(ctx, p.right, p.uploadID))
	}
	for _, name := range p.made {
		errs = append(errs, p.s.deleteObject(ctx, name))
	}
	if err := errors.Join(errs...); err != nil {
		p.s.opts.Logger.WarnContext(ctx, "a probe's object could not be deleted; it does no harm", "store", p.s.String(), "name", p.right, "err", err)
	}
}
