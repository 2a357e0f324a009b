package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestFetchesAreTold(t *testing.T) {
	x := newTier(t, testseg.Random(5, testseg.Options{Segments: 2, Batches: 8}), tierOptions{})
	defer x.close()
	type key struct{}
	var told []fetch.Fetched
	r, err := fetch.New(x.meta, x.ep, x.cache, fetch.Options{Events: fetch.Events{Fetched: func(ctx context.Context, f fetch.Fetched) {
		if ctx.Value(key{}) != "mine" {
			t.Error("the context is not the caller's")
		}
		told = append(told, f)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx := context.WithValue(t.Context(), key{}, "mine")
	var res fetch.Result
	defer res.Release()
	for _, offset := range []int64{x.start(), x.end() - 1, x.end(), -1} {
		req := x.request(offset, 5000)
		err := r.Fetch(ctx, req, &res)
		if len(told) != 1 {
			t.Fatalf("told %d times", len(told))
		}
		f := told[0]
		told = told[:0]
		if f.Request.Offset != offset || f.Request.MaxBytes != 5000 || f.Request.Partition != req.Partition || f.Size != res.Size() ||
			f.NextOffset != res.NextOffset() || !errors.Is(err, f.Err) || f.Began.IsZero() || f.Took < 0 {
			t.Errorf("%+v; it was %v, %d bytes to %d", f, err, res.Size(), res.NextOffset())
		}
	}
}

// A profile says what a goroutine of the Reader is doing, if it is asked to.
func TestGoroutinesHaveLabels(t *testing.T) {
	for _, labels := range []bool{false, true} {
		x := newTier(t, testseg.Random(5, testseg.Options{Segments: 1, Batches: 8}), tierOptions{})
		r, err := fetch.New(x.meta, x.ep, x.cache, fetch.Options{Labels: labels})
		if err != nil {
			t.Fatal(err)
		}
		var profiles []string
		x.inject(func(storetest.Call) storetest.Fault {
			var b bytes.Buffer
			if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
				t.Error(err)
			}
			profiles = append(profiles, b.String())
			return storetest.Fault{}
		})
		var res fetch.Result
		if err := r.Fetch(t.Context(), x.request(x.start(), 1), &res); err != nil {
			t.Fatal(err)
		}
		res.Release()
		if len(profiles) < 2 {
			t.Fatalf("%d GETs", len(profiles))
		}
		for i, want := range []string{`"segtier":"tail"`, `"segtier":"fill"`} {
			if got := strings.Contains(profiles[i], want); got != labels {
				t.Errorf("labels %t: the goroutine of GET %d has %s: %t", labels, i, want, got)
			}
		}
		r.Close()
		x.close()
	}
}
