package fetch

import (
	"encoding/binary"
	"io"
	"iter"
	"net"
	"sync/atomic"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// Result is what a Fetch returns: whole batches in memory leased from the cache.
// The zero Result is empty. It is the caller's, to be used again for the next
// Fetch, which then allocates nothing, and must be released: until then its
// memory is kept from others. It must not be used by two goroutines at once. It
// outlives the Reader.
//
// A Result that was copied is still one: a copy sees the same batches, and
// whichever is released first releases for both. What becomes of the one reaches
// the other no more: once the original was released or used for another Fetch,
// the copy is empty, its Release does nothing, and a Fetch into it takes memory
// of its own.
type Result struct {
	in  *holding
	gen uint64 // of in that this Result is about; another one: it is empty
}

// holding is what a Result holds. It is used again from Fetch to Fetch and has a
// generation for each, which ends with the first Release that names it. So a
// second Release, of this Result or of a copy that somebody kept, cannot take
// away what a later Fetch has put there.
type holding struct {
	gen atomic.Uint64

	pins   pins          // chunks of the segment that is being read
	leases []cache.Lease // of the memory that parts point into
	parts  [][]byte      // in order, together whole batches

	size  int
	start int64 // an offset that the segment of the first batch covers
	next  int64

	aborted  []index.AbortedTxn
	complete bool
	upTo     int64

	stream *stream // that the last read belonged to; nil: none
	lanes  *lanes  // where the last read was noted; nil: nowhere
	slot   int     // and where there, if it is of no stream
	ticket uint64  // of that

	iov     [][]byte    // for WriteTo: net.Buffers consumes what it is given
	out     net.Buffers // iov as it is consumed
	scratch []byte      // for batches that straddle chunks
}

// held returns what res holds, nil if that was released.
func (res *Result) held() *holding {
	if in := res.in; in != nil && in.gen.Load() == res.gen {
		return in
	}
	return nil
}

// begin releases what res holds and returns where to put what is to come.
func (res *Result) begin() *holding {
	res.Release()
	// The generation that ended here, odd, is followed by an even one, in which
	// nobody holds anything, until the next begins. If a copy of this Result has
	// begun that, what is in there is the copy's.
	if in := res.in; in != nil && in.gen.CompareAndSwap(res.gen+1, res.gen+2) {
		res.gen += 2
		return in
	}
	res.in, res.gen = &holding{}, 1
	res.in.gen.Store(1)
	return res.in
}

// Release gives the memory back. What the Result has handed out must not be used
// any more: others' batches may be in there soon, and once the cache is closed a touch ends
// the process. Built with the tag segtier_poison, released memory is overwritten, and who
// uses it sees that at once. Release may be called more than once; methods of a Result that
// was released answer as those of an empty one.
func (res *Result) Release() {
	in := res.in
	// One wins, also of two that release copies at the same moment.
	if in == nil || !in.gen.CompareAndSwap(res.gen, res.gen+1) {
		return
	}
	in.pins.release()
	in.pins.t = nil
	for i := range in.leases {
		in.leases[i].Release()
	}
	clear(in.parts)
	in.leases, in.parts, in.aborted = in.leases[:0], in.parts[:0], in.aborted[:0]
	in.size, in.next = 0, 0
	in.complete, in.upTo = false, 0
}

// add takes [pos, end) of the log that p has pinned, whole batches of which
// before the offset next, with the leases. The segment covers start.
func (in *holding) add(p *pins, start, pos, end, next int64) {
	p.restart(p.t.chunk(pos))
	p.truncate(p.t.chunk(end-1) - p.first + 1)
	for i := range p.leases {
		start := p.t.Table.Start(p.first + i)
		b := p.leases[i].Bytes()
		in.parts = append(in.parts, b[max(pos-start, 0):min(end-start, int64(len(b)))])
	}
	in.leases = append(in.leases, p.leases...) // moved, not copied
	clear(p.leases)
	p.leases, p.ready = p.leases[:0], 0

	if in.size == 0 {
		in.start = start
	}
	in.size += int(end - pos)
	in.next = next
}

// Size returns the length of the batches in bytes.
func (res *Result) Size() int {
	if in := res.held(); in != nil {
		return in.size
	}
	return 0
}

// FirstOffset returns the base offset of the first batch. It may be below the
// offset asked for: batches are whole.
func (res *Result) FirstOffset() int64 {
	if in := res.held(); in != nil {
		return in.first()
	}
	return 0
}

// first reads the base offset of the first batch. Most who read in sequence never
// ask for it, and the batch need not be touched before it is written.
func (in *holding) first() int64 {
	var b [8]byte
	if in.size < len(b) {
		return 0
	}
	return int64(binary.BigEndian.Uint64(in.peek(0, 0, len(b), b[:])))
}

// NextOffset returns the offset behind the last batch, where the next Fetch is
// to begin.
func (res *Result) NextOffset() int64 {
	if in := res.held(); in != nil {
		return in.next
	}
	return 0
}

// AppendTo appends the batches to bufs, without copying them: the memory is the
// Result's, must not be modified, and is valid until Release, and not a moment longer.
func (res *Result) AppendTo(bufs net.Buffers) net.Buffers {
	if in := res.held(); in != nil {
		return append(bufs, in.parts...)
	}
	return bufs
}

// WriteTo writes the batches to w, with one writev and no copy if w is a
// *net.TCPConn or a *net.UnixConn, else with one Write for each piece of memory.
// It can be called again.
func (res *Result) WriteTo(w io.Writer) (int64, error) {
	in := res.held()
	if in == nil {
		return 0, nil
	}
	in.iov = append(in.iov[:0], in.parts...)
	in.out = in.iov
	n, err := in.out.WriteTo(w)
	clear(in.iov)
	return n, err
}

// Batches yields the batches in order, with their decoded headers. A batch is
// valid until the next one is yielded, and must not be modified; only one that
// straddles chunks is copied. It stops early if the Result is released.
func (res *Result) Batches() iter.Seq2[segment.Header, []byte] {
	return func(yield func(segment.Header, []byte) bool) {
		in := res.held()
		if in == nil {
			return
		}
		part, off := 0, 0
		var head [segment.HeaderSize]byte
		for left := in.size; left > 0 && res.held() == in; {
			h, err := segment.ParseHeader(in.peek(part, off, min(left, len(head)), head[:]))
			if err != nil {
				return // Fetch has parsed it
			}
			n := int(h.Size)
			if n > len(in.parts[part])-off && cap(in.scratch) < n {
				in.scratch = make([]byte, n)
			}
			if !yield(h, in.peek(part, off, n, in.scratch[:cap(in.scratch)])) {
				return
			}
			left -= n
			for off += n; part < len(in.parts) && off >= len(in.parts[part]); part++ {
				off -= len(in.parts[part])
			}
		}
	}
}

// peek returns n bytes from off of a part on, copied into scratch if they go on
// in the next.
func (in *holding) peek(part, off, n int, scratch []byte) []byte {
	b := in.parts[part][off:]
	if len(b) >= n {
		return b[:n:n]
	}
	have := copy(scratch, b)
	for have < n {
		part++
		have += copy(scratch[have:n], in.parts[part])
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
	if in := res.held(); in != nil {
		return in.aborted, in.complete, in.upTo
	}
	return nil, false, 0
}
