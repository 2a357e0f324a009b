package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestOptions(t *testing.T) {
	if _, err := New(nil, Options{}); err == nil {
		t.Error("an endpoint without a store")
	}
	for _, o := range []Options{{Requests: -1}, {BytesInFlight: -1}, {Attempts: -1}, {ProgressTimeout: -1}} {
		if _, err := New(storetest.NewMem(), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	e := open(t, storetest.NewMem(), Options{})
	if o := e.opts; o.Requests != 64 || o.BytesInFlight != 256<<20 || o.Attempts != 4 || o.ProgressTimeout != 10*time.Second || o.Logger == nil {
		t.Errorf("defaults are %+v", o)
	}
}

// A busy store has a count of its own, and its wish is everybody's.
func TestThrottling(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		busy := func(after time.Duration) storetest.Fault {
			return storetest.Fault{Kind: storetest.FailBefore, Err: &objstore.Error{Op: "get", Key: "key", Err: objstore.ErrThrottled, RetryAfter: after}}
		}
		e := open(t, storetest.Inject(filled(t, data), storetest.Rules(
			storetest.Rule{Op: "get", Times: 10, Fault: busy(0)},
			storetest.Rule{Op: "get", Nth: 12, Fault: busy(7 * time.Second)},
		)), Options{Attempts: 2})

		if _, err := e.Read(t.Context(), read(data, 100)); err != nil || e.Stats().Throttles != 10 {
			t.Errorf("%v after %d throttles", err, e.Stats().Throttles)
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := e.Read(t.Context(), read(data, 100)); err != nil || time.Since(start) < 7*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := e.Stat(t.Context(), "key"); err != nil || time.Since(start) != 7*time.Second {
				t.Errorf("another call: %v after %v", err, time.Since(start))
			}
		})
		wg.Wait()
	})
}

func TestThrottlingIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 24 * time.Hour} {
			busy := &objstore.Error{Op: "get", Key: "key", Err: objstore.ErrThrottled, RetryAfter: after}
			e := open(t, storetest.Inject(storetest.NewMem(), always(storetest.Fault{Kind: storetest.FailBefore, Err: busy})), Options{})
			start := time.Now()
			_, err := e.Read(t.Context(), read(content(10), 10))
			if !errors.Is(err, objstore.ErrThrottled) || e.Stats().Gets != maxThrottled || time.Since(start) > maxThrottled*(maxRetryAfter+throttleCap) {
				t.Errorf("%v after %d gets and %v", err, e.Stats().Gets, time.Since(start))
			}
		}
	})
}

// Nothing that waits holds a slot.
func TestNoSlotWhileWaiting(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		e := open(t, storetest.Inject(filled(t, data), storetest.Rules(
			rule("get", 1, storetest.Fault{Kind: storetest.FailBefore}),
		)), Options{Requests: 1, BytesInFlight: 100})
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := e.Read(t.Context(), read(data, 100)); err != nil || time.Since(start) == 0 {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
		synctest.Wait()
		idle(t, e) // the first one waits for its next try
		if _, err := e.Read(t.Context(), read(data, 100)); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		wg.Wait()
	})
}

func TestACallerThatLeaves(t *testing.T) {
	for name, f := range map[string]storetest.Fault{
		"hangs": {Kind: storetest.Hang}, "stalls": {Kind: storetest.Stall, At: 5}, "retries": {Kind: storetest.FailBefore},
		"throttled": {Kind: storetest.FailBefore, Err: &objstore.Error{Op: "get", Err: objstore.ErrThrottled, RetryAfter: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				e := open(t, storetest.Inject(filled(t, content(10)), always(f)), Options{Attempts: 1000})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start := time.Now()
				_, err := e.Read(ctx, read(content(10), 10))
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
					t.Errorf("deadline: %v after %v", err, time.Since(start))
				}
				cause := errors.New("no longer wanted")
				ctx2, cancel2 := context.WithCancelCause(t.Context())
				time.AfterFunc(2*time.Second, func() { cancel2(cause) })
				start = time.Now()
				_, err = e.Read(ctx2, read(content(10), 10))
				if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || time.Since(start) != 2*time.Second {
					t.Errorf("cancel: %v after %v", err, time.Since(start))
				}
				idle(t, e)
			})
		})
	}
}

func TestCloseEndsEveryCall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mem := filled(t, content(100))
		store := storetest.Inject(mem, func(c storetest.Call) storetest.Fault {
			if c.Op == "get" && c.Nth > 1 {
				return storetest.Fault{Kind: storetest.Stall, At: 5}
			}
			return storetest.Fault{Kind: storetest.Hang}
		})
		e := open(t, store, Options{Requests: 4, ProgressTimeout: time.Hour})
		ctx := t.Context()
		var wg sync.WaitGroup
		calls := map[string]func() error{
			"stat":   func() error { _, err := e.Stat(ctx, "key"); return err },
			"get":    func() error { _, err := e.Read(ctx, read(content(100), 100)); return err },
			"get2":   func() error { _, err := e.Read(ctx, read(content(100), 100)); return err },
			"get3":   func() error { _, err := e.Read(ctx, read(content(100), 100)); return err }, // some of these wait for a slot
			"delete": func() error { return e.Delete(ctx, "key") },
			"upload": func() error { _, err := e.Upload(ctx, upload("new", content(10), 5)); return err },
			"list": func() error {
				for _, err := range e.List(ctx, "k", "") {
					if err != nil {
						return err
					}
				}
				return nil
			},
		}
		check := func(name string, err error) {
			var oe *objstore.Error
			if !errors.Is(err, objstore.ErrClosed) || errors.Is(err, context.Canceled) || !errors.As(err, &oe) || !strings.HasPrefix(name, oe.Op) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, call := range calls {
			wg.Go(func() { check(name, call()) })
		}
		synctest.Wait()
		start := time.Now()
		for range 2 {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			wg.Wait()
			idle(t, e)
			for name, call := range calls {
				check(name, call())
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v", took)
		}
		if _, err := mem.Stat(ctx, "key"); err != nil {
			t.Errorf("the store is closed too: %v", err)
		}
	})
}

func TestCloseEndsWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		busy := &objstore.Error{Op: "get", Err: objstore.ErrThrottled, RetryAfter: time.Minute}
		e := open(t, storetest.Inject(storetest.NewMem(), always(storetest.Fault{Kind: storetest.FailBefore, Err: busy})), Options{})
		failed := make(chan error)
		go func() { _, err := e.Read(t.Context(), read(content(10), 10)); failed <- err }()
		synctest.Wait()
		<-time.After(10 * time.Second)
		start := time.Now()
		go func() { failed <- e.Close() }()
		if err := <-failed; !errors.Is(err, objstore.ErrClosed) {
			t.Error(err)
		}
		if err := <-failed; err != nil || time.Since(start) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
	})
}

// An attempt that begins while Close runs is ended too.
func TestCloseEndsTheNextAttempt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := open(t, storetest.NewMem(), Options{})
		c, err := e.begin(t.Context(), forReads, "key")
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error)
		go func() { closed <- e.Close() }()
		synctest.Wait()
		if err := c.ready(); err != nil || !errors.Is(context.Cause(c.ctx), objstore.ErrClosed) {
			t.Errorf("ready: %v, context: %v", err, context.Cause(c.ctx))
		}
		c.end()
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// A store that ignores its context cannot hold up Close for long.
func TestCloseWithAStoreThatIgnoresItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		e, err := New(stub{get: func(context.Context, int64, int64, objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
			<-gate
			return objstore.Info{}, nil, io.ErrClosedPipe
		}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := e.Read(t.Context(), read(content(10), 10)); !errors.Is(err, objstore.ErrClosed) {
				t.Error(err)
			}
		})
		synctest.Wait()
		start := time.Now()
		if err := e.Close(); err == nil || !strings.Contains(err.Error(), "1 calls") || time.Since(start) != closeWait {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		close(gate)
		wg.Wait()
		if err := e.Close(); err != nil {
			t.Errorf("Close once more: %v", err)
		}
		idle(t, e)
	})
}

// An upload whose answer was lost finds its own work.
func TestUploadIsRetried(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mem := storetest.NewMem()
		store := storetest.Inject(mem, storetest.Rules(
			rule("upload", 1, storetest.Fault{Kind: storetest.FailBefore}),
			rule("upload", 2, storetest.Fault{Kind: storetest.Cut, At: 15}),
			rule("upload", 3, storetest.Fault{Kind: storetest.FailAfter}),
		))
		e := open(t, store, Options{})
		req := upload("key", content(25), 10)
		var confirmed []int
		req.Confirmed = func(p objstore.PartEvidence) {
			if p.Sum != req.PartSums[p.Part] {
				t.Errorf("confirmed %+v", p)
			}
			confirmed = append(confirmed, p.Part)
		}
		req.Slots = func(context.Context, int64) (func(), error) { return nil, errors.New("not to be used") }
		ev, err := e.Upload(t.Context(), req)
		if err != nil || !ev.Existed || len(ev.Parts) != 3 || ev.Size != 25 {
			t.Errorf("%+v, %v", ev, err)
		}
		if !slices.Equal(confirmed, []int{0, 1, 2}) {
			t.Errorf("confirmed %v", confirmed)
		}
		if s := e.Stats(); s.Uploads != 4 || s.Retries != 3 || s.BytesUploaded != 25 {
			t.Errorf("%+v", s)
		}
		if _, err := e.Upload(t.Context(), upload("key", content(26), 10)); !errors.Is(err, objstore.ErrConflict) || e.Stats().Uploads != 5 {
			t.Errorf("other bytes: %v", err)
		}
	})
}

func TestUploadOfDamagedBytes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := open(t, storetest.NewMem(), Options{})
		req := upload("key", content(25), 10)
		req.PartSums[1].CRC32C++
		var oe *objstore.Error
		var m *checksum.MismatchError
		if _, err := e.Upload(t.Context(), req); !errors.Is(err, objstore.ErrCorrupt) || !errors.As(err, &oe) || oe.Off != 10 || oe.Len != 10 || !errors.As(err, &m) {
			t.Errorf("%v", err)
		}
		if n := e.Stats().Uploads; n != 2 {
			t.Errorf("%d tries", n)
		}
		req.Size = 0
		if _, err := e.Upload(t.Context(), req); err == nil || e.Stats().Uploads != 2 {
			t.Errorf("nonsense: %v", err)
		}
	})
}

// Uploads share the slots with everything else.
func TestUploadTakesSlots(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		data := content(100)
		e := open(t, storetest.Inject(filled(t, data), storetest.Rules(
			rule("get", 1, storetest.Fault{Kind: storetest.Wait, Gate: gate}),
		)), Options{Requests: 1})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := e.Read(t.Context(), read(data, 100)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		start := time.Now()
		time.AfterFunc(5*time.Second, func() { close(gate) })
		if _, err := e.Upload(t.Context(), upload("new", data, 10)); err != nil || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		wg.Wait()
	})
}

func TestListGoesOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mem := storetest.NewMem()
		var want []string
		for i := range 6 {
			want = append(want, fmt.Sprintf("k/%d", i))
			if _, err := mem.Upload(t.Context(), upload(want[i], content(10), 10)); err != nil {
				t.Fatal(err)
			}
		}
		e := open(t, storetest.Inject(mem, storetest.Rules(
			rule("list", 1, storetest.Fault{Kind: storetest.Cut, At: 2}),
			rule("list", 2, storetest.Fault{Kind: storetest.FailBefore}),
			rule("list", 3, storetest.Fault{Kind: storetest.FailAfter}),
			rule("list", 6, storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrClosed}),
		)), Options{Requests: 1, Attempts: 3})
		var got []string
		for info, err := range e.List(t.Context(), "k/", "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Key)
			if err := e.Delete(t.Context(), "absent"); err != nil { // a slot is to be had
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) || e.Stats().Lists != 4 {
			t.Errorf("%q after %d lists", got, e.Stats().Lists)
		}
		for _, err := range e.List(t.Context(), "k/", "k/2") {
			if err != nil {
				t.Error(err)
			}
			break
		}
		var errs []error
		for _, err := range e.List(t.Context(), "k/", "") {
			errs = append(errs, err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], objstore.ErrClosed) {
			t.Errorf("%v", errs)
		}
	})
}

func TestStatAndDeleteAreRetried(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		data := content(100)
		e := open(t, storetest.Inject(filled(t, data), storetest.Rules(
			storetest.Rule{Op: "stat", Times: 3, Fault: storetest.Fault{Kind: storetest.FailAfter}},
			storetest.Rule{Op: "delete", Times: 3, Fault: storetest.Fault{Kind: storetest.FailAfter}},
		)), Options{})
		if info, err := e.Stat(t.Context(), "key"); err != nil || info.Size != 100 {
			t.Errorf("%+v, %v", info, err)
		}
		if err := e.Delete(t.Context(), "key"); err != nil {
			t.Error(err)
		}
		if _, err := e.Stat(t.Context(), "key"); !errors.Is(err, objstore.ErrNotExist) {
			t.Error(err)
		}
		if s := e.Stats(); s.Stats != 5 || s.Deletes != 4 || s.Retries != 6 {
			t.Errorf("%+v", s)
		}
	})
}
