package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// meterStore counts what is really asked of a store at a time: GETs whose bodies are not
// closed, and their bytes.
type meterStore struct {
	objstore.Store

	mu          sync.Mutex
	gets, most  int
	bytes, many int64
}

func (s *meterStore) Get(ctx context.Context, key string, off, n int64, opts objstore.GetOptions) (objstore.Info, io.ReadCloser, error) {
	s.count(1, n)
	ok := false
	defer func() { // also if the store panics
		if !ok {
			s.count(-1, -n)
		}
	}()
	info, body, err := s.Store.Get(ctx, key, off, n, opts)
	if err != nil {
		return info, body, err
	}
	ok = true
	return info, &meteredBody{ReadCloser: body, done: func() { s.count(-1, -n) }}, nil
}

func (s *meterStore) count(gets int, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets, s.bytes = s.gets+gets, s.bytes+n
	s.most, s.many = max(s.most, s.gets), max(s.many, s.bytes)
}

// meteredBody tells when it is closed.
type meteredBody struct {
	io.ReadCloser
	once sync.Once
	done func()
}

func (b *meteredBody) Close() error {
	b.once.Do(b.done)
	return b.ReadCloser.Close()
}

// All at once: cursors, streams, strangers and calls for many partitions, of several
// tenants, while the budget of memory changes, segments are deleted and dropped, and the
// store refuses, stalls, panics, cuts, damages, and shows other objects; in the end the
// Reader is closed under half of them. Bytes are right or the error is typed; nobody
// hangs beyond his context; no more is in flight than may be; nothing is left.
func TestSiege(t *testing.T) {
	for range 30 * soak() {
		seed := rand.Uint64()
		if ok := t.Run("", func(t *testing.T) { bubble.Test(t, func(t *testing.T) { siege(t, seed) }) }); !ok {
			t.Fatalf("seed %d", seed)
		}
	}
}

// besieger is one who reads.
type besieger struct {
	*tier
	t   *testing.T
	all []placed
	rng *rand.Rand
	n   int64 // offsets there are

	gone *atomic.Bool // the first segment's deletion has been published
}

func siege(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	log, chunk := even(3, 24)
	meters := new(meterStore)
	memory := []int64{12, 30, 200}[rng.IntN(3)] * chunk
	o := tierOptions{
		chunk: []int64{chunk, chunk * 2 / 3, 3*chunk + 1}[rng.IntN(3)], memory: memory, run: []int64{2, 4, 16, 64}[rng.IntN(4)] * chunk,
		requests: []int{1, 1, 2, 4}[rng.IntN(4)], attempts: 1 + rng.IntN(4), bytes: []int64{0, 20, 5}[rng.IntN(3)] * chunk,
		tenant: rng.IntN(3), most: []int64{0, 3}[rng.IntN(2)] * chunk, hedge: []int64{0, 4}[rng.IntN(2)] * chunk,
		tails: []int64{0, 1500}[rng.IntN(2)],
		wrap:  func(s objstore.Store) objstore.Store { meters.Store = s; return meters },
	}
	x := newTier(t, log, o)
	all := x.batches()
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(seed, 2))
	angry := 6 + rng.IntN(60)
	x.inject(func(c storetest.Call) storetest.Fault {
		if c.Op != "get" {
			return storetest.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		at := dice.Int64N(max(c.Len, 1))
		switch dice.IntN(angry) {
		case 0:
			return storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrThrottled}
		case 1:
			return storetest.Fault{Kind: storetest.Cut, At: at}
		case 2:
			return storetest.Fault{Kind: storetest.Flip, At: at}
		case 3:
			return storetest.Fault{Kind: []storetest.Kind{storetest.FailAfter, storetest.EarlyEOF, storetest.WrongSize}[dice.IntN(3)], At: at}
		case 4:
			return storetest.Fault{Kind: storetest.WrongIdentity}
		case 5:
			switch dice.IntN(4) {
			case 0:
				panic("the store")
			case 1:
				return storetest.Fault{Kind: storetest.Stall, At: at}
			case 2:
				return storetest.Fault{Kind: storetest.Hang}
			default:
				return storetest.Fault{Kind: storetest.FailBefore, Err: objstore.ErrNotExist}
			}
		default:
			gate := make(chan struct{})
			time.AfterFunc(time.Duration(dice.IntN(40))*time.Millisecond, func() { close(gate) })
			return storetest.Fault{Kind: storetest.Wait, Gate: gate}
		}
	})
	stop := make(chan struct{})
	var world sync.WaitGroup
	var gone atomic.Bool
	world.Go(func() { x.world(t, rand.New(rand.NewPCG(seed, 3)), memory, &gone, stop) })
	var wg sync.WaitGroup
	for i := range 12 {
		b := &besieger{tier: x, t: t, all: all, rng: rand.New(rand.NewPCG(seed, 10+uint64(i))), n: int64(len(all)), gone: &gone}
		wg.Go(func() { b.read(20) })
	}
	if rng.IntN(2) == 0 {
		<-time.After(time.Duration(rng.IntN(3000)) * time.Millisecond)
		if err := x.reader.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	close(stop)
	world.Wait()
	x.inject(nil)
	<-time.After(10 * time.Minute) // what hangs, or waits for its next try, has ended
	synctest.Wait()
	meters.mu.Lock()
	defer meters.mu.Unlock()
	if requests, most := o.requests, meters.most; most > requests {
		t.Errorf("%d GETs at a time, %d may be", most, requests)
	}
	if o.bytes > 0 && meters.many > max(o.bytes, 24*chunk) {
		t.Errorf("%d bytes in flight, %d may be", meters.many, o.bytes)
	}
	if st := x.ep.Stats(); st.RequestsInFlight != 0 || st.BytesInFlight != 0 || st.Waiting != 0 || meters.gets != 0 || meters.bytes != 0 {
		t.Errorf("in the end: %+v; %d GETs of %d bytes", st, meters.gets, meters.bytes)
	}
	if st := x.cache.Stats(); st.Filling != 0 || st.Bound != 0 || st.Reserved != 0 || st.Waiting != 0 || st.Detached != 0 || st.Used > st.Budget {
		t.Errorf("in the end: %+v", st)
	}
	x.close()
}

// world is what happens meanwhile.
func (x *tier) world(t *testing.T, rng *rand.Rand, memory int64, gone *atomic.Bool, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(1+rng.IntN(80)) * time.Millisecond):
		}
		switch rng.IntN(8) {
		case 0:
			if err := x.cache.SetMemoryBytes(1 + rng.Int64N(memory)); err != nil { // less than a chunk, too
				t.Error(err)
			}
		case 1:
			x.cache.Drop(x.segs[rng.IntN(3)].ID)
		case 2:
			if !gone.Load() && rng.IntN(4) == 0 {
				x.remove(x.segs[0])
				gone.Store(true)
			}
		}
		if st := x.cache.Stats(); st.Used != st.Reserved+st.Filling+st.Window+st.Main+st.Detached || st.Bound > st.Filling || st.Used < 0 || st.Bound < 0 {
			t.Errorf("the books do not add up: %+v", st)
		}
	}
}

// read reads some times, as one of those that there are.
func (b *besieger) read(times int) {
	rng, x := b.rng, b.tier
	kind := rng.IntN(5) // a stream, a cursor, many, and plain reads
	req := x.request(rng.Int64N(b.n), 1)
	req.Hint = []fetch.Hint{fetch.Detect, fetch.TimeQuery, fetch.Sequential, fetch.Scan, fetch.Tail}[rng.IntN(5)]
	req.Tenant = []string{"", "", "one", "two"}[rng.IntN(4)]
	var s *fetch.Stream
	switch kind {
	case 0:
		s = x.reader.Stream(req)
		defer s.Close()
	case 1:
		req.Cursor = x.reader.Announce(req.Partition, req.Offset)
		defer req.Cursor.Close()
	}
	var answers []fetch.Answer
	defer func() { releaseAll(answers) }()
	var res, copied fetch.Result
	defer res.Release()
	for range times {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(400))*time.Millisecond)
		if rng.IntN(3) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(context.Background(), 30*time.Second)
		}
		if rng.IntN(3) == 0 {
			req.Offset = rng.Int64N(b.n + 1)
			if s != nil {
				s.SeekTo(req.Offset)
			}
		}
		req.MaxBytes = 1 + rng.IntN(8000)
		began, gone := time.Now(), b.gone.Load()
		deadline, _ := ctx.Deadline()
		switch kind {
		case 2:
			reqs := []fetch.Request{req, x.request(rng.Int64N(b.n), 4000), x.request(rng.Int64N(b.n), 1)}
			answers = x.many(ctx, 0, answers, reqs...)
			for i := range answers {
				b.judge(reqs[i].Offset, 8000, &answers[i].Result, answers[i].Err, gone)
			}
		default:
			offset := req.Offset
			var err error
			if s != nil {
				offset = s.Offset()
				err = s.Next(ctx, &res)
			} else {
				err = x.reader.Fetch(ctx, req, &res)
			}
			b.judge(offset, 8000, &res, err, gone)
			if err == nil {
				req.Offset = res.NextOffset()
			}
		}
		if late := time.Since(deadline); late > 0 {
			b.t.Errorf("came back %v after its deadline, %v after it began", late, time.Since(began))
		}
		cancel()
		if rng.IntN(3) == 0 { // keep it, and let it go twice, by a copy
			before := bytes.Join(res.AppendTo(nil), nil)
			<-time.After(time.Duration(rng.IntN(50)) * time.Millisecond)
			if !bytes.Equal(before, bytes.Join(res.AppendTo(nil), nil)) {
				b.t.Error("a Result changed while it was kept")
			}
			copied = res
			copied.Release()
		}
		res.Release()
		if rng.IntN(2) == 0 {
			releaseAll(answers)
		}
	}
}

// judge compares an answer with the log. gone is whether the first segment was being
// deleted before it was asked for.
func (b *besieger) judge(offset int64, most int, res *fetch.Result, err error, gone bool) {
	if err == nil {
		if gone && res.FirstOffset() <= b.segs[0].EndOffset {
			b.t.Errorf("offset %d: batch %d of a segment whose deletion had begun", offset, res.FirstOffset())
		}
		b.check(res, b.all, offset, most)
		return
	}
	for _, inner := range []string{"brings the chunks", "went elsewhere", "without result", "without a reason"} {
		if strings.Contains(err.Error(), inner) {
			b.t.Errorf("offset %d: nobody is to be told of this: %v", offset, err)
		}
	}
	for _, typed := range []error{
		context.Canceled, context.DeadlineExceeded, fetch.ErrUnavailable, fetch.ErrCorruption, fetch.ErrEndOfTier, fetch.ErrSkipped,
		fetch.ErrClosed, fetch.ErrNotReady, fetch.ErrBatchTooLarge,
	} {
		if errors.Is(err, typed) {
			return
		}
	}
	b.t.Errorf("offset %d: %v", offset, err)
}
