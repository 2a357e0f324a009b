package index

import (
	"encoding/binary"

	"github.com/segtier/segtier/segment"
)

// Time is a view of a time index (.timeindex). The zero Time has no entries.
type Time struct {
	b    []byte
	base int64
}

// ParseTime returns a view of the time index in b of the segment with the given
// base offset. It refuses, with an *Error, entries that do not ascend.
func ParseTime(b []byte, base int64) (Time, error) {
	n, err := entries(segment.TimeIndex, b, timeEntry, base, followTime)
	if err != nil {
		return Time{}, err
	}
	return Time{b: b[:n:n], base: base}, nil
}

// Len returns the number of entries.
func (x Time) Len() int { return len(x.b) / timeEntry }

// Entry returns entry i, counted from 0: a timestamp in ms, and an offset up to
// which no record's is greater.
func (x Time) Entry(i int) (timestamp, offset int64) {
	e := x.b[i*timeEntry : i*timeEntry+timeEntry]
	return int64(binary.BigEndian.Uint64(e)), x.base + int64(binary.BigEndian.Uint32(e[8:]))
}

// Lookup returns the entry with the greatest timestamp that is not above ts: the
// first record at or after ts has offset, if found is ts, or a greater one.
// Without such an entry it returns -1 and the base offset.
func (x Time) Lookup(ts int64) (found, offset int64) {
	i, n := 0, x.Len()
	if n == 0 || int64(binary.BigEndian.Uint64(x.b)) > ts {
		return -1, x.base
	}
	for n > 1 { // as in lastNotAbove
		half := n >> 1
		t := int64(binary.BigEndian.Uint64(x.b[(i+half)*timeEntry:]))
		i += half & int((t-ts-1)>>63) // if t <= ts
		n -= half
	}
	return x.Entry(i)
}
