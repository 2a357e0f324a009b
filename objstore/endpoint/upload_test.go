package endpoint

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// pending has uploads of some keys left unfinished on a store in memory.
func pending(t *testing.T, keys ...string) objstore.Store {
	t.Helper()
	mem := storetest.NewMem()
	for _, key := range keys {
		ctx, cancel := context.WithCancel(t.Context())
		req := upload(key, content(20), 10)
		req.Confirmed = func(objstore.PartEvidence) { cancel() }
		if _, err := mem.Upload(ctx, req); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	return mem
}

// What is listed again after a fault is yielded once.
func TestUploadsGoOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		want := []string{"k/0", "k/1", "k/2", "k/3"}
		e := open(t, storetest.Inject(pending(t, append(slices.Clone(want), "other")...), storetest.Rules(
			rule("uploads", 1, storetest.Fault{Kind: storetest.Cut, At: 2}),
			rule("uploads", 2, storetest.Fault{Kind: storetest.FailBefore}),
			rule("uploads", 3, storetest.Fault{Kind: storetest.Cut, At: 3}),
			rule("uploads", 5, storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrRefused}),
			rule("abort", 1, storetest.Fault{Kind: storetest.FailAfter}),
		)), Options{Requests: 1, Attempts: 3})
		var got []string
		var all []objstore.Pending
		for p, err := range e.Uploads(t.Context(), "k/") {
			if err != nil {
				t.Fatal(err)
			}
			got, all = append(got, p.Key), append(all, p)
			if _, err := e.Stat(t.Context(), "absent"); !errors.Is(err, objstore.ErrNotExist) { // a slot is to be had
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) || e.Stats().Lists != 4 {
			t.Errorf("%q after %d lists", got, e.Stats().Lists)
		}
		for _, p := range append(all, all[0]) { // the last one is gone
			if err := e.Abort(t.Context(), p); err != nil {
				t.Error(err)
			}
		}
		var errs []error
		for _, err := range e.Uploads(t.Context(), "") {
			errs = append(errs, err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], objstore.ErrRefused) {
			t.Errorf("%v", errs)
		}
		for p, err := range e.Uploads(t.Context(), "") {
			if err != nil || p.Key != "other" {
				t.Errorf("%+v, %v", p, err)
			}
			break
		}
	})
}

// A store that leaves nothing unfinished has nothing to list.
func TestUploadsOfAStoreThatListsNone(t *testing.T) {
	e := open(t, stub{}, Options{})
	for p, err := range e.Uploads(t.Context(), "") {
		t.Errorf("%+v, %v", p, err)
	}
	if err := e.Abort(t.Context(), objstore.Pending{Key: "k", ID: "1"}); err != nil {
		t.Error(err)
	}
}

// An upload that gets no further is given up and tried again.
func TestAnUploadThatStallsIsTriedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := storetest.Inject(storetest.NewMem(), storetest.Rules(
			rule("upload", 1, storetest.Fault{Kind: storetest.Stall, At: 15}),
		))
		e := open(t, store, Options{UploadProgressTimeout: 30 * time.Second})
		start := time.Now()
		ev, err := e.Upload(t.Context(), upload("key", content(25), 10))
		if err != nil || len(ev.Parts) != 3 || e.Stats().Stalls != 1 {
			t.Errorf("%+v, %v, %d stalls", ev, err, e.Stats().Stalls)
		}
		if took := time.Since(start); took < 30*time.Second || took > 30*time.Second+faultBase {
			t.Errorf("took %v", took)
		}
		idle(t, e)
	})
}

// sealing takes long over what no slot is held for, and over waiting for one.
type sealing struct{ objstore.Store }

func (s sealing) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	wait := func() error {
		select {
		case <-time.After(time.Hour):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait(); err != nil {
		return objstore.Evidence{}, err
	}
	ev, err := s.Store.Upload(ctx, req)
	if err == nil {
		err = wait()
	}
	return ev, err
}

func TestSealingMayTakeLong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := open(t, sealing{storetest.NewMem()}, Options{})
		if _, err := e.Upload(t.Context(), upload("key", content(25), 10)); err != nil || e.Stats().Uploads != 1 {
			t.Errorf("%v after %d tries", err, e.Stats().Uploads)
		}
	})
}

// A source that was cut is no fault of the store's.
func TestASourceThatShrinksIsNotTriedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := open(t, storetest.NewMem(), Options{})
		req := upload("key", content(25), 10)
		req.Body = bytes.NewReader(content(25)[:17])
		var oe *objstore.Error
		_, err := e.Upload(t.Context(), req)
		if !errors.Is(err, errShrunk) || !errors.As(err, &oe) || oe.Key != "key" || !strings.Contains(err.Error(), "byte 17 of 25") {
			t.Errorf("%v", err)
		}
		if st := e.Stats(); st.Uploads != 1 {
			t.Errorf("%d tries", st.Uploads)
		}
	})
}
