package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/s3"
)

// sky is a Reader over a weather server in this process, through HTTP.
type sky struct {
	t      testing.TB
	server *weather.Server
	tier   *weather.Tier
	ep     *endpoint.Endpoint
	cache  *cache.Cache
	reader *fetch.Reader
}

func newSky(t testing.TB, spec weather.Spec, schedule weather.Schedule, memory int64) *sky {
	t.Helper()
	server, err := weather.New(weather.Options{Schedule: schedule, HTTPS: "none", Admin: "none"})
	if err != nil {
		t.Fatal(err)
	}
	at, err := server.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := &sky{t: t, server: server}
	if k.tier, err = spec.Tier(); err != nil {
		t.Fatal(err)
	}
	meta, err := k.tier.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	store, err := s3.Open(t.Context(), s3.Options{
		Bucket: "bucket", Region: "us-east-1", Endpoint: at.HTTP, PathStyle: true, AccessKeyID: "one", SecretAccessKey: "secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	if k.ep, err = endpoint.New(store, endpoint.Options{}); err != nil {
		t.Fatal(err)
	}
	if k.cache, err = cache.New(cache.Options{MemoryBytes: memory}); err != nil {
		t.Fatal(err)
	}
	if k.reader, err = fetch.New(meta, k.ep, k.cache, fetch.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := k.reader.Close()
		k.cache.Close()
		if used := k.cache.Stats().Used; used != 0 {
			t.Errorf("%d bytes of the cache are still out after Close", used)
		}
		if err := errors.Join(err, k.ep.Close(), store.Close(), server.Close(), meta.Close()); err != nil {
			t.Error(err)
		}
	})
	return k
}

// read reads offsets [from, until) of a partition, a MiB at a time, and compares
// every byte.
func (k *sky) read(ctx context.Context, p int, from, until int64, hint fetch.Hint) error {
	v := k.tier.Verifier(p, from)
	var res fetch.Result
	defer res.Release()
	for offset := from; offset < until; {
		req := fetch.Request{Partition: k.tier.Partition(p), Offset: offset, MaxBytes: 1 << 20, Hint: hint}
		if err := k.reader.Fetch(ctx, req, &res); err != nil {
			return err
		}
		if res.NextOffset() <= offset {
			return fmt.Errorf("offset %d: no progress", offset)
		}
		if _, err := res.WriteTo(v); err != nil {
			return err
		}
		offset = res.NextOffset()
	}
	return nil
}

// One consumer in sequence: few GETs, every byte once, across segments.
func TestSequentialReads(t *testing.T) {
	k := newSky(t, weather.Spec{SegmentBytes: 16 << 20, Segments: 4}, weather.Schedule{}, 256<<20)
	if err := k.read(t.Context(), 0, 0, k.tier.EndOffset(), fetch.Detect); err != nil {
		t.Fatal(err)
	}
	st, mine := k.server.Stats(), k.reader.Stats()
	// The first chunk alone, the rest of its 8 MiB, then 8 and 16 MiB at a time; a tail
	// for each segment.
	if st.DataGets > 9 || st.TailGets != 4 || st.DuplicateBytes != mine.GapBytes {
		t.Errorf("%d GETs for 64 MiB, %d tails, %d bytes twice, %d for gaps", st.DataGets, st.TailGets, st.DuplicateBytes, mine.GapBytes)
	}
	if mine.Wasted != 0 || mine.Ahead < 56<<20 {
		t.Errorf("%+v", mine)
	}
}
