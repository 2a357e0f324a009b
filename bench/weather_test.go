package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/bench/replay"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// climate is a weather with a name.
type climate struct {
	name string
	weather.Schedule
}

// climates are all faults that reads may meet, each alone; connections that are closed as
// soon as they wait; and so many mixes of some of them, each rare enough that four tries
// often succeed.
func climates(seed uint64, mixes int) []climate {
	const short = weather.Duration(50 * time.Millisecond)
	faults := []weather.Fault{
		{Kind: weather.Stall, At: -1, For: short},
		{Kind: weather.Reset, At: -1},
		{Kind: weather.Cut, At: -1},
		{Kind: weather.Short, At: -1},
		{Kind: weather.Whole},
		{Kind: weather.WrongRange},
		{Kind: weather.WrongETag},
		{Kind: weather.Encoded},
		{Kind: weather.Flip, At: -1},
		{Kind: weather.Throttle},
		{Kind: weather.Internal},
		{Kind: weather.Refuse},
		{Kind: weather.Missing},
		{Kind: weather.Late, For: short},
		{Kind: weather.Throttle, RetryAfter: weather.Duration(time.Second), Attempts: 1},
	}
	idle := weather.Duration(time.Millisecond)
	all := []climate{{"idle", weather.Schedule{Seed: seed, IdleClose: idle}}}
	for _, f := range faults {
		name := string(f.Kind)
		if f.RetryAfter > 0 {
			name += ", retry after"
		}
		f.Share = .1
		all = append(all, climate{name, weather.Schedule{Seed: seed, Faults: []weather.Fault{f}}})
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	for i := range mixes {
		c := climate{"mix", weather.Schedule{Seed: seed + uint64(i)}}
		if rng.IntN(2) == 0 {
			c.IdleClose, c.name = idle, "mix, idle"
		}
		for _, f := range faults {
			if i == 0 || rng.IntN(3) == 0 { // the first is of all
				f.Share = .01 + .04*rng.Float64()
				c.Faults = append(c.Faults, f)
				c.name += ", " + string(f.Kind)
			}
		}
		all = append(all, c)
	}
	return all
}

// traffic is what readers do.
type traffic struct {
	name   string
	target func(*checked) replay.Target
	events func(replay.World, int, uint64) ([]replay.Event, error)
}

// traffics are all workloads of package replay, and its random one through the other calls of a
// Reader.
func traffics(t *testing.T) []traffic {
	all := make([]traffic, 0, len(replay.Workloads())+3)
	for _, w := range replay.Workloads() {
		all = append(all, traffic{w.Name, func(c *checked) replay.Target { return c }, w.Events})
	}
	random, err := replay.FindWorkload("random")
	if err != nil {
		t.Fatal(err)
	}
	return append(all,
		traffic{"time queries", func(c *checked) replay.Target { return times{c} }, random.Events},
		traffic{"many", func(c *checked) replay.Target { return many{c} }, random.Events},
		traffic{"streams that seek", func(c *checked) replay.Target { return seeks{c} }, random.Events},
	)
}

// In any weather, alone and mixed, whatever readers do, they get the right bytes or a
// typed error by their deadline, and nothing is left behind. Each traffic and each
// weather occurs, and all of them together under SEGTIER_SOAK. SEGTIER_SEED repeats a run.
func TestEveryWeather(t *testing.T) {
	seed := rand.Uint64() >> 1
	if s := os.Getenv("SEGTIER_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEGTIER_SEED=%d", seed)
	soak := os.Getenv("SEGTIER_SOAK") != ""
	mixes, events := 4, 150
	if soak {
		mixes, events = 8, 300
	}
	weathers, all := climates(seed, mixes), traffics(t)
	struck := make(map[weather.Kind]int64)
	run := func(w climate, tr traffic) {
		t.Run(tr.name+"/"+w.name, func(t *testing.T) {
			for kind, n := range inWeather(t, w.Schedule, tr, events, seed) {
				struck[kind] += n
			}
		})
	}
	for i := range max(len(weathers), len(all)) {
		if !soak {
			run(weathers[i%len(weathers)], all[(i+int(seed%uint64(len(all))))%len(all)])
			continue
		}
		for _, tr := range all {
			if i < len(weathers) {
				run(weathers[i], tr)
			}
		}
	}
	for _, w := range weathers { // what makes few GETs may meet no fault
		for i := 0; len(w.Faults) == 1 && struck[w.Faults[0].Kind] == 0; i++ {
			if i == len(all) {
				t.Errorf("%s never happened", w.name)
				break
			}
			run(w, all[i])
		}
	}
}

// inWeather has traffic in a weather. It returns how often each fault happened.
func inWeather(t *testing.T, schedule weather.Schedule, tr traffic, events int, seed uint64) map[weather.Kind]int64 {
	const partitions = 6
	k := newSky(t, weather.Spec{Partitions: partitions, SegmentBytes: 4 << 20, Segments: 2, ChunkBytes: 256 << 10}, schedule, 16<<20)
	world := make(replay.World, partitions)
	for p := range world {
		world[p] = replay.Extent{Partition: k.tier.Partition(p), End: k.tier.EndOffset(), Bytes: k.tier.PartitionBytes()}
	}
	all, err := tr.events(world, events, seed)
	if err != nil {
		t.Fatal(err)
	}
	c := &checked{k, t}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // or it hangs
	defer cancel()
	report, err := replay.Run(ctx, tr.target(c), all, replay.Options{Full: true, Request: func(e replay.Event) (fetch.Request, error) {
		hint := fetch.Hint(len(e.Consumer) % 4)
		return fetch.Request{Partition: k.tier.Partition(int(e.Partition)), Offset: e.Offset, MaxBytes: e.MaxBytes, Hint: hint}, nil
	}})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("%v, %v", err, ctx.Err())
	}
	t.Logf("%d fetches, %d errors", report.Fetches, report.Errors)
	return k.server.Stats().Faults
}

// patience is how long each call of a reader may take, and slack how much later it may
// return on a machine that has other work: what comes later hangs. TestSickNeighbours has
// no slack, in virtual time.
const (
	patience = 5 * time.Second
	slack    = time.Minute
)

// checked is a Reader whose every answer is looked at. A typed error is the weather's.
type checked struct {
	*sky
	t *testing.T
}

// call makes a call with a deadline, and reports an error that no weather excuses.
func (c *checked) call(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	if took := time.Since(began); took > patience+slack {
		c.t.Errorf("%s: %v with a deadline of %v", what, took, patience)
	}
	if err == nil || ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, typed := range []error{fetch.ErrUnavailable, fetch.ErrCorruption, fetch.ErrNotReady, objstore.ErrRefused} {
		if errors.Is(err, typed) {
			return err
		}
	}
	c.t.Errorf("%s: %v", what, err)
	return err
}

// right compares what was read with what was to be read.
func (c *checked) right(req *fetch.Request, res *fetch.Result) {
	if res.FirstOffset() > req.Offset || res.NextOffset() <= req.Offset {
		c.t.Errorf("%v: offset %d was asked for, [%d,%d) came", req.Partition, req.Offset, res.FirstOffset(), res.NextOffset())
	}
	if _, err := res.WriteTo(c.tier.Verifier(int(req.Partition.Number), res.FirstOffset())); err != nil {
		c.t.Errorf("%v: %v", req.Partition, err)
	}
}

// Fetch implements replay.Target.
func (c *checked) Fetch(ctx context.Context, req fetch.Request, res *fetch.Result) error {
	err := c.call(ctx, "fetch", func(ctx context.Context) error { return c.reader.Fetch(ctx, req, res) })
	if err == nil {
		c.right(&req, res)
	}
	return err
}

// times looks for the offset of a time where others fetch.
type times struct{ *checked }

// Fetch implements replay.Target.
func (c times) Fetch(ctx context.Context, req fetch.Request, _ *fetch.Result) error {
	return c.call(ctx, "time query", func(ctx context.Context) error {
		pos, err := c.reader.OffsetForTime(ctx, fetch.TimeRequest{Partition: req.Partition, Time: c.tier.TimeOf(req.Offset)})
		if err == nil && pos.Offset != req.Offset {
			c.t.Errorf("%v: the time of offset %d is that of %d", req.Partition, req.Offset, pos.Offset)
		}
		return err
	})
}

// many fetches a partition and the next ones at once.
type many struct{ *checked }

// Fetch implements replay.Target.
func (c many) Fetch(ctx context.Context, req fetch.Request, _ *fetch.Result) error {
	var requests []fetch.Request
	for p := range 3 {
		one := req
		one.Partition = c.tier.Partition((int(req.Partition.Number) + p) % c.tier.Spec().Partitions)
		requests = append(requests, one)
	}
	var answers []fetch.Answer
	defer func() {
		for i := range answers {
			answers[i].Result.Release()
		}
	}()
	return c.call(ctx, "fetch of many", func(ctx context.Context) error {
		answers = c.reader.FetchMany(ctx, fetch.ManyRequest{Requests: requests}, nil)
		var failed error
		for i := range answers {
			if answers[i].Err != nil {
				failed = answers[i].Err
				_ = c.call(ctx, "answer", func(context.Context) error { return failed })
				continue
			}
			c.right(&requests[i], &answers[i].Result)
		}
		return failed
	})
}

// seeks reads on for a while, as a stream of its own, and once more from where it began.
type seeks struct{ *checked }

// Fetch implements replay.Target.
func (c seeks) Fetch(ctx context.Context, req fetch.Request, res *fetch.Result) (err error) {
	s := c.reader.Stream(req)
	defer s.Close()
	for i := range 4 {
		if i == 3 {
			s.SeekTo(req.Offset)
		}
		at := req
		if at.Offset = s.Offset(); at.Offset >= c.tier.EndOffset() {
			continue
		}
		if err = c.call(ctx, "next", func(ctx context.Context) error { return s.Next(ctx, res) }); err != nil {
			return err
		}
		c.right(&at, res)
	}
	return nil
}
