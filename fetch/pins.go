package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// pins is a window of consecutive chunks of one segment, leased. It slides
// forward over the log: restart moves its beginning, need its end.
type pins struct {
	t      *tail
	first  int           // number of the first chunk
	ready  int           // how many of the leases have their bytes
	leases []cache.Lease // chunks first, first+1, …
	guess  cache.Lease   // the first chunk of the segment, if it was asked for before its tail was here
	head   [segment.HeaderSize]byte
	whose  whose // waits for the chunks
}

// whose says for whom something is asked of the store. The zero value is a reader
// near the tail of whom nothing is known.
type whose struct {
	class  endpoint.Class
	stream uint64
	tenant string
}

// errShort says that there is no memory for more right now, and that the caller
// holds too much to wait for it.
var errShort = errors.New("no memory for more now")

// open begins with another segment. Nothing may be held.
func (p *pins) open(t *tail) { p.t, p.first, p.ready = t, 0, 0 }

// release lets every chunk go.
func (p *pins) release() {
	p.truncate(0)
	p.guess.Release()
}

// truncate lets all but the first n chunks go.
func (p *pins) truncate(n int) {
	for i := n; i < len(p.leases); i++ {
		p.leases[i].Release()
	}
	p.leases = p.leases[:n]
	p.ready = min(p.ready, n)
}

// restart lets go of the chunks before chunk c, from which to go on.
func (p *pins) restart(c int) {
	n := c - p.first
	if n < 0 || n > len(p.leases) {
		p.release()
		p.first = c
		return
	}
	for i := range n {
		p.leases[i].Release()
	}
	copy(p.leases, p.leases[n:])
	clear(p.leases[len(p.leases)-n:]) // copies: the leases have moved
	p.leases = p.leases[:len(p.leases)-n]
	p.first, p.ready = c, max(p.ready-n, 0)
}

// end returns the position in the log up to which bytes are there.
func (p *pins) end() int64 {
	return min(p.t.Table.Start(p.first+p.ready), p.t.Table.LogSize())
}

// lease acquires the next chunk; nil room and no memory to be had is false.
func (r *Reader) lease(p *pins, room *cache.Reservation) (cache.Fill, cache.Outcome) {
	c := p.first + len(p.leases)
	size := int(p.t.Table.Len(c))
	p.leases = append(p.leases, cache.Lease{})
	l := &p.leases[len(p.leases)-1]
	key := cache.Key{Object: p.t.id, Chunk: uint32(c)}
	outcome, fill := r.cache.Acquire(key, size, room, l)
	if outcome == cache.Missing && room == nil {
		var one cache.Reservation
		if r.cache.TryReserve(int64(size), &one) {
			outcome, fill = r.cache.Acquire(key, size, &one, l)
			one.Release() // somebody else led meanwhile
		}
	}
	if outcome == cache.Missing {
		p.leases = p.leases[:len(p.leases)-1]
	}
	if outcome == cache.Led {
		p.t.place(fill)
	} else if outcome == cache.Joined {
		p.t.hurry(c, p.whose)
	}
	return fill, outcome
}

// extend acquires chunks up to and with chunk `to`, out of room if that is not
// nil, else as far as there is memory without waiting; and has the missing ones
// filled.
func (r *Reader) extend(ctx context.Context, p *pins, to int, room *cache.Reservation) {
	if fills := r.acquire(p, to, room); fills != nil {
		r.start(ctx, p.t, fills, r.demand(p.t, p.whose), nil)
	}
}

// acquire is extend, but leaves what is missing to the caller to fill.
func (r *Reader) acquire(p *pins, to int, room *cache.Reservation) (fills []cache.Fill) {
	for p.first+len(p.leases) <= to {
		fill, outcome := r.lease(p, room)
		if outcome == cache.Missing {
			break
		}
		if outcome == cache.Led {
			fills = append(fills, fill)
		}
	}
	return fills
}

// need makes the chunks from the window's first to chunk `must` ready, and asks
// for more up to chunk `want` if there is memory. If there is not enough for
// what must be, it lets go of everything and waits for its turn, unless the
// caller holds other memory (patient is false): then it is errShort.
func (r *Reader) need(ctx context.Context, p *pins, must, want int, patient bool) error {
	for {
		// A guess is made once for each tail: this ends.
		if err := r.needOnce(ctx, p, must, want, patient); !errors.Is(err, errGuess) {
			return err
		}
	}
}

func (r *Reader) needOnce(ctx context.Context, p *pins, must, want int, patient bool) error {
	r.extend(ctx, p, max(must, want), nil)
	if p.first+len(p.leases) <= must {
		if !patient {
			return errShort
		}
		if err := r.queue(ctx, p, must); err != nil {
			return err
		}
	}
	for p.first+p.ready <= must {
		if err := r.await(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// queue reserves all that is needed before it holds any of it.
func (r *Reader) queue(ctx context.Context, p *pins, must int) error {
	p.release()
	var n int64
	for c := p.first; c <= must; c++ {
		n += p.t.Table.Len(c)
	}
	var room cache.Reservation
	if err := r.reserve(ctx, n, &room); err != nil {
		return err
	}
	defer room.Release()
	r.extend(ctx, p, must, &room)
	if p.first+len(p.leases) <= must {
		return ErrClosed // of the cache: there was memory for all
	}
	return nil
}

// reserve waits for memory, and says that it did if ctx ends before. Close ends the wait.
func (r *Reader) reserve(ctx context.Context, n int64, room *cache.Reservation) error {
	ctx, cancel := context.WithCancelCause(ctx)
	j := &job{cancel: cancel}
	if !r.begin(j) {
		cancel(ErrClosed)
		return ErrClosed
	}
	defer r.end(j)
	began := time.Now()
	err := r.cache.Reserve(ctx, n, room)
	switch {
	case err == nil:
	case errors.Is(err, cache.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrBatchTooLarge, err)
	case errors.Is(err, cache.ErrClosed):
		return ErrClosed
	default:
		return fmt.Errorf("waited %v for %d bytes of memory: Results that are not released, and reads in progress, hold all of the budget: %w",
			time.Since(began).Round(time.Millisecond), n, err)
	}
	return nil
}

// await waits for the next leased chunk.
func (r *Reader) await(ctx context.Context, p *pins) error {
	if err := p.leases[p.ready].Wait(ctx); err != nil {
		p.truncate(p.ready)
		return err
	}
	p.ready++
	return nil
}

// bytes returns n bytes at a position of the log, all of them ready; those that
// straddle chunks are copied into scratch, which must be long enough.
func (p *pins) bytes(pos int64, n int, scratch []byte) []byte {
	c := p.t.chunk(pos)
	b := p.leases[c-p.first].Bytes()[pos-p.t.Table.Start(c):]
	if len(b) >= n {
		return b[:n]
	}
	have := copy(scratch, b)
	for have < n {
		c++
		have += copy(scratch[have:n], p.leases[c-p.first].Bytes())
	}
	return scratch[:n]
}

// peek returns length and last offset of the batch at pos, if its chunk is ready
// and so much of its header is in there.
func (p *pins) peek(pos int64) (size int, last int64, ok bool) {
	c := p.t.chunk(pos)
	if c-p.first >= p.ready {
		return 0, 0, false
	}
	b := p.leases[c-p.first].Bytes()[pos-p.t.Table.Start(c):]
	if len(b) < peeked {
		return 0, 0, false
	}
	return peek(b)
}

// skip returns the position of the first batch from the one at pos on whose last
// offset is at least offset, or of one before it that peek cannot tell.
func (p *pins) skip(pos, offset int64) int64 {
	for end := p.end(); pos < end; {
		size, last, ok := p.peek(pos)
		if !ok || last >= offset {
			break
		}
		pos += int64(size)
	}
	return pos
}

// headerEnd returns where the header of a batch at pos ends at the latest.
func (p *pins) headerEnd(pos int64) int64 {
	return min(pos+segment.HeaderSize, p.t.Table.LogSize())
}

// parse decodes the header of the batch at pos, all of it ready, and checks that
// the batch ends within the log. The bytes have been verified: what is wrong
// here was wrong when it was copied.
func (p *pins) parse(pos int64) (segment.Header, error) {
	h, err := segment.ParseHeader(p.bytes(pos, int(p.headerEnd(pos)-pos), p.head[:]))
	if err == nil && pos+int64(h.Size) > p.t.Table.LogSize() {
		err = &segment.BatchError{Pos: pos, Offset: h.BaseOffset, Reason: fmt.Sprintf("its %d bytes go beyond the log of %d", h.Size, p.t.Table.LogSize())}
	}
	if errors.Is(err, segment.ErrShort) {
		err = &segment.BatchError{Pos: pos, Offset: -1, Reason: "the log ends in its header"}
	}
	if err != nil {
		return h, &damage{key: p.t.key, off: pos, n: p.headerEnd(pos) - pos, err: err}
	}
	return h, nil
}

// header is parse for a header that may not be there yet.
func (r *Reader) header(ctx context.Context, p *pins, pos int64, patient bool) (segment.Header, error) {
	if end := p.headerEnd(pos); end > p.end() {
		c := p.t.chunk(end - 1)
		if err := r.need(ctx, p, c, c, patient); err != nil {
			return segment.Header{}, err
		}
	}
	return p.parse(pos)
}
