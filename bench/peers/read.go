package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/minio/minio-go/v7"

	"github.com/segtier/segtier/bench/job"
)

// body opens a range of an object.
type body func(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)

func httpBody(j job.Job) (body, error) {
	t, err := transport(j)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: t}
	return func(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Server+"/"+j.Bucket+"/"+key, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Range", rangeOf(off, n))
		// The server reads the client's name from here and nothing else.
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+j.Client+"/20260101/"+region+"/s3/aws4_request, SignedHeaders=host, Signature=0")
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusPartialContent {
			_ = resp.Body.Close()
			return nil, fmt.Errorf("GET %s %s: %s", key, rangeOf(off, n), resp.Status)
		}
		return resp.Body, nil
	}, nil
}

func sdkBody(j job.Job) (body, error) {
	client, err := sdk(j)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
		out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(j.Bucket), Key: aws.String(key), Range: aws.String(rangeOf(off, n))})
		if err != nil {
			return nil, err
		}
		return out.Body, nil
	}, nil
}

func minioBody(j job.Job) (body, error) {
	client, err := minioClient(j, false)
	if err != nil {
		return nil, err
	}
	core := minio.Core{Client: client}
	return func(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
		var opts minio.GetObjectOptions
		if err := opts.SetRange(off, off+n-1); err != nil {
			return nil, err
		}
		b, _, _, err := core.GetObject(ctx, j.Bucket, key, opts)
		return b, err
	}, nil
}

func rangeOf(off, n int64) string { return fmt.Sprintf("bytes=%d-%d", off, off+n-1) }

// full reads into buffers that are used again, and compares sums as the bytes
// come, in steps that stay in the processor's cache.
type full struct {
	open body
	pool sync.Pool // of *[]byte
}

func newFull(open body, err error) (job.Reader, error) { return &full{open: open}, err }

func openHTTP(j job.Job) (job.Reader, error)     { return newFull(httpBody(j)) }
func openReadFull(j job.Job) (job.Reader, error) { return newFull(sdkBody(j)) }
func openMinio(j job.Job) (job.Reader, error)    { return newFull(minioBody(j)) }

func (f *full) Get(ctx context.Context, o *job.Object, off, n int64) ([]byte, func(), error) {
	buf, _ := f.pool.Get().(*[]byte)
	if buf == nil || int64(cap(*buf)) < n {
		buf = new(make([]byte, n))
	}
	b := (*buf)[:n]
	r, err := f.open(ctx, o.Key, off, n)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	if err := job.ReadSummed(r, b, o, off); err != nil {
		return nil, nil, err
	}
	return b, func() { f.pool.Put(buf) }, nil
}

func (f *full) Close() {}

// all is what is written first: io.ReadAll, without sums.
type all struct{ open body }

func openReadAll(j job.Job) (job.Reader, error) {
	open, err := sdkBody(j)
	return all{open}, err
}

func (a all) Get(ctx context.Context, o *job.Object, off, n int64) ([]byte, func(), error) {
	r, err := a.open(ctx, o.Key, off, n)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err == nil && int64(len(b)) != n {
		err = io.ErrUnexpectedEOF
	}
	return b, func() {}, err
}

func (a all) Close() {}
