package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
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
	// No server here is silent for long: nobody is to take a busy machine for one that is.
	if k.ep, err = endpoint.New(store, endpoint.Options{ProgressTimeout: 5 * time.Minute}); err != nil {
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
	// At best 9: the first chunk alone, the rest of its 8 MiB, then 8 and 16 MiB at a
	// time. How long runs are follows what the store's time says, and here that is the
	// machine's: TestCatchUpRate counts in simulated time. A tail for each segment.
	if st.DataGets > 64 || st.TailGets != 4 || st.DuplicateBytes != mine.GapBytes {
		t.Errorf("%d GETs for 64 MiB, %d tails, %d bytes twice, %d for gaps", st.DataGets, st.TailGets, st.DuplicateBytes, mine.GapBytes)
	}
	if mine.Wasted != 0 || mine.Ahead < 32<<20 {
		t.Errorf("%+v", mine)
	}
}

// line is a store whose connections have a rate each, and all together another,
// and which takes its time for the first byte. In a synctest bubble it takes no
// other time at all, so that what is measured is what a reader asks for and when.
type line struct {
	objstore.Store
	first            time.Duration
	draw             func() time.Duration // instead of first, if not nil
	connection, link float64              // bytes/s
	options          endpoint.Options     // of who asks

	mu   sync.Mutex
	free time.Time // when the link is; guarded by mu
	gets int       // guarded by mu
}

func (l *line) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	l.mu.Lock()
	l.gets++
	first := l.first
	if l.draw != nil {
		first = l.draw()
	}
	l.mu.Unlock()
	select {
	case <-time.After(first):
	case <-ctx.Done():
		return objstore.Info{}, nil, ctx.Err()
	}
	info, body, err := l.Store.Get(ctx, key, off, n, o)
	if err != nil {
		return info, nil, err
	}
	return info, &wire{ReadCloser: body, line: l, ctx: ctx, free: time.Now()}, nil
}

// wire is the body of an answer.
type wire struct {
	io.ReadCloser
	line *line
	ctx  context.Context
	free time.Time // when the connection is
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p[:min(len(p), 64<<10)])
	took := func(rate float64) time.Duration { return time.Duration(float64(n) / rate * 1e9) }
	now := time.Now()
	w.line.mu.Lock()
	if w.line.free.Before(now) {
		w.line.free = now
	}
	w.line.free = w.line.free.Add(took(w.line.link))
	until := w.line.free
	w.line.mu.Unlock()
	if w.free.Before(now) {
		w.free = now
	}
	w.free = w.free.Add(took(w.line.connection))
	if until.Before(w.free) {
		until = w.free
	}
	select {
	case <-time.After(time.Until(until)):
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
	return n, err
}

// open makes a Reader of a tier behind the line, whose Store is the tier's unless it
// is set. done closes it, and what it stands on.
func (l *line) open(t *testing.T, memory int64, spec weather.Spec) (tier *weather.Tier, r *fetch.Reader, done func()) {
	tier, err := spec.Tier()
	if err != nil {
		t.Fatal(err)
	}
	meta, err := tier.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	if l.Store == nil {
		l.Store = subject.NewStore()
	}
	ep, err := endpoint.New(l, l.options)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{MemoryBytes: memory})
	if err != nil {
		t.Fatal(err)
	}
	r, err = fetch.New(meta, ep, c, fetch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tier, r, func() {
		t.Logf("%+v, %+v", r.Stats(), ep.Stats())
		err := r.Close()
		c.Close()
		if used := c.Stats().Used; used != 0 {
			t.Errorf("%d bytes are still out", used)
		}
		if err := errors.Join(err, ep.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// catchUp is the rate at which one consumer reads a tier over a line, as a share
// of what there is.
func catchUp(t *testing.T, l *line, memory int64, spec weather.Spec, hint fetch.Hint) (share float64, st fetch.Stats) {
	tier, r, done := l.open(t, memory, spec)
	k := &sky{t: t, tier: tier, reader: r}
	began := time.Now()
	if err := k.read(t.Context(), 0, 0, tier.EndOffset(), hint); err != nil {
		t.Fatal(err)
	}
	rate := float64(tier.PartitionBytes()) / time.Since(began).Seconds()
	st = r.Stats()
	done()
	return rate / min(l.link, 64*l.connection), st
}

// A consumer that catches up gets what the line gives, however slow a connection
// is and however little memory there is; with few GETs where connections are fast.
func TestCatchUpRate(t *testing.T) {
	const mib = 1 << 20
	spec := weather.Spec{SegmentBytes: 64 * mib, Segments: 2}
	for _, c := range []struct {
		name             string
		connection, link float64
		first            time.Duration
		memory           int64
		hint             fetch.Hint
		least            float64
		gets             int64
	}{
		{"slow connections, announced", 8 * mib, 128 * mib, 30 * time.Millisecond, 64 * mib, fetch.Sequential, .87, 130},
		{"slow connections, detected", 8 * mib, 128 * mib, 30 * time.Millisecond, 64 * mib, fetch.Detect, .75, 130},
		{"fast connections", 1000 * mib, 1000 * mib, time.Millisecond, 64 * mib, fetch.Detect, .9, 14},
		{"as S3", 60 * mib, 240 * mib, 30 * time.Millisecond, 256 * mib, fetch.Scan, .8, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				share, st := catchUp(t, &line{first: c.first, connection: c.connection, link: c.link}, c.memory, spec, c.hint)
				t.Logf("%.3f, %+v", share, st)
				if share < c.least {
					t.Errorf("%.2f of the line, want %.2f", share, c.least)
				}
				if st.DataGets > c.gets {
					t.Errorf("%d GETs, want at most %d", st.DataGets, c.gets)
				}
			})
		})
	}
}

// 1,000 consumers in 256 MiB, each a partition of its own: every one gets all its
// bytes, and next to no GET is made that one consumer alone would not have made.
func TestThousandStreams(t *testing.T) {
	const streams, segment = 1000, 4 << 20
	k := newSky(t, weather.Spec{Partitions: streams, SegmentBytes: segment}, weather.Schedule{}, 256<<20)
	errs := make([]error, streams)
	var running sync.WaitGroup
	for p := range streams {
		running.Go(func() { errs[p] = k.read(t.Context(), p, 0, k.tier.EndOffset()/4, fetch.Detect) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	st, mine := k.server.Stats(), k.reader.Stats()
	if used, budget := k.cache.Stats().Used, int64(256<<20); used > budget {
		t.Errorf("%d bytes in use of %d", used, budget)
	}
	if st.DuplicateBytes > mine.GapBytes+mine.Wasted || st.TailGets > streams+streams/10 {
		t.Errorf("%d bytes twice, %d for gaps, %d in vain, %d tails", st.DuplicateBytes, mine.GapBytes, mine.Wasted, st.TailGets)
	}
	t.Logf("%d data GETs, %d tails, %+v", st.DataGets, st.TailGets, mine)
}

// More readers than there is memory for a chunk each, all of them at the pace of their
// records: who takes less than a chunk at a time has it fetched anew each time, since the
// others' have come in between. No read makes more than a GET of data, and reads of whole
// chunks make no more than anybody would.
func TestPacedStreamsInLittleMemory(t *testing.T) {
	const mib, streams, memory = 1 << 20, 100, 25 * 1 << 20
	for _, maxBytes := range []int{64 << 10, 256 << 10, mib} {
		bubble.Test(t, func(t *testing.T) {
			l := &line{first: 30 * time.Millisecond, connection: 60 * mib, link: 1000 * mib}
			tier, r, done := l.open(t, memory, weather.Spec{Partitions: streams, SegmentBytes: 4 * mib})
			var running sync.WaitGroup
			for p := range streams {
				running.Go(func() {
					var res fetch.Result
					defer res.Release()
					for offset := int64(0); offset < tier.EndOffset()/4; {
						if err := r.Fetch(t.Context(), fetch.Request{Partition: tier.Partition(p), Offset: offset, MaxBytes: maxBytes}, &res); err != nil {
							t.Error(err)
							return
						}
						offset = res.NextOffset()
						res.Release()
						<-time.After(time.Second + time.Duration(p)*time.Millisecond)
					}
				})
			}
			running.Wait()
			st := r.Stats()
			done()
			t.Logf("reads of %d KiB: %.2f GETs each, %.1f bytes fetched for each that is read",
				maxBytes>>10, float64(st.DataGets)/float64(st.Fetches), float64(st.DataBytes)/float64(st.Bytes))
			if st.DataGets > st.Fetches*11/10 || maxBytes == mib && st.DataBytes > st.Bytes*12/10 {
				t.Errorf("%+v", st)
			}
		})
	}
}
