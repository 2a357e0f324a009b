package endpoint

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestLimiter(t *testing.T) {
	applied := 0
	l := newLimiter(64, func(n int) { applied = n })
	crowd := l.begin()
	for range 10 { // of one crowd
		l.throttled(crowd)
	}
	if n, cut := l.limit(); n != 32 || !cut || applied != 32 {
		t.Errorf("limit %d (%t), applied %d", n, cut, applied)
	}
	for range 32 {
		l.succeeded()
	}
	if n, _ := l.limit(); n != 33 {
		t.Errorf("limit %d after a round", n)
	}
	for range 10 {
		l.throttled(l.begin())
	}
	if n, _ := l.limit(); n != 8 || applied != 8 {
		t.Errorf("limit %d, the floor is 8", n)
	}
	for range 64 * 64 {
		l.succeeded()
	}
	if n, cut := l.limit(); n != 64 || cut || applied != 64 {
		t.Errorf("limit %d (%t) in the end", n, cut)
	}
}

// crowded refuses whoever comes while it has enough to do.
type crowded struct {
	objstore.Store
	room int

	mu        sync.Mutex
	busy      int // guarded by mu
	refused   int // guarded by mu
	answered  int // guarded by mu
	everMost  int // guarded by mu
	retryWait time.Duration
}

func (s *crowded) Get(ctx context.Context, key string, off, n int64, o objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	s.mu.Lock()
	full := s.busy >= s.room
	if full {
		s.refused++
	} else {
		s.busy++
		s.answered++
	}
	s.everMost = max(s.everMost, s.busy)
	s.mu.Unlock()
	if full {
		return objstore.Info{}, nil, &objstore.Error{Op: "get", Key: key, Err: objstore.ErrThrottled, RetryAfter: s.retryWait}
	}
	<-time.After(20 * time.Millisecond)
	s.mu.Lock()
	s.busy--
	s.mu.Unlock()
	return s.Store.Get(ctx, key, off, n, o)
}

// A store that bears 12 requests at a time is soon asked no more than that, but
// for now and then one; nobody sees an error.
func TestThrottledReadsLearnTheLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		s := &crowded{Store: filled(t, data), room: 12}
		e := open(t, s, Options{Requests: 64})
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 100 {
					if _, err := e.Read(t.Context(), read(data, 100)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if share := float64(s.refused) / float64(s.answered); share > 0.3 {
			t.Errorf("%d refused, %d answered", s.refused, s.answered)
		}
		if n := e.Stats().ReadLimit; n > 24 {
			t.Errorf("limit %d in the end", n)
		}
		if s := e.Stats(); s.WriteLimit != 64 || s.Throttles == 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A store that is down is not asked four times for each thing.
func TestRetryBudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		down := true
		store := storetest.Inject(filled(t, data), func(storetest.Call) storetest.Fault {
			if down {
				return storetest.Fault{Kind: storetest.FailBefore}
			}
			return storetest.Fault{}
		})
		e := open(t, store, Options{RetryBudget: 20})
		for range 1000 {
			if _, err := e.Read(t.Context(), read(data, 100)); !errors.Is(err, storetest.ErrInjected) {
				t.Fatal(err)
			}
		}
		st := e.Stats()
		if st.Retries < 10 || st.Retries > 20 || st.Unretried < 900 || st.Gets != 1000+st.Retries {
			t.Errorf("%+v", st)
		}
		down = false
		for range 100 { // each ten earn one
			if _, err := e.Read(t.Context(), read(data, 100)); err != nil {
				t.Fatal(err)
			}
		}
		down = true
		before := e.Stats().Retries
		_, _ = e.Read(t.Context(), read(data, 100))
		if n := e.Stats().Retries - before; n != 3 {
			t.Errorf("%d retries after 100 reads that succeeded", n)
		}
	})
}

// Who goes on behind what was read repeats nothing.
func TestResumesAreNotOfTheBudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		sizes := make([]int, 100)
		for i := range sizes {
			sizes[i] = 1
		}
		n := 0
		e := open(t, storetest.Inject(filled(t, data), func(storetest.Call) storetest.Fault {
			n++
			return storetest.Fault{Kind: storetest.Cut, At: 1}
		}), Options{RetryBudget: 1})
		if _, err := e.Read(t.Context(), read(data, sizes...)); err != nil || e.Stats().Resumes != 99 {
			t.Errorf("%v after %d resumes", err, e.Stats().Resumes)
		}
	})
}
