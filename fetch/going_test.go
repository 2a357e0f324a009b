package fetch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
)

// TestLaterSegmentGoing: a later segment that is being deleted may hold the
// markers of what is asked for. That is not to say that what is asked for was
// skipped: it is there, and an answer without its markers would be wrong.
func TestLaterSegmentGoing(t *testing.T) {
	searched := 0
	for seed := range uint64(20) {
		log := testseg.Random(seed, testseg.Options{Segments: 3, Batches: 10})
		x := newTier(t, log, tierOptions{})
		x.remove(x.segs[2])
		var res fetch.Result
		for _, s := range log.Segments[:2] {
			for _, b := range s.Batches {
				req := x.request(b.Header.BaseOffset, 1)
				if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
					t.Fatalf("seed %d, offset %d: %v", seed, req.Offset, err)
				}
				req.Isolation = fetch.ReadCommitted
				err := x.reader.Fetch(t.Context(), req, &res)
				if err != nil && (!errors.Is(err, fetch.ErrUnavailable) || errors.Is(err, fetch.ErrSkipped)) {
					t.Fatalf("seed %d, offset %d, read committed: %v", seed, req.Offset, err)
				}
				if err != nil {
					searched++
				}
			}
		}
		res.Release()
		x.close()
	}
	if searched == 0 {
		t.Error("no fetch needed the segment that is going")
	}
}

// TestCallerThatPanics: a caller's own mistake leaves nobody else waiting.
func TestCallerThatPanics(t *testing.T) {
	log := testseg.Random(3, testseg.Options{Segments: 1, Batches: 10})
	x := newTier(t, log, tierOptions{})
	defer x.close()
	var res fetch.Result
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a nil context was taken")
			}
		}()
		var none context.Context
		_ = x.reader.Fetch(none, x.request(x.start(), 1), &res)
	}()
	if err := x.reader.Fetch(t.Context(), x.request(x.start(), 1), &res); err != nil {
		t.Error(err)
	}
	res.Release()
}
