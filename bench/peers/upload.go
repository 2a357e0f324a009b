package main

import (
	"context"
	"io"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	tmtypes "github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"

	"github.com/segtier/segtier/bench/job"
)

// uploader sends a file.
type uploader func(ctx context.Context, f *os.File, key string) error

// upload sends the file of the job as one object. Its checksums are the
// client's to make.
func upload(open func(job.Job) (uploader, error)) job.Work {
	return func(ctx context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
		send, err := open(j)
		if err != nil {
			return nil, err
		}
		f, err := os.Open(j.File)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if err := warmUpload(ctx, send, j); err != nil {
			return nil, err
		}
		m.Start()
		if err := send(ctx, f, j.Key); err != nil {
			return nil, err
		}
		m.Stop()
		m.Count(info.Size())
		m.Wrote(j.Key)
		return nil, nil
	}
}

// warmUpload sends a little, so that a connection is there.
func warmUpload(ctx context.Context, send uploader, j job.Job) error {
	f, err := os.CreateTemp("", "warm-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString("warm"); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return send(ctx, f, j.Key+"-warm")
}

func uploadManager(j job.Job) (uploader, error) {
	client, err := sdk(j)
	if err != nil {
		return nil, err
	}
	u := manager.NewUploader(client, func(u *manager.Uploader) {
		u.PartSize, u.Concurrency = j.PartSize, max(j.Concurrency, 1)
	})
	return func(ctx context.Context, f *os.File, key string) error {
		_, err := u.Upload(ctx, &s3.PutObjectInput{
			Bucket: aws.String(j.Bucket), Key: aws.String(key), Body: f, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		})
		return err
	}, nil
}

func uploadTransferManager(j job.Job) (uploader, error) {
	client, err := sdk(j)
	if err != nil {
		return nil, err
	}
	tm := transfermanager.New(client, func(o *transfermanager.Options) {
		o.PartSizeBytes, o.Concurrency = j.PartSize, max(j.Concurrency, 1)
		o.ChecksumAlgorithm = tmtypes.ChecksumAlgorithmCrc32c
	})
	return func(ctx context.Context, f *os.File, key string) error {
		_, err := tm.UploadObject(ctx, &transfermanager.UploadObjectInput{
			Bucket: aws.String(j.Bucket), Key: aws.String(key), Body: f, ChecksumAlgorithm: tmtypes.ChecksumAlgorithmCrc32c,
		})
		return err
	}, nil
}

// uploadMinio lets each part carry a checksum, as the others do. That needs
// trailing headers, without which minio-go sends none of an io.ReaderAt. An
// unsigned payload costs least.
func uploadMinio(j job.Job) (uploader, error) {
	client, err := minioClient(j, true)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, f *os.File, key string) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		_, err = client.PutObject(ctx, j.Bucket, key, f, info.Size(), minio.PutObjectOptions{
			PartSize: uint64(j.PartSize), NumThreads: uint(max(j.Concurrency, 1)),
			Checksum: minio.ChecksumCRC32C, DisableContentSha256: true,
		})
		return err
	}, nil
}
