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
	req := endpoint.ReadRequest{
		Key: t.key, Off: t.Table.Start(run.from), ObjectSize: t.loc.ObjectSize, IfMatch: t.lastSeen(),
		Urgency: f.urgency, Stream: o.stream, Tenant: o.tenant,
		Pieces: make([]endpoint.Piece, 0, run.len()),
	}
	var bytes, gaps int64
	var scratch []byte
	left := f.fills
	for c := run.from; c < run.to; c++ {
		n := t.Table.Len(c)
		bytes += n
		if int(left[0].Key().Chunk) == c {
			req.Pieces = append(req.Pieces, endpoint.Piece{Buf: left[0].Buf(), CRC32C: t.Table.Chunks[c].CRC32C})
			left = left[1:]
			continue
		}
		gaps += n
		if scratch == nil {
			scratch = make([]byte, t.Table.ChunkSize) // gaps are few and inside: never the shorter last chunk alone
		}
		req.Pieces = append(req.Pieces, endpoint.Piece{Buf: scratch[:n], NoVerify: true})
	}
	r.stats.dataBytes.Add(bytes)
	r.stats.gaps.Add(gaps)
	err := r.read(ctx, t, &req, f)
	if err != nil {
		err = &damage{key: t.key, off: t.Table.Start(run.from), n: bytes, err: err}
	}
	return err
}

// read makes the GET. An object with another identity than before is read once
// without asking for one: the sums are the identity that counts, and a store
// may have moved the object.
func (r *Reader) read(ctx context.Context, t *tail, req *endpoint.ReadRequest, f *flight) error {
	done, from, fills := 0, f.run.from, f.fills
	began, first := time.Now(), time.Duration(0)
	req.Done = func(int) {
		c := from + done
		if done++; done == 1 {
			first = time.Since(began)
		}
		if len(fills) > 0 && int(fills[0].Key().Chunk) == c {
			r.annotate(t, fills[0])
			f.landed()
			fills = fills[1:]
		}
	}
	r.stats.dataGets.Add(1)
	info, err := r.ep.Read(ctx, *req)
	if errors.Is(err, objstore.ErrChanged) {
		for _, p := range req.Pieces[:done] {
			req.Off += int64(len(p.Buf))
		}
		req.Pieces, req.IfMatch = req.Pieces[done:], ""
		r.stats.dataGets.Add(1)
		info, err = r.ep.Read(ctx, *req)
	} else if err == nil {
		n := t.Table.Len(from)
		r.meter.note(n, min(t.Table.Start(from+done), t.Table.LogSize())-t.Table.Start(from)-n, first, time.Since(began))
	}
	if err == nil {
		t.seen(info.Identity)
	}
	return err
}
