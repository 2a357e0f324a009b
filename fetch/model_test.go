package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/objstore/storetest"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "run TestModel with this seed, alone or as the first of -model.seeds")
	modelSeeds = flag.Int("model.seeds", 0, "how many seeds TestModel runs (default 200, and 10,000 with SEGTIER_SOAK)")
)

// TestModel lets readers do whatever readers do, fetch, fetch many, seek, keep
// Results, leave early, while segments are deleted, objects damaged on their way,
// the store is slow or fails, memory is short, changed and dropped; and compares
// every answer with the log in memory. A seed fixes what everybody does, not how
// the scheduler mixes it: every other seed has one reader, and the same course
// each time.
//
//	go test ./fetch -run TestModel -model.seed 17
func TestModel(t *testing.T) {
	first, n := uint64(1), 200*soak()
	if *modelSeeds > 0 {
		n = *modelSeeds
	}
	if *modelSeed != 0 {
		first, n = *modelSeed, max(*modelSeeds, 1)
	}
	var served atomic.Int64
	for seed := first; seed < first+uint64(n) && !t.Failed(); seed++ {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { runModel(t, seed, &served) })
		})
		if !ok {
			t.Errorf("to see it again: go test ./fetch -run TestModel -model.seed %d", seed)
		}
	}
	if n > 10 && served.Load() < int64(n) {
		t.Errorf("%d answers with data in %d runs: the model tests nothing", served.Load(), n)
	}
}

// model is a run of TestModel.
type model struct {
	*tier
	t      *testing.T
	all    []placed
	memory int64
	served *atomic.Int64

	faults  atomic.Bool  // the store may fail from here on
	lies    atomic.Bool  // and bytes be damaged on their way, or the identity of objects
	deleted atomic.Int64 // segments whose deletion has been published, from the front
	going   atomic.Int64 // or is about to be
}

func runModel(t *testing.T, seed uint64, served *atomic.Int64) {
	r := rand.New(rand.NewPCG(seed, 6))
	m := &model{t: t, memory: 128<<10 + r.Int64N(256<<10), served: served}
	log := testseg.Random(seed%500, testseg.Options{Segments: 2 + r.IntN(3), Batches: 4 + r.IntN(12)})
	m.tier = newTier(t, log, tierOptions{
		chunk: 300 + r.Int64N(8000), memory: m.memory, run: 1000 + r.Int64N(20000), attempts: 1 + r.IntN(3),
		tails: 2000 + r.Int64N(1<<20), notes: 1 + r.IntN(2000),
		requests: []int{0, 0, 1, 2, 4}[rand.New(rand.NewPCG(seed, 8)).IntN(5)],
	})
	m.all = m.batches()
	stop := make(chan struct{})
	var chaos, readers sync.WaitGroup
	hostile := r.IntN(4) > 0
	if hostile {
		chaos.Go(func() { m.chaos(rand.New(rand.NewPCG(seed, 7)), stop) })
	}
	n := 1
	if seed%2 == 0 {
		n = 2 + r.IntN(3)
	}
	for i := range n {
		readers.Go(func() {
			rd := reader{model: m, r: rand.New(rand.NewPCG(seed, 100+uint64(i)))}
			defer rd.drop()
			rd.seek()
			for range 10 + rd.r.IntN(20) {
				rd.step()
			}
		})
	}
	readers.Wait()
	close(stop)
	chaos.Wait()
	m.inject(nil)
	if !t.Failed() {
		m.healed()
	}
	m.close()
}

// healed reads everything that is left, without any fault: nothing is poisoned
// by what was.
func (m *model) healed() {
	if b, ok := any(m.cache).(interface{ SetMemoryBytes(int64) error }); ok {
		if err := b.SetMemoryBytes(m.memory); err != nil {
			m.t.Error(err)
		}
	}
	synctest.Wait()
	if n := int(m.deleted.Load()); n < len(m.segs) {
		var res fetch.Result
		defer res.Release()
		for offset := m.segs[n].StartOffset; ; offset = res.NextOffset() {
			err := m.reader.Fetch(context.Background(), m.request(offset, 3000), &res)
			if errors.Is(err, fetch.ErrEndOfTier) {
				break
			}
			if err != nil {
				m.t.Errorf("offset %d, when all is well again: %v", offset, err)
				break
			}
			m.check(&res, m.all, offset, 3000)
		}
	}
}

// chaos is what the world does to the readers until they are done.
func (m *model) chaos(r *rand.Rand, stop chan struct{}) {
	gates := []chan struct{}{}
	defer func() {
		for _, g := range gates {
			close(g)
		}
	}()
	var mu sync.Mutex // the plan is called from several goroutines, under the tier's lock
	gate := make(chan struct{})
	gates = append(gates, gate)
	dice := rand.New(rand.NewPCG(r.Uint64(), 1))
	plan := func(c storetest.Call) storetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if c.Op != "get" || dice.IntN(3) > 0 {
			return storetest.Fault{}
		}
		at := dice.Int64N(max(c.Len, 1))
		switch dice.IntN(6) {
		case 0:
			return storetest.Fault{Kind: storetest.FailBefore}
		case 1:
			return storetest.Fault{Kind: storetest.EarlyEOF, At: at}
		case 2:
			m.lies.Store(true)
			return storetest.Fault{Kind: storetest.Flip, At: at}
		case 3:
			return storetest.Fault{Kind: storetest.Wait, Gate: gate}
		case 4:
			m.lies.Store(true) // an object that is another again and again is damaged
			return storetest.Fault{Kind: storetest.WrongIdentity}
		default:
			return storetest.Fault{Kind: storetest.Cut, At: at}
		}
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(1+r.IntN(50)) * time.Millisecond):
		}
		switch r.IntN(8) {
		case 0:
			m.faults.Store(true)
			m.inject(plan)
		case 1:
			m.inject(nil)
		case 2, 3: // what waited goes on
			mu.Lock()
			close(gate)
			gate = make(chan struct{})
			gates = append(gates[:0], gate)
			mu.Unlock()
		case 4:
			if n := m.deleted.Load(); int(n) < len(m.segs) && r.IntN(3) == 0 {
				seg := m.segs[n]
				m.going.Add(1)
				m.remove(seg)
				m.deleted.Add(1)
				if r.IntN(2) == 0 { // the delay is over
					key, _ := m.object(seg)
					if err := m.mem.Delete(context.Background(), key); err != nil {
						m.t.Error(err)
					}
				}
			}
		case 5:
			m.tier.cache.Drop(m.segs[r.IntN(len(m.segs))].ID)
		case 6:
			if b, ok := any(m.cache).(interface{ SetMemoryBytes(int64) error }); ok {
				if err := b.SetMemoryBytes(m.memory/2 + r.Int64N(m.memory)); err != nil {
					m.t.Error(err)
				}
			}
		}
	}
}

// reader is one of the readers. It keeps Results for a while.
type reader struct {
	*model
	r       *rand.Rand
	offset  int64
	res     fetch.Result
	answers []fetch.Answer
	kept    []kept
}

// kept is a Result that was not released yet, and what was in it.
type kept struct {
	res  fetch.Result
	want []byte
}

func (rd *reader) seek() {
	rd.offset = rd.start() - 1 + rd.r.Int64N(rd.end()-rd.start()+3)
}

func (rd *reader) drop() {
	for i := range rd.kept {
		rd.let(&rd.kept[i])
	}
	rd.kept = nil
	rd.res.Release()
	releaseAll(rd.answers)
}

// let lets a kept Result go, which holds what it held, whatever was evicted,
// dropped or deleted meanwhile.
func (rd *reader) let(k *kept) {
	if got := bytes.Join(k.res.AppendTo(nil), nil); !bytes.Equal(got, k.want) {
		rd.t.Errorf("a Result of %d bytes changed while it was kept", len(k.want))
	}
	k.res.Release()
}

func (rd *reader) step() {
	r := rd.r
	for len(rd.kept) > 0 && r.IntN(2) == 0 {
		rd.let(&rd.kept[0])
		rd.kept = rd.kept[1:]
	}
	// Who keeps memory must not wait for memory for ever: that is the host's duty.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	holds := len(rd.kept) > 0 || rd.res.Size() > 0 || slices.ContainsFunc(rd.answers, func(a fetch.Answer) bool { return a.Result.Size() > 0 })
	switch r.IntN(6) {
	case 0:
		cancel()
	case 1:
		go cancel()
	case 2:
		timer := time.AfterFunc(time.Duration(r.IntN(100))*time.Millisecond, cancel)
		defer timer.Stop()
	default:
		if holds {
			timer := time.AfterFunc(10*time.Second, cancel)
			defer timer.Stop()
		}
	}
	switch r.IntN(8) {
	case 0:
		rd.seek()
	case 1:
		<-time.After(time.Duration(r.IntN(30)) * time.Millisecond)
	case 2, 3:
		rd.fetchMany(ctx)
	default:
		rd.fetch(ctx)
	}
}

func (rd *reader) ask() fetch.Request {
	req := rd.request(rd.offset, 1<<rd.r.IntN(16))
	if rd.r.IntN(3) == 0 {
		req.Isolation = fetch.ReadCommitted
	}
	return req
}

func (rd *reader) fetch(ctx context.Context) {
	req, deleted := rd.ask(), rd.deleted.Load()
	err := rd.reader.Fetch(ctx, req, &rd.res)
	rd.judge(ctx, req, &rd.res, err, deleted)
	if err != nil {
		rd.goOn(err)
		return
	}
	rd.offset = rd.res.NextOffset()
	if rd.r.IntN(4) == 0 && len(rd.kept) < 3 {
		rd.kept = append(rd.kept, kept{rd.res, bytes.Join(rd.res.AppendTo(nil), nil)})
		rd.res = fetch.Result{}
	} else if rd.r.IntN(2) == 0 {
		rd.res.Release()
	}
}

// goOn does what a consumer does after an error.
func (rd *reader) goOn(err error) {
	if skipped := (*fetch.SkippedError)(nil); errors.As(err, &skipped) {
		if skipped.Next <= rd.offset {
			rd.t.Errorf("offset %d was skipped: go on at %d", rd.offset, skipped.Next)
		}
		rd.offset = skipped.Next
	} else if errors.Is(err, fetch.ErrEndOfTier) || errors.Is(err, fetch.ErrOutOfRange) {
		rd.seek()
	}
}

func (rd *reader) fetchMany(ctx context.Context) {
	var reqs []fetch.Request
	for range 1 + rd.r.IntN(5) {
		reqs = append(reqs, rd.ask())
		rd.seek()
	}
	total := 0
	if rd.r.IntN(2) == 0 {
		total = 1 << rd.r.IntN(16)
	}
	calm, deleted := !rd.faults.Load(), rd.deleted.Load()
	rd.answers = rd.many(ctx, total, rd.answers, reqs...)
	got, could := false, false
	for i := range reqs {
		a := &rd.answers[i]
		got = got || a.Err == nil
		// What is not ready could be had, had the call not to end.
		could = could || errors.Is(a.Err, fetch.ErrNotReady)
		if !errors.Is(a.Err, fetch.ErrNotReady) {
			rd.judge(ctx, reqs[i], &a.Result, a.Err, deleted)
		} else if a.Result.Size() > 0 {
			rd.t.Errorf("not ready, with %d bytes", a.Result.Size())
		}
	}
	if could && !got && ctx.Err() == nil && calm && !rd.faults.Load() {
		rd.t.Error("nobody was served, and nobody knows why")
	}
	if got && rd.r.IntN(2) == 0 {
		releaseAll(rd.answers)
	}
}

// judge compares an answer with the log. deleted is how many segments were being
// deleted before it was asked for.
func (rd *reader) judge(ctx context.Context, req fetch.Request, res *fetch.Result, err error, deleted int64) {
	t := rd.t
	i := slices.IndexFunc(rd.all, func(b placed) bool { return b.Header.LastOffset >= req.Offset })
	if err == nil {
		rd.served.Add(1)
		if req.Offset < rd.start() || i < 0 {
			t.Errorf("offset %d: data, but there is none", req.Offset)
			return
		}
		rd.check(res, rd.all, req.Offset, max(req.MaxBytes, 1))
		if deleted > 0 && res.FirstOffset() <= rd.segs[deleted-1].EndOffset {
			t.Errorf("offset %d: batch %d of a segment whose deletion had begun", req.Offset, res.FirstOffset())
		}
		if req.Isolation == fetch.ReadCommitted {
			rd.judgeAborted(res)
		}
		return
	}
	if res.Size() != 0 {
		t.Errorf("an error and %d bytes: %v", res.Size(), err)
	}
	going := rd.going.Load()
	gone := going > 0 && req.Offset <= rd.segs[going-1].EndOffset
	var ok bool
	switch {
	case errors.Is(err, fetch.ErrOutOfRange):
		ok = req.Offset < rd.start()
	case errors.Is(err, fetch.ErrEndOfTier):
		ok = i < 0 || int(going) == len(rd.segs)
	case errors.Is(err, fetch.ErrSkipped):
		ok = gone
	case errors.Is(err, fetch.ErrCorruption):
		ok = rd.lies.Load()
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		ok = true
	case errors.Is(err, fetch.ErrUnavailable):
		ok = rd.faults.Load() || going > 0
	}
	if !ok {
		t.Errorf("offset %d, %d segments are being deleted: %v", req.Offset, going, err)
	}
}

// judgeAborted compares a list of aborted transactions with what the log has.
func (rd *reader) judgeAborted(res *fetch.Result) {
	list, complete, upTo := res.AbortedTransactions()
	first, next := res.FirstOffset(), res.NextOffset()
	type txn struct{ producer, first, last int64 }
	var must, may []txn
	for _, s := range rd.log.Segments {
		for _, a := range s.Aborted {
			if a.LastOffset < first || a.FirstOffset >= next {
				continue
			}
			e := txn{a.ProducerID, a.FirstOffset, a.LastOffset}
			may = append(may, e)
			if complete || a.LastOffset < upTo {
				must = append(must, e)
			}
		}
	}
	var got []txn
	for _, a := range list {
		got = append(got, txn{a.ProducerID, a.FirstOffset, a.LastOffset})
	}
	for _, e := range must {
		if !slices.Contains(got, e) {
			rd.t.Errorf("offsets %d to %d: aborted transaction %+v is missing in %+v (complete %v, up to %d)", first, next-1, e, got, complete, upTo)
		}
	}
	for _, e := range got {
		if !slices.Contains(may, e) {
			rd.t.Errorf("offsets %d to %d: no aborted transaction is like %+v", first, next-1, e)
		}
	}
	if !complete && upTo < next {
		rd.t.Errorf("offsets %d to %d were searched up to %d alone", first, next-1, upTo)
	}
}
