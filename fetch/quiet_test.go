package fetch_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// quietTier has n segments without transactions.
func quietTier(t failer, n int) *tier {
	log := testseg.Random(3, testseg.Options{Segments: n, Batches: 2, Plain: true})
	return newTier(t, log, tierOptions{})
}

// Where metadata says that there are no transactions nothing is read to find
// some, and what was found out is forgotten when metadata changes.
func TestNoTransactionsNoLook(t *testing.T) {
	x := quietTier(t, 30)
	defer x.close()
	var res fetch.Result
	defer res.Release()
	req := x.request(x.start(), 1)
	req.Isolation = fetch.ReadCommitted
	for i := range 3 {
		if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
			t.Fatal(err)
		}
		if list, complete, upTo := res.AbortedTransactions(); len(list) != 0 || complete || upTo != x.end() {
			t.Fatalf("fetch %d: %v, %v, %d", i, list, complete, upTo)
		}
	}
	if st := x.reader.Stats(); st.Tails > 2 { // one may be fetched ahead
		t.Errorf("%d tails were read to find no transaction", st.Tails)
	}
	// Another lineage, which ends sooner.
	short := req
	last := req.Lineage[len(req.Lineage)-1]
	short.Lineage = append(slices.Clone(req.Lineage), segment.EpochStart{Epoch: last.Epoch + 100, Start: x.segs[20].StartOffset})
	if err := x.reader.Fetch(t.Context(), short, &res); err != nil {
		t.Fatal(err)
	}
	if _, _, upTo := res.AbortedTransactions(); upTo >= x.end() {
		t.Errorf("another lineage was searched up to %d as well", upTo)
	}
	// A segment goes: its markers are not to be had any more.
	x.remove(x.segs[10])
	if err := x.reader.Fetch(t.Context(), req, &res); !errors.Is(err, fetch.ErrUnavailable) {
		t.Errorf("a segment behind is being deleted: %v", err)
	}
}

// A hot fetch of committed data allocates nothing where there is no transaction.
// (Poison does: its leases keep where they were taken.)
func TestNoTransactionsDoesNotAllocate(t *testing.T) {
	x := quietTier(t, 30)
	defer x.close()
	var res fetch.Result
	defer res.Release()
	req := x.request(x.start(), 1)
	req.Isolation = fetch.ReadCommitted
	fetchOne := func() {
		if err := x.reader.Fetch(t.Context(), req, &res); err != nil {
			t.Fatal(err)
		}
		res.Release()
	}
	for range 3 {
		fetchOne()
	}
	if n := testing.AllocsPerRun(1000, fetchOne); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkFetchCommitted is a hot Fetch of one batch, read committed, with a
// thousand segments behind that hold no transaction.
func BenchmarkFetchCommitted(b *testing.B) {
	x := quietTier(b, 1000)
	defer x.close()
	var res fetch.Result
	req := x.request(x.start(), 1)
	req.Isolation = fetch.ReadCommitted
	b.ReportAllocs()
	for b.Loop() {
		if err := x.reader.Fetch(b.Context(), req, &res); err != nil {
			b.Fatal(err)
		}
		res.Release()
	}
}
