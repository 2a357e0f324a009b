package object

import (
	"encoding/binary"

	"github.com/segtier/segtier/checksum"
)

// DefaultChunkSize is the length in bytes of a chunk. Small enough that a fetch
// of one batch wastes little, large enough that the table of a 1 GiB segment is
// 28 KiB and a checksum is a small part of filling it.
const DefaultChunkSize = 1 << 20

const (
	tableFixed     = 8  // bytes: chunk size, count
	chunkEntrySize = 28 // bytes of an encoded Chunk
)

// Chunk is one entry of the chunk table.
type Chunk struct {
	Len    int32  // stored bytes
	CRC32C uint32 // of those

	// FirstBatch is the position in the log of the first batch that starts in
	// the chunk, -1 if none does; BaseOffset is that batch's, -1 if none. (Of a
	// compressed batch of magic 0 or 1 the base is unknown: its last offset.)
	FirstBatch int64
	BaseOffset int64

	// MaxTimestamp is the greatest MaxTimestamp in ms of the batches that start
	// in this or an earlier chunk, -1 if they carry none.
	MaxTimestamp int64
}

// Table finds the chunk for an offset or a time. It is immutable once made, and
// its lookups allocate nothing.
type Table struct {
	ChunkSize int64 // bytes of log in every chunk but the last
	Chunks    []Chunk
}

// Start returns the position in the log at which chunk i begins.
func (t Table) Start(i int) int64 { return int64(i) * t.ChunkSize }

// Len returns the length in bytes of chunk i.
func (t Table) Len(i int) int64 { return int64(t.Chunks[i].Len) }

// LogSize returns the length in bytes of the log.
func (t Table) LogSize() int64 {
	n := len(t.Chunks)
	if n == 0 {
		return 0
	}
	return t.Start(n-1) + t.Len(n-1)
}

// ForOffset returns the chunk in which to start looking, at its FirstBatch, for
// the first batch whose last offset is at least offset: that batch starts there
// or, if the offsets have a gap, in a later chunk, or there is none. It is 0 for
// an offset before the first batch. The table must not be empty.
//
// Batches of one log are much alike, so it guesses where offset is between the first and
// the last, and looks around there: at two entries beside each other, mostly, where
// halving needs ten that are rarely in the processor's first cache, and as many branches
// that it cannot foresee.
func (t Table) ForOffset(offset int64) int {
	// Invariant: the answer, the last chunk with a base offset ≤ offset (or 0),
	// lies in [lo, hi).
	lo, hi := 0, len(t.Chunks)
	if last := hi - 1; t.Chunks[last].FirstBatch >= 0 {
		low, high := t.Chunks[0].BaseOffset, t.Chunks[last].BaseOffset
		if offset >= high {
			return last
		} else if offset <= low {
			return 0
		}
		lo, hi = t.around(offset, min(int(float64(offset-low)/float64(high-low)*float64(last)), last-1))
	}
	for hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		// Chunks in which no batch starts say nothing; step over them. They are
		// never more than one batch covers, and each narrowing halves the run.
		probe := mid
		for t.Chunks[probe].FirstBatch < 0 {
			if probe++; probe == hi {
				break
			}
		}
		if probe < hi && t.Chunks[probe].BaseOffset <= offset {
			lo = probe
		} else {
			hi = mid
		}
	}
	return lo
}

// around returns bounds of where offset is, as ForOffset has them, which it looks for
// further and further away from chunk at, as long as it meets chunks in which a batch
// starts.
func (t Table) around(offset int64, at int) (lo, hi int) {
	hi = len(t.Chunks)
	switch c := &t.Chunks[at]; {
	case c.FirstBatch < 0:
	case c.BaseOffset <= offset:
		lo = at
		for step := 1; lo+step < hi && t.Chunks[lo+step].FirstBatch >= 0; step *= 2 {
			if t.Chunks[lo+step].BaseOffset > offset {
				return lo, lo + step
			}
			lo += step
		}
	default:
		hi = at
		for step := 1; hi-step > lo && t.Chunks[hi-step].FirstBatch >= 0; step *= 2 {
			if t.Chunks[hi-step].BaseOffset <= offset {
				return hi - step, hi
			}
			hi -= step
		}
	}
	return lo, hi
}

// ForTime returns the chunk in which the first batch with a MaxTimestamp of at
// least ts starts, and len(t.Chunks) if there is none. A ts below 0 asks for
// nothing: it is 0 for them.
func (t Table) ForTime(ts int64) int {
	lo, hi := 0, len(t.Chunks)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if t.Chunks[mid].MaxTimestamp >= ts {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// Append appends the encoded table to dst. Fields out of range are found by
// AppendTail, on what was encoded.
func (t Table) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(t.ChunkSize))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.Chunks)))
	for _, c := range t.Chunks {
		dst = binary.BigEndian.AppendUint32(dst, uint32(c.Len))
		dst = binary.BigEndian.AppendUint32(dst, c.CRC32C)
		dst = binary.BigEndian.AppendUint32(dst, uint32(int32(c.FirstBatch)))
		dst = binary.BigEndian.AppendUint64(dst, uint64(c.BaseOffset))
		dst = binary.BigEndian.AppendUint64(dst, uint64(c.MaxTimestamp))
	}
	return dst
}

// parseTable decodes a table. The number of entries follows from the bytes at
// hand; whether they make sense is check's.
func parseTable(b []byte) (Table, error) {
	const what = "chunk table"
	if len(b) < tableFixed {
		return Table{}, corrupt(what, "%d bytes long", len(b))
	}
	t := Table{ChunkSize: int64(binary.BigEndian.Uint32(b))}
	count := int64(binary.BigEndian.Uint32(b[4:]))
	b = b[tableFixed:]
	if count*chunkEntrySize != int64(len(b)) {
		return Table{}, corrupt(what, "%d entries in %d bytes", count, len(b))
	}
	t.Chunks = make([]Chunk, count)
	for i := range t.Chunks {
		t.Chunks[i] = Chunk{
			Len:          int32(binary.BigEndian.Uint32(b)),
			CRC32C:       binary.BigEndian.Uint32(b[4:]),
			FirstBatch:   int64(int32(binary.BigEndian.Uint32(b[8:]))),
			BaseOffset:   int64(binary.BigEndian.Uint64(b[12:])),
			MaxTimestamp: int64(binary.BigEndian.Uint64(b[20:])),
		}
		b = b[chunkEntrySize:]
	}
	return t, nil
}

// check reports what makes t no table of the given log, whose offsets lie in
// [first, last].
func (t Table) check(log Extent, first, last int64) error {
	const what = "chunk table"
	if t.ChunkSize < 1 || t.ChunkSize > MaxChunkSize {
		return corrupt(what, "chunk size of %d bytes, allowed are 1 to %d", t.ChunkSize, MaxChunkSize)
	}
	if want := (log.Len + t.ChunkSize - 1) / t.ChunkSize; int64(len(t.Chunks)) != want {
		return corrupt(what, "%d chunks of %d bytes for a log of %d bytes", len(t.Chunks), t.ChunkSize, log.Len)
	}
	var (
		sum  checksum.Sum
		base = first - 1 // of the last batch seen
		ts   = int64(-1)
	)
	for i, c := range t.Chunks {
		start := t.Start(i)
		size := min(t.ChunkSize, log.Len-start)
		switch {
		case int64(c.Len) != size:
			return corrupt(what, "chunk %d has %d bytes, not %d", i, c.Len, size)
		case c.FirstBatch == -1 && (i == 0 || c.BaseOffset != -1 || c.MaxTimestamp != ts):
			return corrupt(what, "chunk %d: no batch starts in it, but base offset %d, max timestamp %d", i, c.BaseOffset, c.MaxTimestamp)
		case c.FirstBatch != -1 && (c.FirstBatch < start || c.FirstBatch >= start+size || i == 0 && c.FirstBatch != 0):
			return corrupt(what, "chunk %d, positions [%d,%d): first batch at %d", i, start, start+size, c.FirstBatch)
		case c.FirstBatch != -1 && (c.BaseOffset <= base || c.BaseOffset > last):
			return corrupt(what, "chunk %d: base offset %d after %d in a segment up to %d", i, c.BaseOffset, base, last)
		case c.MaxTimestamp < ts:
			return corrupt(what, "chunk %d: max timestamp %d after %d", i, c.MaxTimestamp, ts)
		}
		if c.FirstBatch != -1 {
			base = c.BaseOffset
		}
		ts = c.MaxTimestamp
		sum = sum.Append(checksum.Sum{Len: size, CRC32C: c.CRC32C})
	}
	if sum.CRC32C != log.CRC32C {
		return corrupt(what, "sums of the chunks give %08x, the log's is %08x", sum.CRC32C, log.CRC32C)
	}
	return nil
}

// maxTimestamp returns the greatest timestamp of all batches, -1 if none.
func (t Table) maxTimestamp() int64 {
	if len(t.Chunks) == 0 {
		return -1
	}
	return t.Chunks[len(t.Chunks)-1].MaxTimestamp
}
