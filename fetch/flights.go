package fetch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/objstore/endpoint"
)

// flight is a run from when it is ordered until its read has returned. Others may
// have it hurry, because they wait for what was to be fetched ahead; and its stream
// may call off what nobody waits for.
type flight struct {
	t       *tail
	run     span
	fills   []cache.Fill
	urgency *endpoint.Urgency
	stream  uint64 // that it was ordered for
	// shared: another stream has found a chunk of it on its way, and counts on it.
	shared atomic.Bool

	mu     sync.Mutex
	limit  int                     // fills that are still wanted, from the first on; guarded by mu
	done   int                     // of those, how many have their bytes; guarded by mu
	cancel context.CancelCauseFunc // of the read; nil until it begins; guarded by mu

	ended atomic.Bool // its read has returned
}

// errSought ends the read of chunks that nobody wants any more. Nobody is told of
// it: a chunk that somebody waits for is not given up.
var errSought = errors.New("fetch: the reader went elsewhere")

func newFlight(t *tail, run span, fills []cache.Fill, class endpoint.Class) *flight {
	return &flight{t: t, run: run, fills: fills, urgency: endpoint.NewUrgency(class), limit: len(fills)}
}

// begin returns the context of the read, or false if nothing of it is wanted any
// more.
func (f *flight) begin(ctx context.Context) (context.Context, context.CancelCauseFunc, bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancel = cancel
	return ctx, cancel, f.limit > 0
}

// landed publishes the next fill, and ends the read if it was the last that is
// wanted.
func (f *flight) landed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done >= f.limit {
		return // called off: the read is being ended
	}
	f.fills[f.done].Done()
	if f.done++; f.done == f.limit && f.limit < len(f.fills) {
		f.cancel(errSought)
	}
}

// callOff gives up the chunks at the end of the run that nobody waits for, and
// returns their bytes. Those before one that somebody waits for still come.
func (f *flight) callOff() (bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended.Load() || f.shared.Load() {
		return 0
	}
	before := f.limit
	for f.limit > f.done && f.fills[f.limit-1].Abandon(errSought) {
		f.limit--
		bytes += f.t.Table.Len(int(f.fills[f.limit].Key().Chunk))
	}
	if f.limit < before && f.limit == f.done && f.cancel != nil {
		f.cancel(errSought)
	}
	return bytes
}

// depart notes a flight with its segment. Who has joined a chunk of it before, and did
// not find it, is seen now: he leases the chunk, and then looks for the flight.
func (f *flight) depart() {
	t := f.t
	t.mu.Lock()
	t.flights = append(t.flights, f)
	t.mu.Unlock()
	if f.urgency.Class() > endpoint.BackfillDemand && slices.ContainsFunc(f.fills, cache.Fill.Awaited) {
		f.urgency.Raise(endpoint.TailDemand) // as whom he waits is not known
	}
}

// arrive has it forgotten.
func (f *flight) arrive() {
	t := f.t
	f.ended.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range t.flights {
		if other == f {
			last := len(t.flights) - 1
			t.flights[i], t.flights[last] = t.flights[last], nil
			t.flights = t.flights[:last]
			return
		}
	}
}

// flightOf returns the flight that chunk c is on, nil if there is none.
func (t *tail) flightOf(c int) *flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.flights {
		if f.run.from <= c && c < f.run.to {
			return f
		}
	}
	return nil
}

// hurry has the flight of a chunk, for which w waits now, be as urgent as that.
func (t *tail) hurry(c int, w whose) {
	if f := t.flightOf(c); f != nil {
		f.urgency.RaiseFor(w.class, w.tenant)
	}
}

// share notes that a stream counts on a chunk that is on its way, maybe for another.
func (t *tail) share(c int, stream uint64) {
	if f := t.flightOf(c); f != nil && f.stream != stream {
		f.shared.Store(true)
	}
}
