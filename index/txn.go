package index

import (
	"encoding/binary"
	"sort"

	"github.com/segtier/segtier/segment"
)

// AbortedTxn is an aborted transaction whose marker lies in the segment.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64 // of its first record, maybe in an earlier segment
	LastOffset  int64 // of its ABORT marker

	// LastStableOffset is that of the log once this transaction had ended: the
	// first offset of the earliest one still open then, else LastOffset+1.
	LastStableOffset int64
}

// Txn is a view of a transaction index (.txnindex). The zero Txn has no
// entries, as where the segment has no such file.
type Txn struct{ b []byte }

// ParseTxn returns a view of the transaction index in b of the segment with the
// given base offset. It refuses, with an *Error, entries that do not ascend and
// versions other than 0. Bytes behind the last whole entry are ignored, as in
// Kafka.
func ParseTxn(b []byte, base int64) (Txn, error) {
	n, err := entries(segment.TxnIndex, b, txnEntry, base, followTxn)
	if err != nil {
		return Txn{}, err
	}
	return Txn{b: b[:n:n]}, nil
}

// Len returns the number of entries.
func (x Txn) Len() int { return len(x.b) / txnEntry }

// Entry returns entry i, counted from 0.
func (x Txn) Entry(i int) AbortedTxn { return decodeTxn(x.b[i*txnEntry:]) }

func decodeTxn(b []byte) AbortedTxn {
	b = b[2:txnEntry]
	return AbortedTxn{
		ProducerID:       int64(binary.BigEndian.Uint64(b)),
		FirstOffset:      int64(binary.BigEndian.Uint64(b[8:])),
		LastOffset:       int64(binary.BigEndian.Uint64(b[16:])),
		LastStableOffset: int64(binary.BigEndian.Uint64(b[24:])),
	}
}

// Collect appends to dst the transactions that have records in [fetchOffset,
// upperBound). It returns true if it has found them all; otherwise transactions
// that end in later segments may have some too, and the search goes on there.
func (x Txn) Collect(dst []AbortedTxn, fetchOffset, upperBound int64) (list []AbortedTxn, complete bool) {
	// Entries ascend by marker: those that end before fetchOffset come first.
	// A last stable offset lies at most one behind its marker, so they cannot
	// complete a search beyond fetchOffset either.
	i := 0
	if fetchOffset < upperBound {
		i = sort.Search(x.Len(), func(i int) bool { return x.Entry(i).LastOffset >= fetchOffset })
	}
	for ; i < x.Len(); i++ {
		t := x.Entry(i)
		if t.LastOffset >= fetchOffset && t.FirstOffset < upperBound {
			dst = append(dst, t)
		}
		if t.LastStableOffset >= upperBound {
			return dst, true
		}
	}
	return dst, false
}
