package fetch

import (
	"context"
	"errors"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
)

// start has chunks of one segment filled in the background: those that follow
// each other with one GET, up to RunBytes. Every fill is ended, whatever
// happens.
func (r *Reader) start(ctx context.Context, t *tail, fills []cache.Fill) {
	defer func() {
		for _, f := range fills { // only if this caller panics
			f.Fail(errors.New("fetch: the caller who was to fetch the chunk panicked"))
		}
	}()
	for len(fills) > 0 {
		n, bytes := 1, t.Table.Len(int(fills[0].Key().Chunk))
		for n < len(fills) && fills[n].Key().Chunk == fills[n-1].Key().Chunk+1 {
			bytes += t.Table.Len(int(fills[n].Key().Chunk))
			if bytes > r.o.RunBytes {
				break
			}
			n++
		}
		run := fills[:n:n]
		abort := func(err error) {
			for _, f := range run {
				f.Fail(err)
			}
		}
		r.spawn(ctx, fillActivity, abort, func(ctx context.Context) {
			if err := r.run(ctx, t, run); err != nil {
				abort(err)
			}
		})
		fills = fills[n:]
	}
}

// run fills consecutive chunks with one GET and publishes each as soon as it is
// verified.
func (r *Reader) run(ctx context.Context, t *tail, fills []cache.Fill) error {
	first := int(fills[0].Key().Chunk)
	req := endpoint.ReadRequest{
		Key: t.key, Off: t.Table.Start(first), ObjectSize: t.loc.ObjectSize, IfMatch: t.lastSeen(),
		Pieces: make([]endpoint.Piece, len(fills)),
	}
	var bytes int64
	for i, f := range fills {
		req.Pieces[i] = endpoint.Piece{Buf: f.Buf(), CRC32C: t.Table.Chunks[first+i].CRC32C}
		bytes += t.Table.Len(first + i)
	}
	r.stats.dataBytes.Add(bytes)
	err := r.read(ctx, t, &req, fills)
	if err != nil {
		err = &damage{key: t.key, off: t.Table.Start(first), n: bytes, err: err}
	}
	return err
}

// read makes the GET. An object with another identity than before is read once
// without asking for one: the sums are the identity that counts, and a store
// may have moved the object.
func (r *Reader) read(ctx context.Context, t *tail, req *endpoint.ReadRequest, fills []cache.Fill) error {
	filled := 0
	req.Done = func(int) {
		r.annotate(t, fills[filled])
		fills[filled].Done()
		filled++
	}
	r.stats.dataGets.Add(1)
	info, err := r.ep.Read(ctx, *req)
	if errors.Is(err, objstore.ErrChanged) {
		for _, p := range req.Pieces[:filled] {
			req.Off += int64(len(p.Buf))
		}
		req.Pieces, req.IfMatch = req.Pieces[filled:], ""
		r.stats.dataGets.Add(1)
		info, err = r.ep.Read(ctx, *req)
	}
	if err == nil {
		t.seen(info.Identity)
	}
	return err
}
