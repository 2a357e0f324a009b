package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

// TestForeignObjects: what lies under the key of a segment that never was
// readable is deleted only if it is known to be that segment's.
func TestForeignObjects(t *testing.T) {
	log := testseg.Random(8, testseg.Options{Segments: 2, Batches: 40})
	var theirs string // the object of another segment
	{
		w := copied(t, newWorld(), log)
		key := w.keys(t)[0]
		info, err := w.store.Stat(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		ep, err := endpoint.New(w.store, endpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		theirs = string(read(t, ep, key, int(info.Size)))
	}
	for name, c := range map[string]struct {
		fault   storetest.Fault // of the upload
		foreign string          // what is put there instead
		gone    bool            // it is deleted
		noToken bool            // the store keeps none
		token   string          // of what is put there
	}{
		"no object":                    {fault: storetest.Fault{Kind: storetest.FailBefore}, gone: true},
		"its own":                      {fault: storetest.Fault{Kind: storetest.FailAfter}, gone: true},
		"its own, by its header":       {fault: storetest.Fault{Kind: storetest.FailAfter}, gone: true, noToken: true},
		"half of its own":              {fault: storetest.Fault{Kind: storetest.ShortObject, At: 9000}, gone: true},
		"half of its own, by its tail": {fault: storetest.Fault{Kind: storetest.ShortObject, At: 9000}, noToken: true},
		"somebody's":                   {foreign: "not ours, and long enough to have a trailer of that size: " + strings.Repeat("x", 200)},
		"somebody's, by its token":     {foreign: "not ours", token: "theirs"},
		"short":                        {foreign: "x"},
		"another segment's":            {foreign: theirs},
	} {
		w := newWorld()
		p := w.deleter(t, func(call storetest.Call) storetest.Fault {
			if call.Op == "upload" && call.Key != object.OwnerKey {
				if c.foreign != "" {
					req := uploadOf(call.Key, c.foreign)
					req.Token = c.token
					if _, err := w.store.Upload(t.Context(), req); err != nil {
						t.Error(err)
					}
				}
				return c.fault
			}
			return storetest.Fault{}
		}, nil, atOnce(nil))
		if c.noToken {
			p = w.tokenless(t, p)
		}
		if _, err := p.copier.Copy(t.Context(), log.Segments[0], writer); err == nil {
			t.Fatalf("%s: the copy succeeded", name)
		}
		err := p.d.Delete(t.Context(), writer, w.all(t, log.Partition)...)
		var foreign *lifecycle.ForeignObjectError
		if c.gone != (err == nil) || !c.gone && !errors.As(err, &foreign) {
			t.Errorf("%s: %v", name, err)
		}
		if c.gone {
			w.empty(t, log.Partition)
			continue
		}
		if segs := w.all(t, log.Partition); len(w.keys(t)) != 1 || len(segs) != 1 || segs[0].State != metadata.DeleteSegmentStarted {
			t.Errorf("%s: %v, objects %v", name, segs, w.keys(t))
		}
		// An operator decides.
		if err := w.store.Delete(t.Context(), w.keys(t)...); err != nil {
			t.Error(err)
		}
		if err := p.d.Resume(t.Context(), log.Partition, writer); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.empty(t, log.Partition)
	}
}

// noTokens is a store that does not keep tokens.
type noTokens struct{ objstore.Store }

func (s noTokens) Stat(ctx context.Context, key string) (objstore.Info, error) {
	info, err := s.Store.Stat(ctx, key)
	info.Token = ""
	return info, err
}

// tokenless returns p on a store that does not keep tokens.
func (w world) tokenless(t *testing.T, p deleting) deleting {
	t.Helper()
	ep, err := endpoint.New(noTokens{p.store}, endpoint.Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ep.Close() })
	if p.d, err = lifecycle.NewDeleter(p.meta, ep, atOnce(nil)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.d.Close)
	return p
}

// lagging is a store that deletes a key only at the n-th time it is asked whether
// it is there.
type lagging struct {
	objstore.Store

	mu   sync.Mutex
	lags map[string]int
}

func (s *lagging) Delete(_ context.Context, keys ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if _, ok := s.lags[key]; !ok {
			s.lags[key] = 2
		}
	}
	return nil
}

func (s *lagging) Stat(ctx context.Context, key string) (objstore.Info, error) {
	s.mu.Lock()
	n, ok := s.lags[key]
	if ok {
		s.lags[key] = n - 1
	}
	s.mu.Unlock()
	if ok && n <= 1 {
		if err := s.Store.Delete(ctx, key); err != nil {
			return objstore.Info{}, err
		}
	}
	return s.Store.Stat(ctx, key)
}

// TestStoreThatDeletesLater: a segment has not ended while its object is there,
// whatever the store answered.
func TestStoreThatDeletesLater(t *testing.T) {
	log := testseg.Random(11, testseg.Options{Segments: 2, Batches: 10})
	w := copied(t, newWorld(), log)
	slow := world{store: &lagging{Store: w.store, lags: map[string]int{}}, meta: w.meta}
	waits := 0
	p := slow.deleter(t, nil, nil, atOnce(func(time.Duration) { waits++ }))
	if err := p.d.Delete(t.Context(), writer, w.all(t, log.Partition)...); err == nil || !strings.Contains(err.Error(), "still there") {
		t.Errorf("got %v", err)
	}
	if segs := w.all(t, log.Partition); len(segs) != 2 || segs[0].State != metadata.DeleteSegmentStarted {
		t.Errorf("%v", segs)
	}
	if err := p.d.Resume(t.Context(), log.Partition, writer); err != nil {
		t.Error(err)
	}
	w.empty(t, log.Partition)
	if waits != 1 {
		t.Errorf("%d delays: what has had its delay waits no more", waits)
	}
}

// TestDelay: readers have their time after any DELETE_STARTED, whoever wrote it
// and whatever the clocks say.
func TestDelay(t *testing.T) {
	log := testseg.Random(12, testseg.Options{Segments: 1, Batches: 10})
	bubble.Test(t, func(t *testing.T) {
		w := copied(t, newWorld(), log)
		clock := time.UnixMilli(1700000000000)
		p := w.deleter(t, nil, nil, lifecycle.DeleterOptions{Now: func() time.Time {
			clock = clock.Add(1000 * time.Hour) // jumps at every look
			return clock
		}})
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		if err := p.d.Delete(ctx, writer, w.all(t, log.Partition)...); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if len(w.keys(t)) != 1 || time.Since(begun) != 59*time.Second {
			t.Error("the object went before its time")
		}
		// The record is old by the time another process finds it; it waits all the same.
		begun = time.Now()
		if err := w.deleter(t, nil, nil, lifecycle.DeleterOptions{}).d.Resume(t.Context(), log.Partition, writer); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d < time.Minute || d > 62*time.Second {
			t.Errorf("deleted after %v", d)
		}
		w.empty(t, log.Partition)
	})
}

// TestPace: all calls together keep to the rate and the concurrency.
func TestPace(t *testing.T) {
	other := testseg.DefaultPartition
	other.Number++
	logs := []*testseg.Log{
		testseg.Random(13, testseg.Options{Segments: 15, Batches: 1}),
		testseg.Random(14, testseg.Options{Segments: 15, Batches: 1, Partition: other}),
	}
	bubble.Test(t, func(t *testing.T) {
		w := newWorld()
		for _, log := range logs {
			copied(t, w, log)
		}
		gate := make(chan struct{})
		p := w.deleter(t, storetest.Rules(storetest.Rule{Op: "delete", Times: -1, Fault: storetest.Fault{Kind: storetest.Wait, Gate: gate}}), nil,
			lifecycle.DeleterOptions{Delay: -1, PerSecond: 10, Concurrency: 3})
		var calls sync.WaitGroup
		for _, log := range logs {
			calls.Go(func() {
				if err := p.d.Delete(t.Context(), writer, w.all(t, log.Partition)...); err != nil {
					t.Error(err)
				}
			})
		}
		<-time.After(10 * time.Second) // of the bubble: nothing gets through
		synctest.Wait()
		if n := p.d.Stats().Running; n != 3 {
			t.Errorf("%d run at once", n)
		}
		begun := time.Now()
		close(gate)
		calls.Wait()
		if d := time.Since(begun); d < 2600*time.Millisecond || d > 3100*time.Millisecond {
			t.Errorf("the other 27 objects took %v", d)
		}
	})
}

// TestCloseEndsDeletions whether they wait or delete, and lets no other in.
func TestCloseEndsDeletions(t *testing.T) {
	log := testseg.Random(15, testseg.Options{Segments: 2, Batches: 1})
	for name, delay := range map[string]time.Duration{"waiting": time.Hour, "deleting": -1} {
		bubble.Test(t, func(t *testing.T) {
			w := copied(t, newWorld(), log)
			p := w.deleter(t, storetest.Rules(storetest.Rule{Op: "delete", Times: -1, Fault: storetest.Fault{Kind: storetest.Hang}}), nil, lifecycle.DeleterOptions{Delay: delay})
			ended := make(chan error, 1)
			go func() { ended <- p.d.Delete(t.Context(), writer, w.all(t, log.Partition)...) }()
			<-time.After(time.Minute)
			synctest.Wait()
			begun := time.Now()
			p.d.Close()
			if err := <-ended; !errors.Is(err, lifecycle.ErrClosed) || time.Since(begun) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(begun))
			}
			if err := p.d.Resume(t.Context(), log.Partition, writer); !errors.Is(err, lifecycle.ErrClosed) {
				t.Errorf("%s: a later call: %v", name, err)
			}
			p.d.Close()
		})
	}
}
