package fetch

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/objstore/endpoint"
)

// flight is a run from when it is ordered until its chunks are here. Others may have
// it hurry, because they wait for what was to be fetched ahead; its stream may call off
// what nobody waits for; and while it waits for its turn, one that has its turn may take
// it along: see seats.
type flight struct {
	r       *Reader
	t       *tail
	run     span
	fills   []cache.Fill
	stream  uint64
	tenant  string
	party   *flight // the first of those that were ordered together
	urgency *endpoint.Urgency
	ended   atomic.Bool // it is over

	// Guarded by t.mu.
	seats
	limit   int                     // fills that are still wanted, from the first on
	done    int                     // of those, how many have their bytes
	shared  bool                    // another stream has found a chunk of it on its way, and counts on it
	off     bool                    // its stream has called it off
	cancel  context.CancelCauseFunc // of its read; nil while there is none
	fixed   bool                    // bytes have come, or nobody will ask again what to read
	alone   bool                    // what it was with was damaged: it goes by itself
	pilot   *flight                 // whose read brings its chunks; nil: its own
	arrived chan struct{}           // closed when that is so no more; nil: it was not taken along
	err     error                   // that the pilot's read ended with; constant once arrived is closed

	flying // of its read; for the goroutine of that alone
}

// flying is the state of a read.
type flying struct {
	part, fill int              // that come next
	first      int              // chunk that the GET begins with
	pieces     []endpoint.Piece // of the GET
	there      int              // of those, how many are there
	base       int              // and how many were before a second GET
	asked      int64            // bytes that it is counted with
	gaps       int64            // of those, what is read over
	scratch    []byte           // for what is here already
	began      time.Time        // when it was asked for
	gotFirst   time.Duration    // until its first piece was there
}

// errSought ends the read of chunks that nobody wants any more. Nobody is told of
// it: a chunk that somebody waits for is not given up.
var errSought = errors.New("fetch: the reader went elsewhere")

func (r *Reader) newFlight(t *tail, run span, fills []cache.Fill, w whose) *flight {
	f := &flight{r: r, t: t, run: run, fills: fills, stream: w.stream, tenant: w.tenant, urgency: endpoint.NewUrgency(w.class), limit: len(fills)}
	f.party = f
	f.self[0] = f
	f.aboard = f.self[:]
	return f
}

// span returns the chunks from the first to the last one that are still to come. The
// caller holds t.mu, and knows that there are some.
func (f *flight) span() span {
	return span{int(f.fills[f.done].Key().Chunk), int(f.fills[f.limit-1].Key().Chunk) + 1}
}

// callOff gives up the chunks at the end of the run that nobody waits for, and
// returns their bytes. Those before one that somebody waits for still come, also if
// that is another flight's.
func (f *flight) callOff() (bytes int64) {
	t := f.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.ended.Load() || f.shared {
		return 0
	}
	f.off = true
	pilot := f
	if f.pilot != nil {
		pilot = f.pilot
	}
	all := pilot.aboard
	for i := len(all) - 1; i >= 0; i-- {
		p := all[i]
		if !p.off {
			break
		}
		for p.limit > p.done && p.fills[p.limit-1].Abandon(errSought) {
			p.limit--
			bytes += t.Table.Len(int(p.fills[p.limit].Key().Chunk))
		}
		if p.limit > 0 {
			break
		}
	}
	if bytes > 0 && !pilot.expects() && pilot.cancel != nil {
		pilot.cancel(errSought)
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

// arrive has it forgotten, but for what it did not bring. It may be called more than once.
func (f *flight) arrive() {
	t := f.t
	if f.ended.Swap(true) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fill := range f.fills[min(f.done, f.limit):f.limit] {
		if t.failed == nil {
			t.failed = make(map[int]struct{})
		}
		t.failed[int(fill.Key().Chunk)] = struct{}{}
	}
	if i := slices.Index(t.flights, f); i >= 0 {
		last := len(t.flights) - 1
		t.flights[i], t.flights[last] = t.flights[last], nil
		t.flights = t.flights[:last]
	}
}

// again reports whether a chunk that is asked for was asked for before and has not come.
func (t *tail) again(c int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, failed := t.failed[c]
	delete(t.failed, c)
	return failed
}

// flightOf returns the flight that is to bring chunk c; nil if there is none. One that has
// brought it, has called it off or reads over it is not it: since then the chunk may have
// gone, and be on its way with another. The caller holds t.mu.
func (t *tail) flightOf(c int) *flight {
	for _, f := range t.flights {
		if f.run.from <= c && c < f.run.to && slices.ContainsFunc(f.fills[f.done:f.limit], func(fill cache.Fill) bool { return int(fill.Key().Chunk) == c }) {
			return f
		}
	}
	return nil
}

// hurry has the flight of a chunk, for which w waits now, be as urgent as that; also if
// it comes with another's read.
func (t *tail) hurry(c int, w whose) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.flightOf(c)
	if f == nil {
		return
	}
	f.urgency.RaiseFor(w.class, w.tenant)
	if f.pilot != nil {
		f.pilot.urgency.RaiseFor(w.class, w.tenant)
	}
}

// share notes that a stream counts on a chunk that is on its way, maybe for another,
// whatever that one does or has done.
func (t *tail) share(c int, stream uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.flightOf(c); f != nil && f.stream != stream {
		f.shared, f.off = true, false
	}
}
