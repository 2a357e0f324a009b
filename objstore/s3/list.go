package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/segtier/segtier/objstore"
)

const (
	// deleteBatch is S3's limit for one DeleteObjects.
	deleteBatch = 1000
	// emptyPages is how many pages without a new entry a listing may have in a
	// row: some services send a few, none sends many.
	emptyPages = 100
)

// errPaging: a listing that does not advance would never end.
var errPaging = errors.New("the service's listing does not advance")

// List implements objstore.Store. What lies below the prefix and has no name
// that an object here can have is not shown.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		at := objstore.Error{Op: "list", Key: prefix}
		ctx, c, err := s.enter(ctx)
		if err != nil {
			yield(objstore.Info{}, failed(at, err))
			return
		}
		defer c.leave()
		if _, err := s.list(ctx, prefix, after, yield); err != nil {
			yield(objstore.Info{}, failed(at, err))
		}
	}
}

// list yields what is there, until yield has enough.
func (s *Store) list(ctx context.Context, prefix, after string, yield func(objstore.Info, error) bool) (more bool, err error) {
	in := &awss3.ListObjectsV2Input{
		Bucket: &s.opts.Bucket, Prefix: optional(s.prefix + prefix), ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
	}
	if after != "" {
		in.StartAfter = aws.String(s.prefix + after)
	}
	last := s.prefix + after
	for empty := 0; ; {
		out, err := send(ctx, s, "ListObjectsV2", s.opts.StallTimeout, s.client.ListObjectsV2, in)
		if err != nil {
			return false, err
		}
		now, before := serverTime(out.ResultMetadata), last
		for _, o := range out.Contents {
			name := aws.ToString(o.Key)
			key, ours := strings.CutPrefix(name, s.prefix)
			if !ours || !strings.HasPrefix(key, prefix) || key <= after {
				continue // not what was asked for
			}
			if name <= last && last != s.prefix+after {
				return false, fmt.Errorf("%w: %s comes after %s", errPaging, shorten(name, 200), last)
			}
			last = name
			if !s.listed(key, prefix) {
				continue
			}
			if ctx.Err() != nil {
				return false, ended(ctx)
			}
			info := objstore.Info{Key: key, Size: aws.ToInt64(o.Size), Identity: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified), Now: now}
			if !yield(info, nil) {
				return false, nil
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return true, nil
		}
		if empty++; last != before {
			empty = 0
		}
		next := aws.ToString(out.NextContinuationToken)
		if next == "" || next == aws.ToString(in.ContinuationToken) || empty > emptyPages {
			return false, fmt.Errorf("%w: behind %s", errPaging, last)
		}
		in.ContinuationToken = &next
	}
}

// Delete implements objstore.Store. In a bucket with versions the object's
// versions stay, behind a delete marker.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	at := objstore.Error{Op: "delete"}
	if len(keys) > 0 {
		at.Key = keys[0]
	}
	ctx, c, err := s.enter(ctx)
	if err != nil {
		return failed(at, err)
	}
	defer c.leave()
	names := make([]string, len(keys))
	for i, key := range keys {
		at.Key = key
		if names[i], err = s.anyKey(key); err != nil {
			return failed(at, err)
		}
	}
	if s.opts.ReadOnly && len(keys) > 0 {
		return failed(at, s.readOnly())
	}
	for len(names) > 0 {
		n := min(len(names), deleteBatch)
		name, err := s.deleteBatch(ctx, names[:n])
		if err != nil {
			at.Key = strings.TrimPrefix(name, s.prefix)
			return failed(at, err)
		}
		names = names[n:]
	}
	return nil
}

func (s *Store) readOnly() error {
	return fmt.Errorf("%w: %s was opened so", objstore.ErrReadOnly, s)
}

// deleteBatch deletes names, or says which could not be deleted.
func (s *Store) deleteBatch(ctx context.Context, names []string) (string, error) {
	if len(names) > 1 {
		name, err := s.deleteObjects(ctx, names)
		if !errors.Is(err, errNotImplemented) {
			return name, err
		}
	}
	for _, name := range names {
		if err := s.deleteObject(ctx, name); err != nil {
			return name, err
		}
	}
	return "", nil
}

func (s *Store) deleteObject(ctx context.Context, name string) error {
	_, err := send(ctx, s, "DeleteObject", s.opts.StallTimeout, s.client.DeleteObject, &awss3.DeleteObjectInput{
		Bucket: &s.opts.Bucket, Key: &name, ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
	})
	if errors.Is(err, objstore.ErrNotExist) {
		return nil
	}
	return err
}

func (s *Store) deleteObjects(ctx context.Context, names []string) (string, error) {
	ids := make([]types.ObjectIdentifier, len(names))
	for i := range names {
		ids[i].Key = &names[i]
	}
	out, err := send(ctx, s, "DeleteObjects", s.opts.StallTimeout, s.client.DeleteObjects, &awss3.DeleteObjectsInput{
		Bucket: &s.opts.Bucket, ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
		Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		// S3 wants a sum here; which one we say, since not every service knows
		// the SDK's default.
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	})
	if err != nil {
		return names[0], err
	}
	for _, e := range out.Errors {
		fault := &ServiceError{Operation: "DeleteObjects", Status: 200, Code: shorten(aws.ToString(e.Code), 60), Message: shorten(aws.ToString(e.Message), 300)}
		if fault.Code == "NoSuchKey" {
			continue
		}
		if !s.classifyCode(fault, nil) && fault.Code == "AccessDenied" {
			fault.Err, fault.Hint = objstore.ErrRefused, "the credentials need "+iamAction("DeleteObjects")
		}
		return aws.ToString(e.Key), fault
	}
	return "", nil
}

// Uploads implements objstore.UploadLister.
func (s *Store) Uploads(ctx context.Context, prefix string) iter.Seq2[objstore.Pending, error] {
	return func(yield func(objstore.Pending, error) bool) {
		at := objstore.Error{Op: "uploads", Key: prefix}
		ctx, c, err := s.enter(ctx)
		if err != nil {
			yield(objstore.Pending{}, failed(at, err))
			return
		}
		defer c.leave()
		err = s.uploads(ctx, s.prefix+prefix, func(u types.MultipartUpload) bool {
			key := strings.TrimPrefix(aws.ToString(u.Key), s.prefix)
			if !s.listed(key, prefix) {
				return true
			}
			return yield(objstore.Pending{Key: key, ID: aws.ToString(u.UploadId), Started: aws.ToTime(u.Initiated)}, nil)
		})
		if err != nil {
			yield(objstore.Pending{}, failed(at, err))
		}
	}
}

// uploads shows the unfinished uploads whose names begin with prefix, until show
// has enough.
func (s *Store) uploads(ctx context.Context, prefix string, show func(types.MultipartUpload) bool) error {
	in := &awss3.ListMultipartUploadsInput{
		Bucket: &s.opts.Bucket, Prefix: optional(prefix), ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
	}
	type id struct{ key, upload string }
	seen := make(map[id]bool) // of the last key: S3 orders uploads of one key by time
	lastKey := ""
	for empty := 0; ; {
		out, err := send(ctx, s, "ListMultipartUploads", s.opts.StallTimeout, s.client.ListMultipartUploads, in)
		if err != nil {
			return err
		}
		fresh := 0
		for _, u := range out.Uploads {
			key := aws.ToString(u.Key)
			if !strings.HasPrefix(key, prefix) || key < lastKey || seen[id{key, aws.ToString(u.UploadId)}] {
				continue // not asked for, or shown before
			}
			if key > lastKey {
				clear(seen)
			}
			lastKey = key
			seen[id{key, aws.ToString(u.UploadId)}] = true
			fresh++
			if ctx.Err() != nil {
				return ended(ctx)
			}
			if !show(u) {
				return nil
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return nil
		}
		if empty++; fresh > 0 {
			empty = 0
		}
		key, upload := aws.ToString(out.NextKeyMarker), aws.ToString(out.NextUploadIdMarker)
		if key == "" || key < aws.ToString(in.KeyMarker) || empty > emptyPages ||
			key == aws.ToString(in.KeyMarker) && upload == aws.ToString(in.UploadIdMarker) {
			return fmt.Errorf("%w: unfinished uploads behind %s", errPaging, shorten(lastKey, 200))
		}
		in.KeyMarker, in.UploadIdMarker = &key, optional(upload)
	}
}

// Abort implements objstore.UploadLister.
func (s *Store) Abort(ctx context.Context, p objstore.Pending) error {
	at := objstore.Error{Op: "abort", Key: p.Key}
	ctx, c, err := s.enter(ctx)
	if err != nil {
		return failed(at, err)
	}
	defer c.leave()
	name, err := s.anyKey(p.Key)
	if err == nil && s.opts.ReadOnly {
		err = s.readOnly()
	}
	if err == nil {
		err = s.abort(ctx, name, p.ID)
	}
	if err != nil {
		return failed(at, err)
	}
	return nil
}

// abort discards an unfinished upload; absent is success.
func (s *Store) abort(ctx context.Context, name, id string) error {
	_, err := send(ctx, s, "AbortMultipartUpload", s.opts.StallTimeout, s.client.AbortMultipartUpload, &awss3.AbortMultipartUploadInput{
		Bucket: &s.opts.Bucket, Key: &name, UploadId: &id, ExpectedBucketOwner: optional(s.opts.ExpectedBucketOwner),
	})
	if errors.Is(err, errNoUpload) || errors.Is(err, objstore.ErrNotExist) {
		return nil
	}
	return err
}
