package index

import (
	"encoding/binary"

	"github.com/segtier/segtier/segment"
)

// Offset is a view of an offset index (.index). The zero Offset has no entries.
type Offset struct {
	b    []byte
	base int64
}

// ParseOffset returns a view of the offset index in b of the segment with the
// given base offset. It refuses, with an *Error, entries that do not ascend.
func ParseOffset(b []byte, base int64) (Offset, error) {
	n, err := entries(segment.OffsetIndex, b, offsetEntry, base, followOffset)
	if err != nil {
		return Offset{}, err
	}
	return Offset{b: b[:n:n], base: base}, nil
}

// Len returns the number of entries.
func (x Offset) Len() int { return len(x.b) / offsetEntry }

// Entry returns entry i, counted from 0: an offset and the position in the log
// from which to search for it.
func (x Offset) Entry(i int) (offset, pos int64) {
	e := x.b[i*offsetEntry : i*offsetEntry+offsetEntry]
	return x.base + int64(binary.BigEndian.Uint32(e)), int64(binary.BigEndian.Uint32(e[4:]))
}

// Lookup returns the entry with the greatest offset that is not above target:
// the first batch with a last offset at or after target begins at pos or behind
// it. Without such an entry it returns the base offset and position 0.
func (x Offset) Lookup(target int64) (offset, pos int64) {
	if target < x.base {
		return x.base, 0
	}
	if i := lastNotAbove(x.b, offsetEntry, 0, target-x.base); i >= 0 {
		return x.Entry(i)
	}
	return x.base, 0
}

// lastNotAbove returns the last entry of the given size in b whose 32-bit field
// at byte off is not above v, -1 for none. Fields ascend and are not negative.
//
// Steps do not branch on what is found, which no processor could foresee: that
// is what makes a lookup as fast as in decoded entries.
func lastNotAbove(b []byte, size, off int, v int64) int {
	i, n := 0, len(b)/size
	if n == 0 || int64(binary.BigEndian.Uint32(b[off:])) > v {
		return -1
	}
	for n > 1 { // the answer is one of the n entries from i on
		half := n >> 1
		field := int64(binary.BigEndian.Uint32(b[(i+half)*size+off:]))
		i += half & int((field-v-1)>>63) // if field <= v
		n -= half
	}
	return i
}

// UpperBound returns an offset that no batch beginning in the size bytes from
// pos reaches: that of the first entry at or behind their end. It returns false
// if the index has none, and the bound is the end of the segment. Kafka bounds
// its search for aborted transactions so.
func (x Offset) UpperBound(pos, size int64) (offset int64, ok bool) {
	end := pos + size
	if size > 0 && end < pos {
		return 0, false // overflow: behind any file
	}
	i := lastNotAbove(x.b, offsetEntry, 4, end-1) + 1
	if i == x.Len() {
		return 0, false
	}
	offset, _ = x.Entry(i)
	return offset, true
}
