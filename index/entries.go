package index

import (
	"encoding/binary"
	"math"

	"github.com/segtier/segtier/segment"
)

// Sizes of entries in bytes.
const (
	offsetEntry = 8
	timeEntry   = 12
	txnEntry    = 34
)

// follow checks the bytes of one entry on their own and against those of the
// entry before it, which is nil for the first, and says what is wrong. It is the
// one place for each kind of index that knows what is an entry, used by views
// and Checker alike.
type follow func(base int64, prev, b []byte) string

func followOffset(base int64, prev, b []byte) string {
	rel, pos := int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))
	switch {
	case rel < 0 || base > math.MaxInt64-int64(rel):
		return "its offset is out of range"
	case pos < 0:
		return "its position is negative"
	case prev == nil:
		return ""
	case rel <= int32(binary.BigEndian.Uint32(prev)):
		return "its offset does not follow that of the entry before"
	case pos <= int32(binary.BigEndian.Uint32(prev[4:])):
		return "its position does not follow that of the entry before"
	}
	return ""
}

func followTime(base int64, prev, b []byte) string {
	ts, rel := int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))
	switch {
	case rel < 0 || base > math.MaxInt64-int64(rel):
		return "its offset is out of range"
	case ts < 0:
		return "its timestamp is negative"
	case prev == nil:
		return ""
	case ts <= int64(binary.BigEndian.Uint64(prev)):
		return "its timestamp does not follow that of the entry before"
	case rel < int32(binary.BigEndian.Uint32(prev[8:])):
		return "its offset is lower than that of the entry before"
	}
	return ""
}

func followTxn(base int64, prev, b []byte) string {
	t := decodeTxn(b)
	switch {
	case b[0] != 0 || b[1] != 0:
		return "its version is not 0"
	case t.ProducerID < 0:
		return "its producer id is negative"
	case t.FirstOffset < 0 || t.FirstOffset >= t.LastOffset:
		return "the transaction does not begin before its marker"
	case t.LastOffset < base:
		return "its marker lies before the segment"
	case t.LastStableOffset < 0 || t.LastStableOffset-1 > t.LastOffset:
		return "its last stable offset lies behind its marker"
	case prev != nil && t.LastOffset <= decodeTxn(prev).LastOffset:
		return "its marker does not follow that of the entry before"
	}
	return ""
}

// entries validates the entries in b, of the given size each, and returns the
// length of those in front of a tail of zeros.
//
// Zeros may be an entry where they are the first, for offset 0 of the segment at
// position or time 0. So zeros alone are an entry if they are as long as one,
// and a tail if they are longer. (They are never a transaction.)
func entries(kind segment.FileKind, b []byte, size int, base int64, check follow) (int, error) {
	if kind != segment.TxnIndex && len(b)%size != 0 {
		return 0, corrupt(kind, -1, "%d bytes are not a multiple of %d", len(b), size)
	}
	if len(b) > size && allZero(b[:size]) && allZero(b[size:]) {
		return 0, nil
	}
	var prev []byte
	n := 0
	for ; len(b)-n >= size; n += size {
		e := b[n : n+size]
		if reason := check(base, prev, e); reason != "" {
			if allZero(b[n:]) {
				break
			}
			return 0, corrupt(kind, int64(n/size), "%s", reason)
		}
		prev = e
	}
	return n, nil
}
