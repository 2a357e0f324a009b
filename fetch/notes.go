package fetch

import (
	"encoding/binary"
	"math"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/segment"
)

// noteEvery is how far apart in bytes noted batches are at least. A MiB of small
// batches has 2 KiB of notes, and a fetch that looks for one walks no more than
// 4 KiB of headers, and one batch.
const noteEvery = 4 << 10

// notes is where some of the batches of a chunk start, noted once while its bytes
// were hot from being verified. It belongs to the cached chunk, on whose account
// its memory is, and goes with it; see cache.Fill.Note. It is immutable.
type notes struct {
	start int64  // of the chunk in the log
	base  int64  // offset that the notes are relative to
	at    []note // ascending in both of their halves; never empty
}

// note is a batch that starts at a position of the chunk, the upper half. The
// batch before it starts in the chunk too, and its last offset, relative to base,
// is the lower half. So whoever looks for an offset above that begins here, and
// whoever has room up to here knows where to go on. Neither needs the header of
// this batch, or that of the one before; and in messages of magic 0 and 1 no
// header would tell the offset at which a compressed batch begins.
//
// The highest bit says that the batch ends where the next note is: then its extent
// and its last offset are known without touching the batch, which in a large cache
// is a miss of the processor's own.
type note uint64

const alone note = 1 << 63

// notesSize is the memory in bytes of notes beside its list.
const notesSize = 64

// Halves of a note, as the shift that takes them out.
const (
	byOffset = 0
	byPos    = 32
)

func (n note) half(shift uint) int64 { return int64(n &^ alone >> shift & math.MaxUint32) }

// annotate notes the batches of the chunk that f filled with verified bytes, for
// whoever leases it. It is called before f.Done.
func (r *Reader) annotate(t *tail, f cache.Fill) {
	if n := makeNotes(t, int(f.Key().Chunk), f.Buf(), r.noteEvery); n != nil {
		f.Note(n, notesSize+8*cap(n.at))
	}
}

// makeNotes returns the notes of chunk c with the bytes b, nil if there is nothing
// to note. What it cannot follow ends the notes early: the bytes are what was
// copied, and what is wrong with them is for the fetch that gets there to say.
func makeNotes(t *tail, c int, b []byte, every int) *notes {
	entry := &t.Table.Chunks[c]
	if entry.FirstBatch < 0 {
		return nil
	}
	n := &notes{start: t.Table.Start(c), base: entry.BaseOffset}
	pos := int(entry.FirstBatch - n.start)
	next := pos + every
	noted := -1 // where the batch before is, if it has a note
	for before := int64(-1); pos >= 0 && pos+peeked <= len(b); {
		if pos >= next {
			delta := before - n.base
			if delta < 0 || delta > math.MaxUint32 {
				break // a gap of four billion offsets
			}
			if n.at == nil {
				n.at = make([]note, 0, (len(b)-pos)/every+1)
			}
			if last := len(n.at) - 1; last >= 0 && noted >= 0 {
				n.at[last] |= alone
			}
			n.at = append(n.at, note(pos)<<byPos|note(delta))
			next = pos + every
			noted = pos
		} else {
			noted = -1
		}
		size, last, ok := peek(b[pos:])
		if !ok || last < before {
			break
		}
		pos, before = pos+size, last
	}
	if n.at == nil {
		return nil
	}
	return n
}

// peeked is how many bytes of a batch peek looks at: up to the offset of its last
// record.
const peeked = 27

// peek returns the length and the last offset of the batch at the start of b,
// without decoding the rest of its header.
func peek(b []byte) (size int, last int64, ok bool) {
	_ = b[peeked-1]
	last = int64(binary.BigEndian.Uint64(b))
	size = int(int32(binary.BigEndian.Uint32(b[8:]))) + 12 // base offset and size itself
	switch magic := b[16]; magic {
	case 0, 1:
		return size, last, size >= segment.MinHeaderSize && last >= 0
	case 2:
		last += int64(int32(binary.BigEndian.Uint32(b[23:])))
		return size, last, size >= segment.HeaderSize && last >= 0
	}
	return 0, 0, false
}

// upTo returns how many notes have a half of at most key. Batches of one log are
// much alike, so it guesses where they end and looks around there: the list is
// rarely in the processor's cache.
func (n *notes) upTo(shift uint, key int64) int {
	last := len(n.at) - 1
	low, high := n.at[0].half(shift), n.at[last].half(shift)
	switch {
	case key < low:
		return 0
	case key >= high:
		return last + 1
	}
	at := int((key - low) * int64(last) / (high - low))
	lo, hi := 0, last // at[0] is in, at[last] is not: the answer lies in (lo, hi]
	if n.at[at].half(shift) <= key {
		lo = at
		for step := 1; lo+step < hi; step *= 2 {
			if n.at[lo+step].half(shift) > key {
				hi = lo + step
				break
			}
			lo += step
		}
	} else {
		hi = at
		for step := 1; hi-step > lo; step *= 2 {
			if n.at[hi-step].half(shift) <= key {
				lo = hi - step
				break
			}
			hi -= step
		}
	}
	for hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		if n.at[mid].half(shift) <= key {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// notes returns those of chunk c, which is ready; nil if it has none.
func (p *pins) notes(c int) *notes {
	n, _ := p.leases[c-p.first].Note().(*notes)
	return n
}

// find returns the first batch of the chunk with LastOffset ≥ offset, but for its
// base offset, if the notes tell. n may be nil.
func (n *notes) find(offset int64) (pos int64, size int32, last int64, ok bool) {
	if n == nil {
		return 0, 0, 0, false
	}
	i := n.upTo(byOffset, offset-1-n.base)
	if i == 0 || i == len(n.at) || n.at[i-1]&alone == 0 {
		return 0, 0, 0, false
	}
	at := n.at[i-1].half(byPos)
	return n.start + at, int32(n.at[i].half(byPos) - at), n.base + n.at[i].half(byOffset), true
}

// seek returns from which batch on, beginning with the one at pos, to look for
// the first one of the chunk with LastOffset ≥ offset. n may be nil.
func (n *notes) seek(pos, offset int64) int64 {
	if n == nil {
		return pos
	}
	i := n.upTo(byOffset, offset-1-n.base)
	if i == 0 {
		return pos
	}
	return n.start + n.at[i-1].half(byPos)
}

// fit returns the last noted batch that begins at or before limit and has only
// offsets below upper before it: where the whole batches that fit end, or a
// little before, and the last offset there; exact is that the batch there does not
// fit. n may be nil.
func (n *notes) fit(limit, upper int64) (end, last int64, exact, ok bool) {
	if n == nil {
		return 0, 0, false, false
	}
	i := n.upTo(byPos, limit-n.start)
	if i > 0 && n.base+n.at[i-1].half(byOffset) >= upper {
		i = n.upTo(byOffset, upper-1-n.base)
	}
	if i == 0 {
		return 0, 0, false, false
	}
	exact = i < len(n.at) && n.at[i-1]&alone != 0 // the next note is beyond limit or upper
	return n.start + n.at[i-1].half(byPos), n.base + n.at[i-1].half(byOffset), exact, true
}
