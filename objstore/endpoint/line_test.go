package endpoint

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
)

// sharedLine is a store whose bodies divide a line among them, in virtual time. Those of the
// directory "slow/" take their time instead.
type sharedLine struct {
	objstore.Store
	rate, connection float64 // bytes/s
	slow             time.Duration
	bodies           atomic.Int64
}

func (s *sharedLine) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	dir := key[:len(key)-len("key")]
	if dir == "slow/" {
		if err := pause(ctx, s.slow); err != nil {
			return objstore.Info{}, nil, err
		}
	}
	info, body, err := s.Store.Get(ctx, "key", off, n, o)
	if err != nil {
		return info, nil, err
	}
	s.bodies.Add(1)
	return info, &sharedBody{ReadCloser: body, s: s, ctx: ctx, slow: dir == "slow/"}, nil
}

type sharedBody struct {
	io.ReadCloser
	s    *sharedLine
	ctx  context.Context
	slow bool
}

func (b *sharedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), 64<<10)])
	rate := min(b.s.connection, b.s.rate/float64(b.s.bodies.Load()))
	wait := time.Duration(float64(n) / rate * float64(time.Second))
	if b.slow {
		wait += b.s.slow / 16
	}
	if pauseErr := pause(b.ctx, wait); pauseErr != nil {
		return 0, pauseErr
	}
	return n, err
}

func (b *sharedBody) Close() error {
	b.s.bodies.Add(-1)
	return b.ReadCloser.Close()
}

// prefetching has so many streams fetch ahead of a directory without end, many runs each.
func prefetching(ctx context.Context, wg *sync.WaitGroup, e *Endpoint, data []byte, dir string, streams int) {
	for i := range streams {
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					req := read(data, len(data))
					req.Key, req.Class, req.Stream = dir+"key", Prefetch, uint64(i+1)
					_, _ = e.Read(ctx, req) // until ctx ends
				}
			})
		}
	}
}

// What is fetched ahead for backfills does not divide the line for who asks for something
// urgent: with all that there are slots for, he would wait more than twice as long.
func TestUrgentReadOnANarrowLine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		data := content(mib / 2)
		s := &sharedLine{Store: filled(t, data), rate: 50 * mib, connection: 5 * mib}
		e := open(t, s, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		prefetching(ctx, &wg, e, data, "", 8)
		_ = pause(ctx, 8*time.Second)
		var took time.Duration
		for range 20 {
			began := time.Now()
			if _, err := e.Read(ctx, read(data, mib/2)); err != nil {
				t.Error(err)
			}
			took += time.Since(began)
			_ = pause(ctx, 200*time.Millisecond)
		}
		t.Logf("%v each, %+v", took/20, e.Stats())
		if took/20 > 260*time.Millisecond { // 100 ms alone
			t.Errorf("an urgent half of a MiB takes %v", took/20)
		}
		cancel()
		wg.Wait()
	})
}

// What is fetched ahead of a directory that is slow takes nobody's room, and few of its
// bodies do not make a narrow line.
func TestSlowAreaIsNoNarrowLine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		data := content(mib / 2)
		s := &sharedLine{Store: filled(t, data), rate: 1000 * mib, connection: 2 * mib, slow: 6 * time.Second}
		e := open(t, s, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		prefetching(ctx, &wg, e, data, "", 8)
		_ = pause(ctx, time.Second)
		prefetching(ctx, &wg, e, data, "slow/", 8)
		narrow, looks := 0, 0
		for range 200 {
			_ = pause(ctx, 100*time.Millisecond)
			if looks++; e.Stats().PrefetchLimit < 40 {
				narrow++
			}
		}
		if narrow > looks/10 {
			t.Errorf("%d of %d times the line is taken for narrow: %+v", narrow, looks, e.Stats())
		}
		cancel()
		wg.Wait()
	})
}
