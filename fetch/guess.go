package fetch

import (
	"context"
	"errors"
	"hash/crc32"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore/endpoint"
)

// errGuess fails a chunk that was asked for on a guess that was wrong. Who waits
// for it asks again, knowing better.
var errGuess = errors.New("fetch: the chunk was another one than was guessed")

// usualChunk is the length of a chunk if nobody chose another.
const usualChunk = 1 << 20

// guess has the first chunk of a segment read while its tail t is on its way, if
// that is where offset is: for a reader in sequence the two take the time of one.
// The guess is made only where it cannot well be wrong: the first offset is in the
// first chunk, and chunks are as long as those of the segments seen before, or as
// is usual. What
// was read is verified by the tail before anybody gets it.
//
// The chunk is leased into l until the caller has leased what it needs, or waits for
// memory: otherwise nobody has it when both are here, and it goes to who waits for
// memory before the caller comes round to take it.
//
// size is the length of a chunk as known before the tail was asked for, 0 if it was
// not: when the tail is there already nothing is to be guessed.
func (r *Reader) guess(ctx context.Context, t *tail, seg *metadata.Segment, tenant string, offset, size int64, l *cache.Lease) {
	if size == 0 && seg.SizeBytes >= 4*usualChunk {
		size = usualChunk
	}
	if size == 0 || offset != seg.StartOffset || seg.SizeBytes <= 0 || t.guessed.Swap(true) {
		return
	}
	n := min(size, seg.SizeBytes)
	key := cache.Key{Object: seg.ID}
	var room cache.Reservation
	if r.cache.Has(key) || !r.cache.TryReserve(n, &room) {
		return
	}
	outcome, fill := r.cache.Acquire(key, int(n), &room, l)
	room.Release()
	if outcome != cache.Led {
		return
	}
	objectKey, loc, err := location(seg)
	if err != nil {
		fill.Fail(errGuess)
		fill.Release()
		return
	}
	r.spawn(ctx, fillActivity, fill.Fail, func(ctx context.Context) {
		defer fill.Release()
		defer fill.Fail(errLost) // if it panics: else it has ended
		began := time.Now()
		r.stats.dataGets.Add(1)
		r.stats.dataBytes.Add(n)
		_, readErr := r.ep.Read(ctx, endpoint.ReadRequest{
			Key: objectKey, ObjectSize: loc.ObjectSize, Tenant: tenant,
			Pieces: []endpoint.Piece{{Len: int(n), NoVerify: true}}, Bind: func(int) []byte { return fill.Buf() },
		})
		if readErr == nil {
			r.meter.note(n, 0, time.Since(began), time.Since(began))
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			fill.Fail(context.Cause(ctx))
			return
		}
		switch {
		case t.err != nil || len(t.Table.Chunks) == 0 || t.Table.Len(0) != n:
			r.stats.wasted.Add(n)
			fill.Fail(errGuess)
		case readErr == nil && crc32.Checksum(fill.Buf(), crc32.MakeTable(crc32.Castagnoli)) == t.Table.Chunks[0].CRC32C:
			t.place(fill)
			r.annotate(t, fill)
			fill.Done()
		default:
			// It may have been damaged on the way: the usual way says.
			t.place(fill)
			if err := r.newFlight(t, span{0, 1}, []cache.Fill{fill}, whose{tenant: tenant}).bring(ctx); err != nil {
				fill.Fail(err)
			}
		}
	})
}
