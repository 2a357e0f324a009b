package bench

import (
	"context"
	"testing"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/bench/replay"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/objstore/storetest"
)

// following is a Tier that notes where its reads begin, and where the one before ended.
type following struct {
	tier  *segtier.Tier
	next  int64
	jumps int
	reads int
}

func (f *following) Fetch(ctx context.Context, req fetch.Request, res *fetch.Result) error {
	if f.reads++; f.reads > 1 && req.Offset != f.next {
		f.jumps++
	}
	err := f.tier.Fetch(ctx, req, res)
	f.next = res.NextOffset()
	return err
}

// A made-up consumer that reads in sequence goes on where its last read ended, as a
// consumer does, whatever batches it is given; and so it is fetched ahead for.
func TestCatchUpFollowsBatches(t *testing.T) {
	seg := bigSegment()
	tier, err := segtier.Open(t.Context(), segtier.Options{Store: storetest.NewMem(), Metadata: metadatatest.NewMem(), MemoryBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	copied, err := tier.Copy(t.Context(), seg, metadata.Writer{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := replay.FindWorkload("catchup")
	if err != nil {
		t.Fatal(err)
	}
	events, err := w.Events(replay.World{{
		Partition: copied.Partition, First: copied.StartOffset, End: copied.EndOffset + 1, Bytes: copied.SizeBytes,
	}}, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := following{tier: tier}
	if _, err := replay.Run(t.Context(), &f, events, replay.Options{Full: true, Request: func(e replay.Event) (fetch.Request, error) {
		return fetch.Request{Partition: copied.Partition, Offset: e.Offset, MaxBytes: e.MaxBytes}, nil
	}}); err != nil {
		t.Fatal(err)
	}
	if f.jumps > 0 || f.reads < 8 {
		t.Errorf("%d of %d reads do not begin where the one before ended", f.jumps, f.reads)
	}
	if st := tier.Stats().Fetch; st.Ahead == 0 {
		t.Errorf("nothing was fetched ahead: %+v", st)
	}
}
