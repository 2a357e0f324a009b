package main

import (
	"context"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	tmtypes "github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/segtier/segtier/bench/job"
)

// download reads a whole object; these clients parallelise nothing less.
type download func(ctx context.Context, key string, to io.WriterAt) error

func openManager(j job.Job) (download, error) {
	client, err := sdk(j)
	if err != nil {
		return nil, err
	}
	d := manager.NewDownloader(client, func(d *manager.Downloader) {
		d.PartSize, d.Concurrency = j.PartSize, max(j.Concurrency, 1)
	})
	return func(ctx context.Context, key string, to io.WriterAt) error {
		_, err := d.Download(ctx, to, &s3.GetObjectInput{Bucket: aws.String(j.Bucket), Key: aws.String(key)})
		return err
	}, nil
}

func openTransferManager(j job.Job) (download, error) {
	client, err := sdk(j)
	if err != nil {
		return nil, err
	}
	tm := transfermanager.New(client, func(o *transfermanager.Options) {
		o.PartSizeBytes, o.Concurrency = j.PartSize, max(j.Concurrency, 1)
		o.GetObjectType = tmtypes.GetObjectRanges
	})
	return func(ctx context.Context, key string, to io.WriterAt) error {
		_, err := tm.DownloadObject(ctx, &transfermanager.DownloadObjectInput{Bucket: aws.String(j.Bucket), Key: aws.String(key), WriterAt: to})
		return err
	}, nil
}

// fixed is memory that is written to.
type fixed []byte

// WriteAt implements io.WriterAt.
func (f fixed) WriteAt(b []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(f)) || int64(len(b)) > int64(len(f))-off {
		return 0, fmt.Errorf("%d bytes at %d do not fit into %d", len(b), off, len(f))
	}
	return copy(f[off:], b), nil
}

// fillWhole downloads object by object into one buffer, and writes the logs to
// the sink.
func fillWhole(open func(job.Job) (download, error)) job.Work {
	return func(ctx context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
		get, err := open(j)
		if err != nil {
			return nil, err
		}
		size := int64(0)
		for _, o := range j.Objects {
			size = max(size, o.Size)
		}
		buf := make(fixed, size)
		out, err := job.Dial(ctx, j.Sink, j.Label)
		if err != nil {
			return nil, err
		}
		defer out.Close()
		m.Start()
		for _, o := range j.Objects {
			if err := get(ctx, o.Key, buf[:o.Size]); err != nil {
				return nil, err
			}
			if _, err := out.Write(buf[:o.LogSize]); err != nil {
				return nil, err
			}
			m.Count(o.LogSize)
		}
		m.Stop()
		return nil, out.Finish()
	}
}
