package subject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/s3"
)

// rig is the read path of a host, over the generated tier that the job names.
type rig struct {
	tier   *weather.Tier
	store  objstore.Store
	ep     *endpoint.Endpoint
	cache  *cache.Cache
	reader *fetch.Reader
	hint   fetch.Hint // of every fetch
}

// openTier makes the generated tier of a job.
func openTier(j job.Job) (*weather.Tier, error) {
	var spec weather.Spec
	if err := json.Unmarshal(j.World, &spec); err != nil {
		return nil, fmt.Errorf("world of the job: %w", err)
	}
	return spec.Tier()
}

// openStore opens the store of a job.
func openStore(ctx context.Context, j job.Job, prefix string) (objstore.Store, error) {
	return s3.Open(ctx, s3.Options{
		Bucket: j.Bucket, Prefix: prefix, Region: "us-east-1", Endpoint: j.Server, PathStyle: true,
		AccessKeyID: j.Client, SecretAccessKey: "secret", RootCAFile: j.CAFile, Concurrency: j.Concurrency,
		StallTimeout: optionsOf(j).stall,
	})
}

// openRig opens everything. Its reader knows the segments of the whole tier.
func openRig(ctx context.Context, j job.Job) (*rig, error) {
	tier, err := openTier(j)
	if err != nil {
		return nil, err
	}
	meta, err := tier.Metadata()
	if err != nil {
		return nil, err
	}
	store, err := openStore(ctx, j, "")
	if err != nil {
		return nil, err
	}
	return newRig(j, tier, meta, store)
}

func newRig(j job.Job, tier *weather.Tier, meta metadata.Store, store objstore.Store) (*rig, error) {
	r := &rig{tier: tier, store: store, hint: fetch.Hint(j.Param["hint"])}
	o := optionsOf(j)
	var err error
	if r.ep, err = endpoint.New(store, o.endpoint); err != nil {
		return nil, errors.Join(err, r.close())
	}
	if r.cache, err = cache.New(cache.Options{MemoryBytes: j.Memory}); err != nil {
		return nil, errors.Join(err, r.close())
	}
	if r.reader, err = fetch.New(meta, r.ep, r.cache, o.fetch); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// close ends everything, and fails if memory is still out when all was released.
func (r *rig) close() error {
	var errs []error
	if r.reader != nil {
		errs = append(errs, r.reader.Close())
	}
	if r.cache != nil {
		r.cache.Close()
		if used := r.cache.Stats().Used; used != 0 {
			errs = append(errs, fmt.Errorf("%d bytes of the cache are still out after Close", used))
		}
	}
	if r.ep != nil {
		errs = append(errs, r.ep.Close())
	}
	errs = append(errs, r.store.Close())
	return errors.Join(errs...)
}

// done joins the outcome of closing to err.
func (r *rig) done(err *error) { *err = errors.Join(*err, r.close()) }

// request asks for partition p from offset on.
func (r *rig) request(p int, offset int64, maxBytes int) fetch.Request {
	return fetch.Request{Partition: r.tier.Partition(p), Offset: offset, MaxBytes: maxBytes, Hint: r.hint}
}

// walk fetches the offsets [from, until) of partition p, maxBytes at a time, and
// gives each Result to serve. wait, if not nil, is called before each fetch.
func (r *rig) walk(ctx context.Context, p int, from, until int64, maxBytes int, wait func() error, serve func(*fetch.Result) error) error {
	var res fetch.Result
	defer res.Release()
	for offset := from; offset < until; {
		if wait != nil {
			if err := wait(); err != nil {
				return err
			}
		}
		if err := r.reader.Fetch(ctx, r.request(p, offset, maxBytes), &res); err != nil {
			return err
		}
		if res.NextOffset() <= offset {
			return fmt.Errorf("fetch at %d made no progress", offset)
		}
		offset = res.NextOffset()
		if err := serve(&res); err != nil {
			return err
		}
		res.Release()
	}
	return nil
}

// check compares a Result with what the tier holds.
func check(v *weather.Verifier, res *fetch.Result) error {
	v.Reset(res.FirstOffset())
	n, err := res.WriteTo(v)
	if err == nil && n != int64(res.Size()) {
		err = io.ErrShortWrite
	}
	return err
}

// maxBytes is how much a fetch asks for; Kafka's consumers ask for 1 MiB of a
// partition unless told otherwise.
func maxBytes(j job.Job) int {
	if j.PartSize > 0 {
		return int(j.PartSize)
	}
	return 1 << 20
}

// missing is the work of something that does not exist yet.
func missing(why string) job.Work {
	return func(context.Context, job.Job, *job.Meter) (map[string]float64, error) {
		return nil, fmt.Errorf("%w: %s", job.ErrMissing, why)
	}
}

// share returns part of whole, 0 of nothing.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
