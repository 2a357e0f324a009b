package fetch

import (
	"context"
	"errors"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
)

// order is how chunks are to be fetched, and for whom.
type order struct {
	planner
	whose
}

// demand orders what somebody waits for.
func (r *Reader) demand(t *tail, w whose) order {
	chunk := t.Table.ChunkSize
	return order{planner{first: int(max(r.o.RunBytes/4/chunk, 1)), unit: int(max(r.o.RunBytes/2/chunk, 1)), gap: r.gap(chunk)}, w}
}

// gap returns how many chunks that are here are fetched again to save a GET: as
// many as cost less time than its first byte.
func (r *Reader) gap(chunk int64) int { return int(min(r.meter.worth()/chunk, 2)) }

// start has chunks of one segment, ascending, filled in the background, with GETs
// as o orders them. Every fill is ended, whatever happens. It appends the flights
// to those given.
func (r *Reader) start(ctx context.Context, t *tail, fills []cache.Fill, o order, flights []*flight) []*flight {
	defer func() {
		for _, f := range fills { // only if this caller panics
			f.Fail(errors.New("fetch: the caller who was to fetch the chunk panicked"))
		}
	}()
	var chunks [64]int
	var spans [16]span
	wanted := chunks[:0]
	for _, f := range fills {
		wanted = append(wanted, int(f.Key().Chunk))
	}
	party := len(flights)
	for _, run := range o.runs(spans[:0], wanted) {
		n := 0
		for n < len(fills) && int(fills[n].Key().Chunk) < run.to {
			n++
		}
		mine := fills[:n:n]
		f := r.newFlight(t, run, mine, o.whose)
		flights = append(flights, f)
		f.party = flights[party]
		f.depart()
		r.spawn(ctx, fillActivity, f.abort, f.fly)
		fills = fills[n:]
	}
	return flights
}

// abort gives up what is not here yet. That it has failed is noted before anybody is told:
// who asks again at once is not taken for one whose chunk was here and went.
func (f *flight) abort(err error) {
	f.arrive()
	for _, fill := range f.fills {
		fill.Fail(err)
	}
}

// fly has the chunks of f come, and ends every fill.
func (f *flight) fly(ctx context.Context) {
	defer release(f.fills)
	defer f.abort(errLost) // if it panics: else each fill has ended
	if err := f.bring(ctx); err != nil {
		f.abort(err)
	}
}

// bring has the chunks of f, which are in one span, come with one GET, its own or
// another's.
func (f *flight) bring(ctx context.Context) error {
	for {
		again, err := f.read(ctx)
		if again {
			continue
		}
		if err != nil {
			from, to := f.t.Table.Start(f.run.from), min(f.t.Table.Start(f.run.to), f.t.Table.LogSize())
			err = &damage{key: f.t.key, off: from, n: to - from, err: err}
		}
		return err
	}
}

var (
	// errTaken ends the wait of a flight that another has taken along.
	errTaken = errors.New("fetch: another's GET brings the chunks")
	// errLost is for who waits for a chunk whose GET panics, or was taken along by one that
	// does.
	errLost = errors.New("fetch: the GET that was to bring the chunk panicked")
)

// read is one read of f and of those that it takes along, or that of who takes f along.
// It is again if f is to go once more, by itself.
func (f *flight) read(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !f.begin(cancel) {
		return false, errSought
	}
	err = errLost // should it panic
	defer func() { again, err = f.end(err) }()
	err = f.get(ctx)
	return
}

// begin notes that a read of f begins, unless nothing of it is wanted any more.
func (f *flight) begin(cancel context.CancelCauseFunc) bool {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	if f.done == f.limit {
		return false
	}
	f.cancel, f.fixed, f.flying = cancel, false, flying{began: time.Now()}
	f.lay() // what it waits for, until its turn
	return true
}

// end notes what the read of f has come to.
func (f *flight) end(err error) (bool, error) {
	t := f.t
	t.mu.Lock()
	defer t.mu.Unlock()
	f.cancel = nil
	if arrived := f.arrived; arrived != nil {
		t.mu.Unlock()
		<-arrived // until then somebody writes into our memory
		t.mu.Lock()
		f.arrived, err = nil, f.err
	} else {
		f.alight(err, len(f.aboard) > 1 && errors.Is(err, objstore.ErrCorrupt))
	}
	if f.done == f.limit {
		return false, nil
	}
	return f.alone && errors.Is(err, objstore.ErrCorrupt), err
}

// get makes the GET. An object with another identity than before is read once
// without asking for one: the sums are the identity that counts, and a store
// may have moved the object.
func (f *flight) get(ctx context.Context) error {
	r, t := f.r, f.t
	req := endpoint.ReadRequest{
		Key: t.key, Off: t.Table.Start(f.first), ObjectSize: t.loc.ObjectSize, IfMatch: t.lastSeen(),
		Urgency: f.urgency, Stream: f.stream, Tenant: f.tenant,
		Pieces: f.pieces, Turn: f.turn, Bind: f.bind, Done: f.landed,
	}
	info, err := r.ep.Read(ctx, req)
	if errors.Is(err, objstore.ErrChanged) {
		t.mu.Lock()
		f.fixed = true
		t.mu.Unlock()
		f.base = f.there
		req.Off, req.Pieces, req.IfMatch, req.Turn = t.Table.Start(f.first+f.there), f.pieces[f.there:], "", nil
		r.stats.dataGets.Add(1)
		info, err = r.ep.Read(ctx, req)
	} else if err == nil {
		n := t.Table.Len(f.first)
		r.meter.note(n, min(t.Table.Start(f.first+f.there), t.Table.LogSize())-t.Table.Start(f.first)-n, f.gotFirst, time.Since(f.began))
	}
	if err == nil {
		t.seen(info.Identity)
	}
	return err
}

// turn says what to read, now that it is our turn.
func (f *flight) turn(turn *endpoint.Turn) (off int64, pieces []endpoint.Piece, err error) {
	t := f.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.arrived != nil {
		return 0, nil, errTaken
	}
	if !f.clear() {
		return 0, nil, errSought
	}
	if !f.alone {
		f.board(turn)
	}
	bytes, gaps := f.lay()
	if f.asked == 0 {
		f.r.stats.dataGets.Add(1)
	}
	f.r.stats.dataBytes.Add(max(bytes-f.asked, 0))
	f.r.stats.gaps.Add(max(gaps-f.gaps, 0))
	f.asked, f.gaps = max(bytes, f.asked), max(gaps, f.gaps)
	return t.Table.Start(f.first), f.pieces, nil
}

// lay lays the pieces of those aboard out, for a GET. Chunks in a span that are not to
// be filled are read and forgotten. The caller holds t.mu.
func (f *flight) lay() (bytes, gaps int64) {
	table := &f.t.Table
	f.first, f.part, f.fill = f.aboard[0].span().from, 0, f.aboard[0].done
	last := f.aboard[len(f.aboard)-1].span()
	if n := last.to - f.first; cap(f.pieces) < n {
		f.pieces = make([]endpoint.Piece, 0, n)
	}
	f.pieces = f.pieces[:0]
	for _, p := range f.aboard {
		left := p.fills[p.done:p.limit]
		at := p.span()
		for c := at.from; c < at.to; c++ {
			n := table.Len(c)
			bytes += n
			piece := endpoint.Piece{Len: int(n), CRC32C: table.Chunks[c].CRC32C}
			if int(left[0].Key().Chunk) == c {
				left = left[1:]
			} else {
				gaps += n
				piece.NoVerify = true
			}
			f.pieces = append(f.pieces, piece)
		}
	}
	return bytes, gaps
}

// next returns the flight that chunk c of the GET is for, and which of its fills; nil
// if it is for nobody. It is asked in order.
func (f *flight) next(c int) (p *flight, fill int) {
	for f.part+1 < len(f.aboard) {
		following := f.aboard[f.part+1]
		if int(following.fills[following.done].Key().Chunk) > c {
			break
		}
		f.part, f.fill = f.part+1, following.done
	}
	p = f.aboard[f.part]
	if f.fill == len(p.fills) || int(p.fills[f.fill].Key().Chunk) != c {
		return nil, 0
	}
	return p, f.fill
}

// bind gives a chunk its memory, when its first byte is about to be read.
func (f *flight) bind(i int) []byte {
	t, c := f.t, f.first+f.base+i
	if p, n := f.next(c); p != nil {
		t.mu.Lock()
		f.fixed = true
		wanted := n < p.limit
		t.mu.Unlock()
		if wanted {
			return p.fills[n].Buf()
		}
	}
	if f.scratch == nil {
		f.scratch = make([]byte, t.Table.ChunkSize) // gaps are few and inside: never the shorter last chunk alone
	}
	return f.scratch[:t.Table.Len(c)]
}

// landed publishes a chunk that is there, and ends the read if it was the last that is
// wanted.
func (f *flight) landed(int) {
	t := f.t
	if f.there == 0 {
		f.gotFirst = time.Since(f.began)
	}
	p, n := f.next(f.first + f.there)
	f.there++
	if p == nil {
		return
	}
	f.fill++
	t.mu.Lock()
	wanted := n < p.limit
	if wanted {
		p.done++ // from here on nobody calls it off
	}
	over := !f.expects()
	t.mu.Unlock()
	if wanted {
		f.r.annotate(t, p.fills[n])
		p.fills[n].Done()
	}
	if over && f.there < len(f.pieces) {
		f.cancel(errSought)
	}
}
