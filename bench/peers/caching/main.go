// Command caching does the lab's jobs with Thanos's caching bucket over its S3
// client: subranges of 1 MiB in memory, at most as many GETs for a range as it has
// subranges. It is a runner as bench/peers is.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/thanos-io/objstore/exthttp"
	"github.com/thanos-io/objstore/providers/s3"
	"github.com/thanos-io/thanos/pkg/cache"
	thanosmodel "github.com/thanos-io/thanos/pkg/model"
	storecache "github.com/thanos-io/thanos/pkg/store/cache"

	"github.com/segtier/segtier/bench/job"
)

// subrange is what the bucket caches; its default of 16,000 bytes is for blocks of
// metrics.
const subrange = 1 << 20

func main() {
	list := flag.Bool("list", false, "print the works of this runner, subject/work, and exit")
	flag.Parse()
	works := map[string]job.Work{"caching-bucket/fill": job.FillFrom(open)}
	if *list {
		for _, name := range job.Names(works) {
			fmt.Println(name)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := job.Serve(ctx, os.Stdin, os.Stdout, works); err != nil {
		fmt.Fprintln(os.Stderr, "caching:", err)
		os.Exit(1)
	}
}

// bucket is a job.Reader.
type bucket struct{ b *storecache.CachingBucket }

func open(j job.Job) (job.Reader, error) {
	u, err := url.Parse(j.Server)
	if err != nil {
		return nil, err
	}
	s, err := s3.NewBucketWithConfig(log.NewNopLogger(), s3.Config{
		Bucket: j.Bucket, Endpoint: u.Host, Region: "us-east-1", AccessKey: j.Client, SecretKey: "secret",
		Insecure: u.Scheme == "http", BucketLookupType: s3.PathLookup, MaxRetries: 3,
		HTTPConfig: exthttp.HTTPConfig{
			MaxIdleConns: 512, MaxIdleConnsPerHost: 512, IdleConnTimeout: model.Duration(time.Minute),
			TLSConfig: exthttp.TLSConfig{CAFile: j.CAFile},
		},
	}, "lab", nil)
	if err != nil {
		return nil, err
	}
	memory := j.Memory
	if memory == 0 {
		memory = 256 << 20
	}
	c, err := cache.NewInMemoryCacheWithConfig("lab", log.NewNopLogger(), prometheus.NewRegistry(), cache.InMemoryCacheConfig{
		MaxSize: thanosmodel.Bytes(memory), MaxItemSize: 2 * subrange,
	})
	if err != nil {
		return nil, err
	}
	cfg := cache.NewCachingBucketConfig()
	cfg.CacheGetRange("logs", c, func(string) bool { return true }, subrange, time.Hour, time.Hour, int(max(j.PartSize/subrange, 1)))
	b, err := storecache.NewCachingBucket(s, cfg, log.NewNopLogger(), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	return bucket{b}, nil
}

// Get implements job.Reader.
func (b bucket) Get(ctx context.Context, o *job.Object, off, n int64) ([]byte, func(), error) {
	r, err := b.b.GetRange(ctx, o.Key, off, n)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	buf := make([]byte, n)
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, nil, err
	}
	return buf, func() {}, nil
}

// Close implements job.Reader.
func (b bucket) Close() { _ = b.b.Close() }
