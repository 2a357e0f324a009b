package fetch

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"weak"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// aborted finds the aborted transactions for the batches in in: the entries of
// the transaction indexes that overlap [first, next), in this and the following
// segments of the lineage, until one shows that no further marker can concern
// them.
//
// A marker that lies in a later segment can abort what was read here; so a
// segment that cannot be searched is an error and not the end: a consumer that
// is not told of an aborted transaction takes its records for good.
func (rd *reading) aborted(ctx context.Context, in *holding) error {
	first := in.first()
	from := first // markers below it have been seen, or do not matter
	for offset := in.start; ; {
		seg, ok := rd.view.Lookup(rd.lineage, offset)
		if !ok || offset == math.MaxInt64 { // see at
			if going, ok := rd.view.Deleting(rd.lineage, offset, wasReadable); ok {
				// What was asked for is there; only its markers may not be.
				return fmt.Errorf("fetch: transactions of offsets %d to %d of %v may be aborted in segment %v, which is being deleted: %w",
					first, in.next-1, rd.p, going.ID, ErrUnavailable)
			}
			if err := rd.complete(offset); err != nil {
				return err
			}
			in.upTo = offset
			return nil
		}
		upper := rd.upper(&seg, offset)
		if seg.TxnIndexEmpty {
			offset = rd.quiet(in.pins.t, upper)
			from = offset
			continue
		}
		t, err := rd.r.tail(ctx, &seg, rd.tenant)
		if err != nil {
			return rd.blame(ctx, seg, offset, err)
		}
		in.collect(t.Txn, first, from, upper)
		if in.complete {
			in.upTo = upper
			return nil
		}
		offset, from = upper, upper
	}
}

// quiet is a part of the log in which metadata knows no aborted transaction.
type quiet struct {
	view       weak.Pointer[metadata.View] // who knows; weak, for it may be large and old
	lineage    segment.Lineage
	from, upTo int64
}

// quiet steps from offset over the segments that are known to hold no aborted
// transaction. Without transactions these are all up to the end of the tier, and
// every fetch would go over them: so what was found out for one is kept with t,
// the segment that it read, for the next.
func (rd *reading) quiet(t *tail, offset int64) int64 {
	q, view := t.quiet.Load(), weak.Make(rd.view)
	same := q != nil && q.view == view
	if same && q.from == offset && slices.Equal(q.lineage, rd.lineage) {
		return q.upTo
	}
	_, upTo, _ := rd.view.NextWithTxnIndex(rd.lineage, offset)
	if upTo > offset && !same { // one for each View, or two lineages would take turns
		t.quiet.Store(&quiet{view, slices.Clone(rd.lineage), offset, upTo})
	}
	return upTo
}

// collect adds the transactions whose markers lie in [from, to) and that overlap
// the batches. It is complete at the first one behind which nothing that
// concerns them can come: its last stable offset says that no transaction that
// began before was open any more.
func (in *holding) collect(txn index.Txn, first, from, to int64) {
	i := sort.Search(txn.Len(), func(i int) bool { return txn.Entry(i).LastOffset >= from })
	for ; i < txn.Len() && !in.complete; i++ {
		e := txn.Entry(i)
		if e.LastOffset >= to {
			return
		}
		if e.LastOffset >= first && e.FirstOffset < in.next {
			in.aborted = append(in.aborted, e)
		}
		in.complete = e.LastStableOffset >= in.next
	}
}
