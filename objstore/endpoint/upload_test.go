package endpoint

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

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
	synctest.Test(t, func(t *testing.T) {
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
