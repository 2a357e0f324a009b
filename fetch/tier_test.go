package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/header"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soak multiplies the work of long tests.
func soak() int {
	if n, err := strconv.Atoi(os.Getenv("SEGTIER_SOAK")); err == nil && n > 0 {
		return 50 * n
	}
	return 1
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// tier is a partition, tiered, and a Reader over it.
type tier struct {
	t      failer
	log    *testseg.Log
	meta   metadata.Store
	mem    objstore.Store    // what really is in the store
	store  *storetest.Faulty // what the Reader sees
	ep     *endpoint.Endpoint
	cache  *cache.Cache
	reader *fetch.Reader
	segs   []*metadata.Segment
	notes  int

	mu   sync.Mutex
	plan storetest.Plan   // guarded by mu
	gets []storetest.Call // guarded by mu
}

type tierOptions struct {
	chunk    int64 // 0: 4 KiB
	memory   int64 // 0: 64 MiB
	tails    int64
	run      int64
	upTo     int // segments to copy; 0 all
	attempts int
	requests int   // 0: 64
	tenant   int   // requests of one tenant at a time; 0: any number
	bytes    int64 // in flight; 0: 256 MiB
	most     int64 // bytes in flight of one tenant; 0: any number
	hedge    int64 // up to which size GETs are made twice; 0: none
	wrap     func(objstore.Store) objstore.Store
	notes    int // how far apart noted batches are; 0: 300 B
}

var writer = metadata.Writer{BrokerID: 1, LeaderEpoch: 1000}

// newTier copies log into a store in memory.
func newTier(t failer, log *testseg.Log, o tierOptions) *tier {
	t.Helper()
	x := &tier{t: t, log: log, meta: metadatatest.NewMem(), mem: storetest.NewMem()}
	x.store = storetest.Inject(x.mem, x.fault)
	var err error
	var seen objstore.Store = x.store
	if o.wrap != nil {
		seen = o.wrap(seen)
	}
	if x.ep, err = endpoint.New(seen, endpoint.Options{
		Attempts: max(o.attempts, 1), Requests: o.requests, BytesInFlight: o.bytes,
		TenantRequests: o.tenant, TenantBytesInFlight: o.most, HedgeBytes: o.hedge,
	}); err != nil {
		t.Fatalf("%v", err)
	}
	if x.cache, err = cache.New(cache.Options{MemoryBytes: max(o.memory, 0)}); err != nil {
		t.Fatalf("%v", err)
	}
	if x.reader, err = fetch.New(x.meta, x.ep, x.cache, fetch.Options{TailBytes: o.tails, RunBytes: o.run}); err != nil {
		t.Fatalf("%v", err)
	}
	if o.chunk == 0 {
		o.chunk = 4096
	}
	if x.notes = o.notes; x.notes == 0 {
		x.notes = 300
	}
	x.reader.SetNoteEvery(x.notes)
	for i, s := range log.Segments {
		if o.upTo > 0 && i >= o.upTo {
			break
		}
		x.copy(s, o.chunk)
	}
	x.forget()
	return x
}

// copy makes one segment FINISHED.
func (x *tier) copy(s *testseg.Segment, chunk int64) *metadata.Segment {
	x.t.Helper()
	ctx := context.Background()
	plan, err := transfer.Scan(ctx, s, transfer.ScanOptions{ChunkSize: chunk})
	if err != nil {
		x.t.Fatalf("scan: %v", err)
	}
	info := s.Info()
	started, err := metadata.Started(&metadata.Segment{
		Partition: info.Partition, ID: segment.NewUUID(), StartOffset: info.StartOffset, EndOffset: info.EndOffset,
		MaxTimestamp: plan.MaxTimestamp(), SizeBytes: plan.LogSize(), Epochs: info.Epochs.Range(info.StartOffset, info.EndOffset),
		Custom: plan.Fingerprint(), TxnIndexEmpty: plan.TxnIndexEmpty(),
	}, writer, 1)
	if err == nil {
		err = x.meta.Publish(ctx, started)
	}
	if err != nil {
		x.t.Fatalf("started: %v", err)
	}
	receipt, err := transfer.Upload(ctx, x.ep, s, plan, header.Of(started.Segment()), transfer.UploadOptions{})
	if err != nil {
		x.t.Fatalf("upload: %v", err)
	}
	finished, err := metadata.Finished(started.Segment(), receipt, writer, 2)
	if err == nil {
		err = x.meta.Publish(ctx, finished)
	}
	if err != nil {
		x.t.Fatalf("finished: %v", err)
	}
	x.segs = append(x.segs, finished.Segment())
	return finished.Segment()
}

// remove begins the deletion of a segment.
func (x *tier) remove(seg *metadata.Segment) {
	x.t.Helper()
	ev, err := metadata.DeleteStarted(seg, writer, 3)
	if err == nil {
		err = x.meta.Publish(context.Background(), ev)
	}
	if err != nil {
		x.t.Fatalf("delete: %v", err)
	}
}

// fault decides on what the Reader sees and writes GETs down.
func (x *tier) fault(c storetest.Call) storetest.Fault {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.Op == "get" {
		x.gets = append(x.gets, c)
	}
	if x.plan == nil {
		return storetest.Fault{}
	}
	return x.plan(c)
}

// inject changes the plan; nil is no faults.
func (x *tier) inject(plan storetest.Plan) {
	x.mu.Lock()
	x.plan = plan
	x.mu.Unlock()
}

// forget empties the list of GETs and returns what was on it.
func (x *tier) forget() []storetest.Call {
	x.mu.Lock()
	defer x.mu.Unlock()
	gets := x.gets
	x.gets = nil
	return gets
}

// chill empties both caches.
func (x *tier) chill() {
	for _, s := range x.segs {
		x.cache.Drop(s.ID)
	}
	if err := x.reader.Close(); err != nil {
		x.t.Fatalf("%v", err)
	}
	var err error
	if x.reader, err = fetch.New(x.meta, x.ep, x.cache, fetch.Options{}); err != nil {
		x.t.Fatalf("%v", err)
	}
	x.reader.SetNoteEvery(x.notes)
}

// close ends everything and asserts that no byte and no lease is left.
func (x *tier) close() {
	x.t.Helper()
	if err := x.reader.Close(); err != nil {
		x.t.Errorf("%v", err)
	}
	x.cache.Close()
	if st := x.cache.Stats(); st.Used != 0 {
		x.t.Errorf("memory is left: %+v", st)
	}
	if err := x.ep.Close(); err != nil {
		x.t.Errorf("%v", err)
	}
}

// request is a fetch of everything there is to know.
func (x *tier) request(offset int64, maxBytes int) fetch.Request {
	return fetch.Request{Partition: x.log.Partition, Lineage: x.log.Epochs, LogStart: x.start(), Offset: offset, MaxBytes: maxBytes}
}

func (x *tier) start() int64 { return x.log.Segments[0].Info().StartOffset }

// end returns the first offset that was not copied.
func (x *tier) end() int64 { return x.segs[len(x.segs)-1].EndOffset + 1 }

// batches returns what was copied: the raw batches in order.
func (x *tier) batches() (all []placed) {
	for _, s := range x.log.Segments[:len(x.segs)] {
		for _, b := range s.Batches {
			all = append(all, placed{b, s.Log[b.Pos : b.Pos+int64(b.Header.Size)]})
		}
	}
	return all
}

type placed struct {
	testseg.Placed
	raw []byte
}

// check compares a Result for offset with the batches that must be in it, and
// its ways of handing them out with each other.
func (x *tier) check(res *fetch.Result, all []placed, offset int64, maxBytes int) {
	t := x.t
	t.Helper()
	i := slices.IndexFunc(all, func(b placed) bool { return b.Header.LastOffset >= offset })
	if i < 0 {
		t.Fatalf("offset %d: data, but there is none", offset)
	}
	var want []byte
	n := 0
	for h, raw := range res.Batches() {
		b := all[i+n]
		if h != b.Header || !bytes.Equal(raw, b.raw) {
			t.Fatalf("offset %d, batch %d: got %d to %d, want %d to %d", offset, n, h.BaseOffset, h.LastOffset, b.Header.BaseOffset, b.Header.LastOffset)
		}
		want = append(want, b.raw...)
		n++
	}
	if n == 0 {
		t.Fatalf("offset %d: success without a batch", offset)
	}
	if got := bytes.Join(res.AppendTo(nil), nil); !bytes.Equal(got, want) || res.Size() != len(want) {
		t.Fatalf("offset %d: AppendTo gives %d bytes, Size says %d, the batches have %d", offset, len(got), res.Size(), len(want))
	}
	if n > 1 && len(want) > maxBytes {
		t.Fatalf("offset %d: %d bytes in %d batches, at most %d were asked for", offset, len(want), n, maxBytes)
	}
	if first, last := all[i].Header, all[i+n-1].Header; res.FirstOffset() != first.BaseOffset || res.NextOffset() != last.LastOffset+1 {
		t.Fatalf("offset %d: offsets %d to %d, want %d to %d", offset, res.FirstOffset(), res.NextOffset(), first.BaseOffset, last.LastOffset+1)
	}
	for range 2 { // WriteTo consumes nothing
		var buf bytes.Buffer
		if m, err := res.WriteTo(&buf); err != nil || int(m) != len(want) || !bytes.Equal(buf.Bytes(), want) {
			t.Fatalf("offset %d: WriteTo wrote %d of %d bytes: %v", offset, m, len(want), err)
		}
	}
}

// walk reads from the log start to the end of the tier and asserts that every
// byte comes back once, in order.
func (x *tier) walk(maxBytes int) (fetches int) {
	t := x.t
	t.Helper()
	all := x.batches()
	var got, want []byte
	for _, s := range x.log.Segments[:len(x.segs)] {
		want = append(want, s.Log...)
	}
	var res fetch.Result
	defer res.Release()
	for offset := x.start(); ; fetches++ {
		if fetches > len(all) {
			t.Fatalf("no end after %d fetches", fetches)
		}
		err := x.reader.Fetch(context.Background(), x.request(offset, maxBytes), &res)
		if end := (*fetch.EndOfTierError)(nil); errors.As(err, &end) {
			if end.Next != x.end() {
				t.Fatalf("the tier ends at %d, got %d", x.end(), end.Next)
			}
			break
		}
		if err != nil {
			t.Fatalf("offset %d: %v", offset, err)
		}
		x.check(&res, all, offset, maxBytes)
		for _, b := range res.AppendTo(nil) {
			got = append(got, b...)
		}
		if res.NextOffset() <= offset {
			t.Fatalf("no progress: next offset %d after %d", res.NextOffset(), offset)
		}
		offset = res.NextOffset()
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("max bytes %d: %d bytes came back, %d were copied, or others", maxBytes, len(got), len(want))
	}
	return fetches
}

// everyOffset fetches at every offset there is, and some around.
func (x *tier) everyOffset(maxBytes int) {
	t := x.t
	t.Helper()
	all := x.batches()
	var res fetch.Result
	defer res.Release()
	for offset := x.start(); offset < x.end()+3; offset++ {
		err := x.reader.Fetch(context.Background(), x.request(offset, maxBytes), &res)
		if last := all[len(all)-1].Header.LastOffset; offset > last {
			end := (*fetch.EndOfTierError)(nil)
			if !errors.As(err, &end) || end.Next != max(offset, x.end()) {
				t.Fatalf("offset %d, behind the last batch: %v", offset, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("offset %d: %v", offset, err)
		}
		x.check(&res, all, offset, maxBytes)
	}
	below := x.request(x.start()-1, 1)
	if err := x.reader.Fetch(context.Background(), below, &res); !errors.Is(err, fetch.ErrOutOfRange) {
		t.Fatalf("below the log start: %v", err)
	}
}

// everyTime asks for every record's time, and the milliseconds around it, from
// several log starts.
func (x *tier) everyTime(starts ...int64) {
	t := x.t
	t.Helper()
	times := map[int64]bool{-1: true, 0: true, math.MaxInt64: true}
	for _, b := range x.batches() {
		for _, r := range b.Records {
			times[r.Timestamp-1], times[r.Timestamp], times[r.Timestamp+1] = true, true, true
		}
		times[b.Header.MaxTimestamp] = true
	}
	copied := *x.log
	copied.Segments = copied.Segments[:len(x.segs)]
	for _, start := range starts {
		for ts := range times {
			got, err := x.reader.OffsetForTime(context.Background(), fetch.TimeRequest{
				Partition: x.log.Partition, Lineage: x.log.Epochs, LogStart: start, Time: ts,
			})
			if ts < 0 {
				if err == nil {
					t.Fatalf("time %d is taken for a time: %+v", ts, got)
				}
				continue
			}
			if err != nil {
				t.Fatalf("time %d from %d: %v", ts, start, err)
			}
			want := fetch.TimePosition{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
			if r, epoch, ok := copied.OffsetForTime(ts, start); ok {
				want = fetch.TimePosition{Offset: r.Offset, Timestamp: r.Timestamp, LeaderEpoch: epoch}
			}
			if got != want {
				t.Fatalf("time %d from %d: %+v, want %+v", ts, start, got, want)
			}
		}
	}
}
