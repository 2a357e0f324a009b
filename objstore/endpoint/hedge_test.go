package endpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
)

// slowly is a store whose n-th Get, from 0, answers after a while, with what it
// says; the answers come from a store in memory.
type slowly struct {
	objstore.Store
	after func(n int) time.Duration
	err   func(n int) error
	body  func(n int, body io.ReadCloser) io.ReadCloser

	deaf   bool // to contexts
	n      atomic.Int64
	opened atomic.Int64 // bodies that nobody has closed
}

func (s *slowly) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	i := int(s.n.Add(1)) - 1
	ended := ctx.Done()
	if s.deaf {
		ctx, ended = context.WithoutCancel(ctx), nil
	}
	select {
	case <-time.After(s.after(i)):
	case <-ended:
		return objstore.Info{}, nil, &objstore.Error{Op: "get", Key: key, Err: ctx.Err()}
	}
	if s.err != nil && s.err(i) != nil {
		return objstore.Info{}, nil, s.err(i)
	}
	info, body, err := s.Store.Get(ctx, key, off, n, opts)
	if err != nil {
		return info, nil, err
	}
	if s.body != nil {
		body = s.body(i, body)
	}
	s.opened.Add(1)
	return info, &closing{ReadCloser: body, s: s}, nil
}

type closing struct {
	io.ReadCloser
	s *slowly
}

func (c *closing) Close() error {
	c.s.opened.Add(-1)
	return c.ReadCloser.Close()
}

// learned returns an endpoint that hedges and knows that answers take 9 ms, and
// has saved up some hedges.
func learned(t *testing.T, s *slowly, data []byte, o Options) *Endpoint {
	t.Helper()
	o.HedgeBytes = 1 << 20
	s.Store = filled(t, data)
	after := s.after
	s.after = func(int) time.Duration { return 9 * time.Millisecond }
	e := open(t, s, o)
	for range 300 {
		if _, err := e.Read(t.Context(), read(data, len(data))); err != nil {
			t.Fatal(err)
		}
	}
	if e.Stats().Hedges != 0 || e.pulse.patience() != 10*time.Millisecond {
		t.Fatalf("%d hedges, patience %v", e.Stats().Hedges, e.pulse.patience())
	}
	s.after = after
	s.n.Store(0)
	return e
}

// What one GET is slow to answer is asked once more; the first answer counts, and
// the other request is ended.
func TestHedge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		s := &slowly{after: func(n int) time.Duration { return []time.Duration{time.Hour, 5 * time.Millisecond}[n] }}
		e := learned(t, s, data, Options{})
		start := time.Now()
		req := read(data, 400, 600)
		if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) {
			t.Errorf("%v, or other bytes", err)
		}
		if took := time.Since(start); took != 15*time.Millisecond || s.opened.Load() != 0 {
			t.Errorf("took %v; %d bodies open", took, s.opened.Load())
		}
		if st := e.Stats(); st.Hedges != 1 || st.HedgeWins != 1 || st.Gets != 302 || st.Retries != 0 {
			t.Errorf("%+v", st)
		}
		idle(t, e)
	})
}

// A loser whose answer comes all the same is closed unread.
func TestTheLoserOfAHedgeWritesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		readBy := make([]atomic.Int64, 2)
		s := &slowly{
			after: func(n int) time.Duration { return []time.Duration{30 * time.Millisecond, 25 * time.Millisecond}[n] }, // the other at 35 ms
			body: func(n int, body io.ReadCloser) io.ReadCloser {
				if n > 1 {
					return body
				}
				return struct {
					io.Reader
					io.Closer
				}{bodyFunc(func(p []byte) (int, error) {
					readBy[n].Add(1)
					return body.Read(p)
				}), body}
			},
		}
		e := learned(t, s, data, Options{})
		readBy[0].Store(0)
		readBy[1].Store(0)
		s.deaf = true
		req := read(data, 1000)
		if _, err := e.Read(t.Context(), req); err != nil || !bytes.Equal(bytesOf(req), data) {
			t.Errorf("%v, or other bytes", err)
		}
		if a, b := readBy[0].Load(), readBy[1].Load(); (a == 0) == (b == 0) {
			t.Errorf("%d reads of the one, %d of the other", a, b)
		}
		if st := e.Stats(); st.Hedges != 1 || st.HedgeWaste != 1000 || s.opened.Load() != 0 || st.Bytes != 301*1000 {
			t.Errorf("%+v; %d bodies open", st, s.opened.Load())
		}
		idle(t, e)
	})
}

// An error does not win while the other may still answer.
func TestHedgesAndErrors(t *testing.T) {
	busy := &objstore.Error{Op: "get", Key: "key", Err: objstore.ErrThrottled}
	for name, c := range map[string]struct {
		errs      []error
		took      time.Duration
		gets      int64
		throttles int64
	}{
		"the hedge fails":    {[]error{nil, io.ErrUnexpectedEOF}, 50 * time.Millisecond, 302, 0},
		"it is throttled":    {[]error{nil, busy}, 50 * time.Millisecond, 302, 1},
		"the first one does": {[]error{io.ErrUnexpectedEOF, nil}, 70 * time.Millisecond, 302, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				data := content(1000)
				s := &slowly{after: func(n int) time.Duration {
					if n == 1 && c.errs[0] != nil {
						return 60 * time.Millisecond
					}
					return []time.Duration{50 * time.Millisecond, 5 * time.Millisecond, 0}[min(n, 2)]
				}}
				e := learned(t, s, data, Options{})
				s.err = func(n int) error { return append(c.errs, nil)[min(n, 2)] }
				start := time.Now()
				if _, err := e.Read(t.Context(), read(data, 1000)); err != nil || time.Since(start) != c.took {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				if st := e.Stats(); st.Hedges != 1 || st.Gets != c.gets || st.Throttles != c.throttles {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// A store that panics, hangs or ignores nobody: the caller gets an error in time,
// and nothing is left.
func TestHedgesThatEndBadly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		s := &slowly{after: func(int) time.Duration { return time.Hour }}
		e := learned(t, s, data, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.Read(ctx, read(data, 1000)); !errors.Is(err, context.DeadlineExceeded) || e.Stats().Hedges != 1 {
			t.Errorf("%v with %d hedges", err, e.Stats().Hedges)
		}
		idle(t, e)
		s.after = func(int) time.Duration { panic("no") }
		if _, err := e.Read(t.Context(), read(data, 1000)); !errors.Is(err, errPanicked) {
			t.Error(err)
		}
	})
}

// There are no more hedges than the budget has, however slow everything becomes;
// none while the store asks for fewer requests, and none that would keep others
// waiting.
func TestHedgesAreFew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(1000)
		var asked atomic.Int64
		s := &slowly{after: func(int) time.Duration {
			return 10*time.Millisecond + time.Duration(asked.Add(10))*time.Microsecond
		}}
		e := learned(t, s, data, Options{Requests: 64})
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				if _, err := e.Read(t.Context(), read(data, 1000)); err != nil {
					t.Error(err)
				}
			})
			<-time.After(time.Millisecond)
		}
		wg.Wait()
		st := e.Stats()
		if st.Hedges < 50 || float64(st.Gets) > 2300*1.05 {
			t.Errorf("%d hedges, %d gets for 2,300 reads", st.Hedges, st.Gets)
		}
		e.slots.refused(e.slots.area(forReads, "key"))
		for range 50 {
			req := read(data, 1000)
			if _, err := e.Read(t.Context(), req); err != nil {
				t.Error(err)
			}
		}
		prefetch := read(data, 1000)
		prefetch.Class = Prefetch
		if _, err := e.Read(t.Context(), prefetch); err != nil {
			t.Error(err)
		}
		if now := e.Stats().Hedges; now != st.Hedges {
			t.Errorf("%d hedges of a store that throttles", now-st.Hedges)
		}
	})
}

// The gain: of GETs of which some are very slow, hedged ones have a far better
// tail.
func TestHedgesCutTheTail(t *testing.T) {
	p99 := func(hedge int64) (at time.Duration) {
		bubble.Test(t, func(t *testing.T) {
			data := content(1000)
			s := &slowly{Store: filled(t, data), after: func(n int) time.Duration {
				if n%33 == 0 {
					return 2 * time.Second
				}
				return time.Duration(20+n*7919%60) * time.Millisecond
			}}
			e := open(t, s, Options{HedgeBytes: hedge})
			var mu sync.Mutex
			var took []time.Duration
			var wg sync.WaitGroup
			for range 4000 {
				wg.Go(func() {
					start := time.Now()
					if _, err := e.Read(t.Context(), read(data, 1000)); err != nil {
						t.Error(err)
					}
					mu.Lock()
					took = append(took, time.Since(start))
					mu.Unlock()
				})
				<-time.After(5 * time.Millisecond)
			}
			wg.Wait()
			slices.Sort(took)
			at = took[len(took)*99/100]
			if st := e.Stats(); float64(st.Gets) > 4000*1.05 {
				t.Errorf("%d gets", st.Gets)
			}
		})
		return at
	}
	if raw, hedged := p99(0), p99(1<<20); hedged > raw*7/10 {
		t.Errorf("p99 %v, hedged %v", raw, hedged)
	}
}
