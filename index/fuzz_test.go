package index_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/segtier/segtier/index"
)

func onlyCorrupt(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*index.Error](err); !ok || !errors.Is(err, index.ErrCorrupt) {
		t.Fatalf("%T: %v", err, err)
	}
}

// What is accepted can be written again, the tail aside, and looked up in; a
// Checker accepts the same.
func FuzzParseOffset(f *testing.F) {
	f.Add(unhex(f, "0000000a0000000000000032000010000000006300002328"), int64(100), int64(150))
	f.Add(append(offsetFile(0, pair{5, 0}), make([]byte, 80)...), int64(0), int64(5))
	f.Add(make([]byte, 80), int64(0), int64(5))
	f.Add(make([]byte, 8), int64(0), int64(5))
	f.Add(make([]byte, 16), int64(math.MaxInt64), int64(5))
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x01"), int64(math.MaxInt64-10), int64(-80))
	f.Fuzz(func(t *testing.T, b []byte, base, target int64) {
		base &= math.MaxInt64
		compareWithView(t, b)
		x, err := index.ParseOffset(b, base)
		if err != nil {
			onlyCorrupt(t, err)
			return
		}
		again := offsetFile(base, offsetEntries(x)...)
		if !bytes.HasPrefix(b, again) || len(bytes.Trim(b[len(again):], "\x00")) > 0 {
			t.Fatalf("%x became %x", b, again)
		}
		if !slices.IsSortedFunc(offsetEntries(x), func(a, b pair) int { return int(min(max(a[0]-b[0], -1), 1)) }) {
			t.Fatal("offsets do not ascend")
		}
		if offset, pos := x.Lookup(target); offset > target && offset != base || offset < base || pos < 0 {
			t.Fatalf("Lookup(%d) = %d, %d", target, offset, pos)
		}
		x.UpperBound(target&math.MaxInt64, target&math.MaxInt64)
	})
}

func FuzzParseTime(f *testing.F) {
	f.Add(unhex(f, "0000018bcfe568000000000a0000018bcfe569f40000003c"), int64(100), int64(1_700_000_000_000))
	f.Add(append(timeFile(0, pair{5, 0}), make([]byte, 120)...), int64(0), int64(5))
	f.Add(make([]byte, 120), int64(0), int64(math.MinInt64))
	f.Add(make([]byte, 12), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, b []byte, base, ts int64) {
		base &= math.MaxInt64
		x, err := index.ParseTime(b, base)
		if err != nil {
			onlyCorrupt(t, err)
			return
		}
		again := timeFile(base, timeEntries(x)...)
		if !bytes.HasPrefix(b, again) || len(bytes.Trim(b[len(again):], "\x00")) > 0 {
			t.Fatalf("%x became %x", b, again)
		}
		if found, offset := x.Lookup(ts); found > ts && found != -1 || offset < base {
			t.Fatalf("Lookup(%d) = %d, %d", ts, found, offset)
		}
	})
}

func FuzzParseTxn(f *testing.F) {
	f.Add(kafkasTxns(), int64(0), int64(11), int64(35))
	f.Add(append(kafkasTxns(), 1, 2, 3), int64(0), int64(0), int64(100))
	f.Add(append(kafkasTxns(), make([]byte, 100)...), int64(0), int64(0), int64(100))
	f.Add(make([]byte, 34), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, base, from, upper int64) {
		x, err := index.ParseTxn(b, base)
		if err != nil {
			onlyCorrupt(t, err)
			return
		}
		if again := txnFile(txnEntries(x)...); !bytes.HasPrefix(b, again) {
			t.Fatalf("%x became %x", b, again)
		}
		list, _ := x.Collect(nil, from, upper)
		for _, a := range list {
			if a.LastOffset < from || a.FirstOffset >= upper || a.LastOffset < base {
				t.Fatalf("Collect(%d, %d) has %+v", from, upper, a)
			}
		}
	})
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add(unhex(f, "00014152357d000000010000000000000fa0000200000013000000000000000c000000020000018bcfe5680a00000003ffffffffffffffff"))
	f.Add(unhex(f, "000148674bc700000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 10 { // the CRC is made right, so that mutations get past it
			b = sealed(b)
		}
		list, err := index.ParseSnapshot(b)
		if err != nil {
			onlyCorrupt(t, err)
			return
		}
		if len(b) != 10+46*len(list) {
			t.Fatalf("%d producers in %d bytes", len(list), len(b))
		}
	})
}
