package fetch

import (
	"io"
	"iter"
	"net"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// Result is what a Fetch returns: whole batches in memory leased from the cache.
// The zero Result is empty. It is the caller's, to be used again for the next
// Fetch, which then allocates nothing, and must be released: until then its
// memory is kept from others. It must not be copied, and not be used by two
// goroutines at once. It outlives the Reader.
type Result struct {
	pins   pins          // chunks of the segment that is being read
	leases []cache.Lease // of the memory that parts point into
	parts  [][]byte      // in order, together whole batches

	size        int
	start       int64 // an offset that the segment of the first batch covers
	first, next int64

	aborted  []index.AbortedTxn
	complete bool
	upTo     int64

	iov     [][]byte    // for WriteTo: net.Buffers consumes what it is given
	out     net.Buffers // iov as it is consumed
	scratch []byte      // for batches that straddle chunks
}

// Release gives the memory back. What the Result has handed out must not be used
// any more. It may be called more than once.
func (res *Result) Release() {
	res.pins.release()
	res.pins.t = nil
	for i := range res.leases {
		res.leases[i].Release()
	}
	clear(res.parts)
	res.leases, res.parts, res.aborted = res.leases[:0], res.parts[:0], res.aborted[:0]
	res.size, res.first, res.next = 0, 0, 0
	res.complete, res.upTo = false, 0
}

// add takes [pos, end) of the log that p has pinned, whole batches of which
// first is the first and last the last, with the leases. The segment covers
// start.
func (res *Result) add(p *pins, start, pos, end int64, first, last segment.Header) {
	p.restart(p.t.chunk(pos))
	p.truncate(p.t.chunk(end-1) - p.first + 1)
	for i := range p.leases {
		start := p.t.Table.Start(p.first + i)
		b := p.leases[i].Bytes()
		res.parts = append(res.parts, b[max(pos-start, 0):min(end-start, int64(len(b)))])
	}
	res.leases = append(res.leases, p.leases...) // moved, not copied
	clear(p.leases)
	p.leases, p.ready = p.leases[:0], 0

	if res.size == 0 {
		res.start, res.first = start, first.BaseOffset
	}
	res.size += int(end - pos)
	res.next = last.LastOffset + 1
}

// Size returns the length of the batches in bytes.
func (res *Result) Size() int { return res.size }

// FirstOffset returns the base offset of the first batch. It may be below the
// offset asked for: batches are whole.
func (res *Result) FirstOffset() int64 { return res.first }

// NextOffset returns the offset behind the last batch, where the next Fetch is
// to begin.
func (res *Result) NextOffset() int64 { return res.next }

// AppendTo appends the batches to bufs, without copying them: the memory is the
// Result's, must not be modified, and is valid until Release.
func (res *Result) AppendTo(bufs net.Buffers) net.Buffers { return append(bufs, res.parts...) }

// WriteTo writes the batches to w, with one writev if w is a TCP connection. It
// can be called again.
func (res *Result) WriteTo(w io.Writer) (int64, error) {
	res.iov = append(res.iov[:0], res.parts...)
	res.out = res.iov
	n, err := res.out.WriteTo(w)
	clear(res.iov)
	return n, err
}

// Batches yields the batches in order, with their decoded headers. A batch is
// valid until the next one is yielded, and must not be modified; only one that
// straddles chunks is copied.
func (res *Result) Batches() iter.Seq2[segment.Header, []byte] {
	return func(yield func(segment.Header, []byte) bool) {
		part, off := 0, 0
		var head [segment.HeaderSize]byte
		for left := res.size; left > 0; {
			h, err := segment.ParseHeader(res.peek(part, off, min(left, len(head)), head[:]))
			if err != nil {
				return // Fetch has parsed it
			}
			n := int(h.Size)
			if n > len(res.parts[part])-off && cap(res.scratch) < n {
				res.scratch = make([]byte, n)
			}
			if !yield(h, res.peek(part, off, n, res.scratch[:cap(res.scratch)])) {
				return
			}
			left -= n
			for off += n; part < len(res.parts) && off >= len(res.parts[part]); part++ {
				off -= len(res.parts[part])
			}
		}
	}
}

// peek returns n bytes from off of a part on, copied into scratch if they go on
// in the next.
func (res *Result) peek(part, off, n int, scratch []byte) []byte {
	b := res.parts[part][off:]
	if len(b) >= n {
		return b[:n:n]
	}
	have := copy(scratch, b)
	for have < n {
		part++
		have += copy(scratch[have:n], res.parts[part])
	}
	return scratch[:n]
}

// AbortedTransactions returns, after a Fetch with ReadCommitted, the aborted
// transactions with records between FirstOffset and NextOffset, in the order of
// their markers. It is valid until Release.
//
// If complete is false, the tier ended before it was sure that these are all:
// markers of further ones may lie beyond, from upTo on, which is the first
// offset behind the last tiered segment searched. The host must look there in
// its local segments.
func (res *Result) AbortedTransactions() (list []index.AbortedTxn, complete bool, upTo int64) {
	return res.aborted, res.complete, res.upTo
}
