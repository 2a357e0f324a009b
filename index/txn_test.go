package index_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

func aborted(producer, first, last, stable int64) index.AbortedTxn {
	return index.AbortedTxn{ProducerID: producer, FirstOffset: first, LastOffset: last, LastStableOffset: stable}
}

// txnFile writes a transaction index.
func txnFile(txns ...index.AbortedTxn) (b []byte) {
	for _, t := range txns {
		b = append(b, 0, 0)
		for _, v := range []int64{t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStableOffset} {
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		}
	}
	return b
}

func txnEntries(x index.Txn) (out []index.AbortedTxn) {
	for i := range x.Len() {
		out = append(out, x.Entry(i))
	}
	return out
}

// kafkasTxns are the entries of Kafka's TransactionIndexTest.
func kafkasTxns() []byte {
	return txnFile(
		aborted(0, 0, 10, 11),
		aborted(1, 5, 15, 13),
		aborted(2, 18, 35, 25),
		aborted(3, 32, 50, 40),
	)
}

func producers(list []index.AbortedTxn) (ids []int64) {
	for _, t := range list {
		ids = append(ids, t.ProducerID)
	}
	return ids
}

func TestTxnCollectIsKafkas(t *testing.T) {
	x, err := index.ParseTxn(kafkasTxns(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, upper int64
		want        []int64
		complete    bool
	}{
		{0, 100, []int64{0, 1, 2, 3}, false},
		{0, 32, []int64{0, 1, 2}, true},
		{0, 35, []int64{0, 1, 2, 3}, true},
		{10, 35, []int64{0, 1, 2, 3}, true},
		{11, 35, []int64{1, 2, 3}, true},
		{20, 41, []int64{2, 3}, false},
	} {
		list, complete := x.Collect(nil, c.from, c.upper)
		if !slices.Equal(producers(list), c.want) || complete != c.complete {
			t.Errorf("Collect(%d, %d) = %v, %v, want %v, %v", c.from, c.upper, producers(list), complete, c.want, c.complete)
		}
	}
	var none index.Txn
	if list, complete := none.Collect(nil, 0, 1); len(list) > 0 || complete {
		t.Errorf("no index: %v, %v", list, complete)
	}
	before := []index.AbortedTxn{{ProducerID: 77}}
	if list, _ := x.Collect(before, 0, 5); !slices.Equal(producers(list), []int64{77, 0}) {
		t.Errorf("appended: %v", producers(list))
	}
}

// Made by Kafka's own classes, with base offset 100.
func TestTxnGolden(t *testing.T) {
	x, err := index.ParseTxn(unhex(t, "00000000000000000fa000000000000000690000000000000078000000000000007900000000000000000fa1000000000000006c000000000000008c000000000000007d"), 100)
	if err != nil {
		t.Fatal(err)
	}
	want := []index.AbortedTxn{aborted(4000, 105, 120, 121), aborted(4001, 108, 140, 125)}
	if got := txnEntries(x); !slices.Equal(got, want) {
		t.Errorf("entries %v, want %v", got, want)
	}
	if list, complete := x.Collect(nil, 110, 130); !slices.Equal(list, want) || complete {
		t.Errorf("Collect(110, 130) = %v, %v", list, complete)
	}
	if list, complete := x.Collect(nil, 110, 121); !slices.Equal(list, want[:1]) || !complete {
		t.Errorf("Collect(110, 121) = %v, %v", list, complete)
	}
}

func TestParseTxn(t *testing.T) {
	ok := index.AbortedTxn{ProducerID: 1, FirstOffset: 5, LastOffset: 20, LastStableOffset: 21}
	with := func(change func(t *index.AbortedTxn)) []byte {
		t := ok
		change(&t)
		return txnFile(t)
	}
	next := index.AbortedTxn{ProducerID: 1, FirstOffset: 21, LastOffset: 22, LastStableOffset: 3}
	version := func(high, low byte) []byte { b := txnFile(ok); b[0], b[1] = high, low; return b }
	for _, c := range []struct {
		name  string
		b     []byte
		n     int
		entry int64
		want  string
	}{
		{"empty", nil, 0, 0, ""},
		{"two", txnFile(ok, next), 2, 0, ""},
		{"a part of an entry", append(txnFile(ok), 1, 2, 3), 1, 0, ""}, // as in Kafka
		{"less than an entry", txnFile(ok)[:33], 0, 0, ""},
		{"a tail", append(txnFile(ok), make([]byte, 100)...), 1, 0, ""},
		{"nothing but a tail", make([]byte, 34), 0, 0, ""},
		{"first offset before the segment", with(func(t *index.AbortedTxn) { t.FirstOffset = 0 }), 1, 0, ""},
		{"marker at the base", with(func(t *index.AbortedTxn) { t.LastOffset, t.LastStableOffset = 10, 11 }), 1, 0, ""},
		{"version 1", version(0, 1), 0, 0, "version"},
		{"version 256", version(1, 0), 0, 0, "version"},
		{"negative producer", with(func(t *index.AbortedTxn) { t.ProducerID = -1 }), 0, 0, "producer id"},
		{"negative offset", with(func(t *index.AbortedTxn) { t.FirstOffset = -1 }), 0, 0, "does not begin before"},
		{"begins at its marker", with(func(t *index.AbortedTxn) { t.FirstOffset = 20 }), 0, 0, "does not begin before"},
		{"marker before the segment", with(func(t *index.AbortedTxn) { t.LastOffset, t.LastStableOffset = 9, 10 }), 0, 0, "before the segment"},
		{"stable beyond the marker", with(func(t *index.AbortedTxn) { t.LastStableOffset = 22 }), 0, 0, "last stable offset"},
		{"negative stable offset", with(func(t *index.AbortedTxn) { t.LastStableOffset = -1 }), 0, 0, "last stable offset"},
		{"greatest offsets", with(func(t *index.AbortedTxn) { t.LastOffset, t.LastStableOffset = math.MaxInt64, math.MaxInt64 }), 1, 0, ""},
		{"marker repeated", txnFile(ok, ok), 0, 1, "does not follow"},
		{"marker descends", txnFile(next, ok), 0, 1, "does not follow"},
		{"entry behind the tail", slices.Concat(txnFile(ok), make([]byte, 34), txnFile(next)), 0, 1, "does not begin before"},
	} {
		x, err := index.ParseTxn(c.b, 10)
		if c.want != "" {
			refused(t, c.name, err, segment.TxnIndex, c.entry, c.want)
			continue
		}
		if err != nil || x.Len() != c.n {
			t.Errorf("%s: %d entries, %v, want %d", c.name, x.Len(), err, c.n)
		}
	}
}

// The rule as Kafka states it, entry by entry.
func TestTxnCollectEqualsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var txns []index.AbortedTxn
		last := int64(5)
		for i := range rapid.Int64Range(0, 10).Draw(t, "entries") {
			last += rapid.Int64Range(1, 8).Draw(t, "marker")
			txns = append(txns, index.AbortedTxn{
				ProducerID: i, LastOffset: last, FirstOffset: rapid.Int64Range(0, last-1).Draw(t, "first"),
				LastStableOffset: rapid.Int64Range(0, last+1).Draw(t, "stable"),
			})
		}
		x, err := index.ParseTxn(txnFile(txns...), 5)
		if err != nil {
			t.Fatal(err)
		}
		from, upper := rapid.Int64Range(0, 90).Draw(t, "from"), rapid.Int64Range(0, 90).Draw(t, "upper")
		var want []index.AbortedTxn
		wantComplete := false
		for _, a := range txns {
			if a.LastOffset >= from && a.FirstOffset < upper {
				want = append(want, a)
			}
			if a.LastStableOffset >= upper {
				wantComplete = true
				break
			}
		}
		got, complete := x.Collect(nil, from, upper)
		if !slices.Equal(got, want) || complete != wantComplete {
			t.Fatalf("Collect(%d, %d) of %v = %v, %v, want %v, %v", from, upper, txns, got, complete, want, wantComplete)
		}
	})
}

func BenchmarkTxnCollect(b *testing.B) {
	for _, n := range []int64{10, 10_000} {
		var txns []index.AbortedTxn
		for i := range n {
			txns = append(txns, index.AbortedTxn{ProducerID: i, FirstOffset: i * 10, LastOffset: i*10 + 5, LastStableOffset: i*10 + 6})
		}
		x, err := index.ParseTxn(txnFile(txns...), 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]index.AbortedTxn, 0, 8)
			for b.Loop() {
				dst, _ = x.Collect(dst[:0], n*5, n*5+20)
			}
		})
	}
}
