package fetch

import (
	"context"
	"runtime/pprof"
	"time"
)

// Events are functions that are called, if not nil, as things happen: from the
// goroutine that they happen in, and never under a lock. What they take in time is
// the caller's.
type Events struct {
	// Fetched: a call of Fetch or Stream.Next ends, with data or without, or a FetchMany:
	// then it is called for each partition. ctx is the caller's.
	Fetched func(ctx context.Context, f Fetched)
}

// Fetched is one call of Fetch, or one partition of a FetchMany.
type Fetched struct {
	Request    Request // its Lineage is the caller's and must not be kept
	Began      time.Time
	Took       time.Duration
	Size       int   // bytes in the Result, 0 if Err is not nil
	NextOffset int64 // behind the Result, 0 if Err is not nil
	Err        error
}

// tell calls Fetch and tells of it.
func (r *Reader) tell(ctx context.Context, req Request, res *Result) error {
	f := Fetched{Request: req, Began: time.Now()}
	f.Err = r.fetch(ctx, &req, res, terms{})
	f.Took, f.Size, f.NextOffset = time.Since(f.Began), res.Size(), res.NextOffset()
	r.o.Events.Fetched(ctx, f)
	return f.Err
}

// activity is what a goroutine of the Reader does, for profiles.
type activity string

const (
	fillActivity activity = "fill" // reads a run of chunks and verifies them
	tailActivity activity = "tail" // reads and parses the tail of a segment
)

// labelled runs f under the label segtier=<what>, if the Reader's goroutines have
// labels.
func (r *Reader) labelled(ctx context.Context, what activity, f func(context.Context)) {
	if !r.o.Labels {
		f(ctx)
		return
	}
	pprof.Do(ctx, pprof.Labels("segtier", string(what)), f)
}
