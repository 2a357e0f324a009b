package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// copied is a segment, and what its object must be.
type copied struct {
	src    segment.Source
	plan   *transfer.Plan
	header object.Header
	want   []byte
}

func newCopied(t *testing.T, src segment.Source, o transfer.ScanOptions) *copied {
	t.Helper()
	plan, err := transfer.Scan(context.Background(), src, o)
	if err != nil {
		t.Fatal(err)
	}
	info := plan.Info()
	c := &copied{src: src, plan: plan, header: object.Header{
		Partition: info.Partition, SegmentID: segment.UUID{0x42, 15: 0x17}, StartOffset: info.StartOffset, EndOffset: info.EndOffset,
		MaxTimestamp: plan.MaxTimestamp(), SizeBytes: plan.LogSize(), TxnIndexEmpty: plan.TxnIndexEmpty(),
		Epochs: info.Epochs.Range(info.StartOffset, info.EndOffset),
	}}
	mem := storetest.NewMem()
	ep := newEndpoint(t, mem)
	if _, err := transfer.Upload(context.Background(), ep, src, plan, c.header, transfer.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	_, body, err := mem.Get(context.Background(), c.header.Key(), 0, plan.Size(), objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	c.want = b.Bytes()
	return c
}

// Whatever goes wrong between us and the service, at any request, before it,
// inside its body, after its effect or with its answer: a copy ends with a receipt
// and the very bytes, or with an error and no receipt; and once the service is
// well, the same copy succeeds.
func TestFaultSchedules(t *testing.T) {
	big := newCopied(t, testseg.Big(1, 11*mib, testseg.Options{}).Segments[0], transfer.ScanOptions{PartSize: 5 * mib})
	small := newCopied(t, testseg.Random(7, testseg.Options{Segments: 1}).Segments[0], transfer.ScanOptions{ChunkSize: 4096, PartSize: mib})
	schedules := soak(200, 10_000)
	const workers = 2
	var mu sync.Mutex
	outcomes := map[string]int{}
	t.Run("workers", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for seed := w; seed < schedules; seed += workers {
					c := small
					if seed%5 < 2 {
						c = big
					}
					t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
						outcome := ""
						bubble.Test(t, func(t *testing.T) { outcome = runSchedule(t, uint64(seed), c) })
						mu.Lock()
						outcomes[outcome]++
						mu.Unlock()
					})
				}
			})
		}
	})
	t.Logf("outcomes of %d schedules: %v", schedules, outcomes)
	for _, want := range []string{"receipt", "error"} {
		if outcomes[want] < schedules/20 {
			t.Errorf("%d schedules of %d end with %s: too few to tell anything", outcomes[want], schedules, want)
		}
	}
}

func runSchedule(t *testing.T, seed uint64, c *copied) (outcome string) {
	r := rand.New(rand.NewPCG(seed, 0xfa017))
	ds := dialects()
	d := ds[r.IntN(len(ds))]
	f := newFake(d)
	store := f.another(t, func(o *s3.Options) {
		o.OnCancel = s3.OnCancel(r.IntN(2))
		o.Evidence = objstore.Level(r.IntN(int(objstore.ReadBack) + 1))
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.set(randomFaults(r, cancel))

	outcome = "receipt"
	if err := copyOnce(t, ctx, store, c); err != nil {
		outcome = "error"
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			t.Errorf("nobody has cancelled anything: %v", err)
		}
		if ctx.Err() != nil {
			outcome = "cancelled"
		}
	}
	got := f.object(c.header.Key())
	if outcome == "receipt" || !d.blind && got != nil {
		if !bytes.Equal(got, c.want) {
			t.Errorf("%s, %s: the object is not what was copied (%d bytes, want %d)", d.name, outcome, len(got), len(c.want))
		}
	}
	// The service is well again; the process has died and starts anew.
	f.set(nil)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	err := copyOnce(t, t.Context(), f.another(t, nil), c)
	switch {
	case err != nil && d.blind && errors.Is(err, objstore.ErrConflict):
		outcome = "conflict" // a blind service holds wrong bytes whose deletion failed
	case err != nil:
		t.Errorf("%s: once the service is well: %v", d.name, err)
	case !bytes.Equal(f.object(c.header.Key()), c.want):
		t.Errorf("%s: once the service is well: the object is not what was copied", d.name)
	}
	return outcome
}

// copyOnce uploads through an endpoint of its own and looks at what it has left.
func copyOnce(t *testing.T, ctx context.Context, store objstore.Store, c *copied) error {
	t.Helper()
	ep, err := endpoint.New(store, endpoint.Options{Requests: 4, BytesInFlight: 16 * mib})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := transfer.Upload(ctx, ep, c.src, c.plan, c.header, transfer.UploadOptions{})
	if err == nil && receipt.Facts().Object.Len != int64(len(c.want)) {
		t.Errorf("the receipt is for %d bytes", receipt.Facts().Object.Len)
	}
	if err != nil && err.Error() == "" {
		t.Error("an error without words")
	}
	if stats := ep.Stats(); stats.RequestsInFlight != 0 || stats.BytesInFlight != 0 {
		t.Errorf("slots are left: %+v", stats)
	}
	if cerr := ep.Close(); cerr != nil {
		t.Error(cerr)
	}
	return err
}

// randomFaults returns a plan: how often things go wrong, for how long, and
// whether the caller leaves in the middle. More than half of the faults are inside
// a body or after the effect.
func randomFaults(r *rand.Rand, cancel func()) func(request) fault {
	rate := []float64{0.03, 0.1, 0.3, 0.8}[r.IntN(4)]
	budget := 1 + r.IntN(12)
	if r.IntN(4) == 0 {
		budget = 1 << 30
	}
	leaveAt := -1
	if r.IntN(8) == 0 {
		leaveAt = r.IntN(30)
	}
	key := r.Uint64()
	nth := map[[2]string]uint64{}
	n := 0
	return func(req request) fault {
		if n++; n-1 == leaveAt {
			cancel()
		}
		// A function of the request, not of how parallel ones interleave.
		id := [2]string{req.op, fmt.Sprint(req.part)}
		nth[id]++
		h := key ^ nth[id]*0x9e3779b97f4a7c15
		for _, b := range id[0] + id[1] {
			h = (h ^ uint64(b)) * 0x100000001b3
		}
		dice := rand.New(rand.NewPCG(h, h>>7))
		if budget == 0 || dice.Float64() >= rate {
			return fault{}
		}
		budget--
		what := fault{kind: 1 + faultKind(dice.IntN(int(faultKinds)-1)), at: dice.Int64N(6 * mib)}
		switch dice.IntN(6) {
		case 0:
			what.status, what.code, what.retryAfter = 503, "SlowDown", "20"
		case 1:
			what.status, what.code = 404, "NoSuchUpload"
		case 2:
			what.status, what.code = 409, "ConditionalRequestConflict"
		case 3:
			what.status, what.code = 412, "PreconditionFailed"
		}
		if what.code != "SlowDown" && what.status != 0 && req.op != "CompleteMultipartUpload" && req.op != "PutObject" && req.op != "UploadPart" {
			what.status, what.code = 0, "" // no service says so there
		}
		return what
	}
}
