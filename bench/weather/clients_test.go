package weather

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// s3Store opens the bucket of a server as a host would.
func s3Store(t testing.TB, at Addresses, secure bool, o s3.Options) *s3.Store {
	t.Helper()
	o.Bucket, o.Endpoint, o.PathStyle, o.Region = "bucket", at.HTTP, true, "us-east-1"
	o.AccessKeyID, o.SecretAccessKey = "key", "secret"
	if secure {
		o.Endpoint, o.RootCAs = at.HTTPS, x509.NewCertPool()
		o.RootCAs.AppendCertsFromPEM([]byte(at.CA))
	}
	store, err := s3.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func newEndpoint(t testing.TB, store objstore.Store, o endpoint.Options) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ep.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return ep
}

// The server is a store by the law of package objstore, when our client speaks to
// it: that it verifies, refuses and lists as it should is in there.
// In a process of its own, because the suite looks for goroutines that are left.
func TestStoreIsAccepted(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "weather")
	if err := Build(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%t", secure), func(t *testing.T) {
			p, err := StartProcess(t.Context(), binary)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			n := 0
			storetest.Acceptance(t, func(t *testing.T) objstore.Store {
				n++
				return s3Store(t, p.Addresses, secure, s3.Options{Prefix: fmt.Sprintf("p%d", n)})
			})
		})
	}
}

func TestAbilities(t *testing.T) {
	p := newPlace(t, Options{})
	store := s3Store(t, p.Addresses, false, s3.Options{})
	newEndpoint(t, store, endpoint.Options{})
	put(t, store, "x", 10, 5<<20)
	got, ok := store.Abilities()
	want := s3.Abilities{PutChecksum: true, PartChecksum: true, PutEcho: true, PartEcho: true, ConditionalPut: true, ConditionalComplete: true, Token: true}
	if !ok || got != want {
		t.Errorf("%v (%t)", got, ok)
	}
}

func TestObjectsAreConfirmed(t *testing.T) {
	p := newPlace(t, Options{})
	ep := newEndpoint(t, s3Store(t, p.Addresses, true, s3.Options{Prefix: "tier"}), endpoint.Options{})
	tier := mustTier(t, Spec{Segments: 4, SegmentBytes: 9 << 20, BatchBytes: 3333, Partitions: 2})
	for i := range 2 {
		seg, err := tier.Record(1, 3*i)
		if err != nil {
			t.Fatal(err)
		}
		if err := seg.Validate(); err != nil {
			t.Fatal(err)
		}
		loc, err := object.ParseLocation(seg.Custom)
		if err != nil {
			t.Fatal(err)
		}
		o, err := tier.Object(1, 3*i)
		if err != nil {
			t.Fatal(err)
		}
		receipt, err := transfer.Confirm(t.Context(), ep, o.Header(), loc, transfer.ConfirmOptions{})
		if err != nil || receipt.IsZero() {
			t.Fatal(err)
		}
	}
}

// In every weather a Reader gives the right bytes, or an error that says to try
// again.
func TestReadersGetTheRightBytes(t *testing.T) {
	tier := mustTier(t, Spec{Segments: 3, SegmentBytes: 5 << 20, BatchBytes: 10_000})
	meta, err := tier.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	weathers := map[string]Schedule{"lies": {Faults: []Fault{
		{Kind: Whole, Share: .15, Attempts: 1},
		{Kind: WrongRange, Share: .15, Attempts: 1},
		{Kind: Short, Share: .15, At: -1, Attempts: 1},
		{Kind: Flip, Share: .4, At: -1, Attempts: 1},
	}}}
	for _, name := range Presets() {
		weathers[name], _ = ParseSchedule(name) // known
	}
	for name, schedule := range weathers {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, Options{Schedule: schedule})
			ep := newEndpoint(t, s3Store(t, p.Addresses, false, s3.Options{}), endpoint.Options{Attempts: 6, ProgressTimeout: hangs})
			c, err := cache.New(cache.Options{MemoryBytes: 32 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r, err := fetch.New(meta, ep, c, fetch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got := readAll(t, r, tier, 0); got != tier.PartitionBytes() {
				t.Errorf("%d bytes of %d", got, tier.PartitionBytes())
			}
			if name == "calm" {
				if st := p.Stats(); st.DuplicateBytes != 0 || st.BytesOut < tier.PartitionBytes() || st.TailGets != 3 {
					t.Errorf("%+v", st)
				}
				at := tier.TimeOf(777)
				pos, err := r.OffsetForTime(t.Context(), fetch.TimeRequest{Partition: tier.Partition(0), Time: at})
				if err != nil || pos.Offset != 777 || pos.Timestamp != at {
					t.Errorf("offset for %d: %+v: %v", at, pos, err)
				}
			}
		})
	}
}

// readAll reads partition p from its first offset to its end and compares.
func readAll(t testing.TB, r *fetch.Reader, tier *Tier, p int) (n int64) {
	t.Helper()
	v := tier.Verifier(p, 0)
	var res fetch.Result
	defer res.Release()
	failures := 0
	for offset := int64(0); ; {
		err := r.Fetch(t.Context(), fetch.Request{Partition: tier.Partition(p), Offset: offset, MaxBytes: 700_000}, &res)
		if errors.Is(err, fetch.ErrEndOfTier) {
			return n
		}
		if errors.Is(err, fetch.ErrUnavailable) || errors.Is(err, fetch.ErrCorruption) {
			if failures++; failures > 20 {
				t.Fatalf("at offset %d, for the 21st time: %v", offset, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		m, err := res.WriteTo(v)
		if err != nil {
			t.Fatal(err)
		}
		n += m
		offset = res.NextOffset()
	}
}

// With a verifier in place of a client's socket, a wrong byte is found even if
// nobody on the way looks at sums.
func TestUnverifiedReadsAreCaught(t *testing.T) {
	p := newPlace(t, Options{Schedule: Schedule{Faults: []Fault{{Kind: Flip, Share: 1, At: -1}}}})
	tier := mustTier(t, Spec{})
	o, err := tier.Object(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := p.want(206, "GET", p.url+o.Key(), nil, "Range: bytes=0-99999")
	if _, err := tier.Verifier(0, 0).Write(r.body); err == nil {
		t.Error("a wrong bit was not seen")
	}
}

// A sink keeps sums and the last bytes, which is what an upload needs.
func TestUploadsIntoASink(t *testing.T) {
	for _, lose := range []bool{false, true} {
		t.Run(fmt.Sprintf("lose=%t", lose), func(t *testing.T) {
			o := Options{KeepBytes: -1}
			if lose {
				// Of every operation the first answer is lost, or is no success. The
				// probe is spared: its key is new at every try, so that every try of
				// it would be a first one.
				o.Schedule.Faults = []Fault{
					{Kind: ErrorIn200, Share: .5, Attempts: 1, Object: "/orders/"},
					{Kind: Lost, Share: 1, Attempts: 1, Object: "/orders/"},
				}
			}
			p := newPlace(t, o)
			ep := newEndpoint(t, s3Store(t, p.Addresses, false, s3.Options{}), endpoint.Options{})
			seg := bigSegment()
			plan, err := transfer.Scan(t.Context(), seg, transfer.ScanOptions{PartSize: 5 << 20})
			if err != nil {
				t.Fatal(err)
			}
			h := object.Header{
				Partition: plan.Info().Partition, SegmentID: segment.UUID{1, 2}, StartOffset: plan.Info().StartOffset, EndOffset: plan.Info().EndOffset,
				MaxTimestamp: plan.MaxTimestamp(), EventTimestamp: 1, SizeBytes: plan.LogSize(), TxnIndexEmpty: plan.TxnIndexEmpty(),
				Epochs: plan.Info().Epochs.Range(plan.Info().StartOffset, plan.Info().EndOffset),
			}
			receipt, err := transfer.Upload(t.Context(), ep, seg, plan, h, transfer.UploadOptions{})
			if err != nil || receipt.IsZero() {
				t.Fatal(err)
			}
			if lose && p.Stats().Faults[Lost] < 2 {
				t.Errorf("%+v", p.Stats().Faults)
			}
			if _, err := ep.Read(t.Context(), endpoint.ReadRequest{Key: h.Key(), Pieces: []endpoint.Piece{{Buf: make([]byte, 10), NoVerify: true}}}); err == nil {
				t.Error("the first bytes were kept")
			}
		})
	}
}

// bigSegment is a segment of about 17 MiB.
func bigSegment() *testseg.Segment {
	value := make([]byte, 64<<10)
	var batches []testseg.Batch
	for i := range int64(270) {
		value[i]++
		batches = append(batches, testseg.Batch{BaseOffset: i, Records: []segment.Record{{Offset: i, Timestamp: 1000 + i, Value: append([]byte(nil), value...)}}})
	}
	return testseg.Build(testseg.Spec{Partition: testseg.DefaultPartition, Batches: batches})
}

func TestMetadataIsReadOnly(t *testing.T) {
	tier := mustTier(t, Spec{Partitions: 3, Segments: 4, SegmentBytes: 1 << 20})
	m, err := tier.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	if ps, err := m.Partitions(); err != nil || len(ps) != 3 {
		t.Errorf("%v: %v", ps, err)
	}
	view, err := m.View(tier.Partition(2))
	if err != nil {
		t.Fatal(err)
	}
	if up := view.CopiedUpTo(nil); up != tier.EndOffset()-1 {
		t.Errorf("copied up to %d of %d", up, tier.EndOffset())
	}
	seg, ok := view.Lookup(nil, tier.SegmentOffsets())
	if !ok || seg.StartOffset != tier.SegmentOffsets() {
		t.Fatalf("%+v", seg)
	}
	ev, err := metadata.DeleteStarted(&seg, metadata.Writer{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Publish(t.Context(), ev); !errors.Is(err, metadata.ErrReadOnly) {
		t.Errorf("%v", err)
	}
	changed := m.Watch(tier.Partition(0))
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	<-changed
	if _, err := m.View(tier.Partition(0)); !errors.Is(err, metadata.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestProcess(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "weather")
	if err := Build(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	p, err := StartProcess(ctx, binary, "-schedule", `{"faults":[{"kind":"throttle","share":1,"attempts":1}]}`, "-procs", "1")
	if err != nil {
		t.Fatal(err)
	}
	tier := mustTier(t, Spec{})
	o, err := tier.Object(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	store := s3Store(t, p.Addresses, true, s3.Options{})
	for attempt := range 3 {
		_, body, err := store.Get(ctx, o.Key(), 0, 100_000, objstore.GetOptions{})
		if (attempt == 0) != errors.Is(err, objstore.ErrThrottled) {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		if err != nil {
			continue
		}
		if _, err := io.Copy(struct{ io.Writer }{tier.Verifier(0, 0)}, body); err != nil {
			t.Error(err)
		}
		body.Close()
		if attempt == 1 {
			st, err := p.Stats(ctx)
			if err != nil || st.Requests["GetObject"] != 2 || st.Faults[Throttle] != 1 || st.BytesOut != 100_000 || st.Connections < 1 || st.Connections > 2 {
				t.Errorf("%+v: %v", st, err)
			}
			if err := errors.Join(p.Reset(ctx, true), p.SetSchedule(ctx, Schedule{})); err != nil {
				t.Error(err)
			}
		}
	}
	if err := p.SetSchedule(ctx, Schedule{ConnRate: -1}); err == nil {
		t.Error("a bad schedule is accepted")
	}
	if err := errors.Join(store.Close(), p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if end := p.cmd.ProcessState; end == nil || !end.Exited() { // its port may be somebody else's by now
		t.Error("the server still runs")
	}
	for _, bad := range [][]string{{"-schedule", "sunny"}, {"-what"}, {"argument"}, {"-cpus", "x"}} {
		if _, err := StartProcess(ctx, binary, bad...); err == nil {
			t.Errorf("%v: started", bad)
		}
	}
}

// put uploads n bytes in parts.
func put(t testing.TB, store objstore.Store, key string, n, part int) {
	t.Helper()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i)
	}
	c := checksum.NewCutter(int64(part))
	_, _ = c.Write(b)
	_, err := store.Upload(t.Context(), objstore.UploadRequest{Key: key, Body: bytes.NewReader(b), Size: int64(n), PartSize: int64(part), PartSums: c.Pieces(0), Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
}
