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
	for _, run := range o.runs(spans[:0], wanted) {
		n := 0
		for n < len(fills) && int(fills[n].Key().Chunk) < run.to {
			n++
		}
		mine := fills[:n:n]
		abort := func(err error) {
			for _, f := range mine {
				f.Fail(err)
			}
		}
		f := newFlight(t, run, mine, o.class)
		f.stream = o.stream
		f.depart()
		flights = append(flights, f)
		r.spawn(ctx, fillActivity, func(err error) { abort(err); f.arrive() }, func(ctx context.Context) {
			defer release(mine)
			defer f.arrive()
			if err := r.run(ctx, t, o, f); err != nil {
				abort(err)
			}
		})
		fills = fills[n:]
	}
	return flights
}

// run fills chunks, which are in one span, with one GET and publishes each as soon
// as it is verified. Chunks of the span that are not to be filled are read and
// forgotten.
func (r *Reader) run(ctx context.Context, t *tail, o order, f *flight) error {
	run := f.run
	ctx, cancel, ok := f.begin(ctx)
	defer cancel(nil)
	if !ok {
		return errSought
	}
	x := ride{r: r, f: f, wanted: f.fills, unbound: f.fills}
	req := endpoint.ReadRequest{
		Key: t.key, Off: t.Table.Start(run.from), ObjectSize: t.loc.ObjectSize, IfMatch: t.lastSeen(),
		Urgency: f.urgency, Stream: o.stream, Tenant: o.tenant,
		Pieces: make([]endpoint.Piece, 0, run.len()), Bind: x.bind, Done: x.landed,
	}
	var bytes, gaps int64
	left := f.fills
	for c := run.from; c < run.to; c++ {
		n := t.Table.Len(c)
		bytes += n
		p := endpoint.Piece{Len: int(n), CRC32C: t.Table.Chunks[c].CRC32C}
		if int(left[0].Key().Chunk) == c {
			left = left[1:]
		} else {
			gaps += n
			p.NoVerify = true
		}
		req.Pieces = append(req.Pieces, p)
	}
	r.stats.dataBytes.Add(bytes)
	r.stats.gaps.Add(gaps)
	err := x.read(ctx, &req)
	if err != nil {
		err = &damage{key: t.key, off: t.Table.Start(run.from), n: bytes, err: err}
	}
	return err
}

// ride is a run while it is read.
type ride struct {
	r       *Reader
	f       *flight
	done    int           // pieces that are there
	past    int           // pieces of the run before those of the GET that goes on
	wanted  []cache.Fill  // that are not there yet
	unbound []cache.Fill  // that have no memory yet
	scratch []byte        // for what is here already
	began   time.Time     // when it was asked for
	first   time.Duration // until the first piece was there
}

// bind gives a chunk its memory, when its first byte is about to be read.
func (x *ride) bind(i int) []byte {
	t, c := x.f.t, x.f.run.from+x.past+i
	if len(x.unbound) > 0 && int(x.unbound[0].Key().Chunk) == c {
		f := x.unbound[0]
		x.unbound = x.unbound[1:]
		return f.Buf()
	}
	if x.scratch == nil {
		x.scratch = make([]byte, t.Table.ChunkSize) // gaps are few and inside: never the shorter last chunk alone
	}
	return x.scratch[:t.Table.Len(c)]
}

// landed publishes a chunk that is there.
func (x *ride) landed(int) {
	c := x.f.run.from + x.done
	if x.done++; x.done == 1 {
		x.first = time.Since(x.began)
	}
	if len(x.wanted) > 0 && int(x.wanted[0].Key().Chunk) == c {
		x.r.annotate(x.f.t, x.wanted[0])
		x.f.landed()
		x.wanted = x.wanted[1:]
	}
}

// read makes the GET. An object with another identity than before is read once
// without asking for one: the sums are the identity that counts, and a store
// may have moved the object.
func (x *ride) read(ctx context.Context, req *endpoint.ReadRequest) error {
	r, t, from := x.r, x.f.t, x.f.run.from
	x.began = time.Now()
	r.stats.dataGets.Add(1)
	info, err := r.ep.Read(ctx, *req)
	if errors.Is(err, objstore.ErrChanged) {
		x.past = x.done
		req.Off = t.Table.Start(from + x.done)
		req.Pieces, req.IfMatch = req.Pieces[x.done:], ""
		r.stats.dataGets.Add(1)
		info, err = r.ep.Read(ctx, *req)
	} else if err == nil {
		n := t.Table.Len(from)
		r.meter.note(n, min(t.Table.Start(from+x.done), t.Table.LogSize())-t.Table.Start(from)-n, x.first, time.Since(x.began))
	}
	if err == nil {
		t.seen(info.Identity)
	}
	return err
}
