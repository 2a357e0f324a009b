package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// tailBeside is how long a consumer that reads a MiB 30 times a second waits for
// each read, in seconds, with so many backfills beside it; and what rate those have.
func tailBeside(t *testing.T, l *line, backfills, reads int) (took []float64, rate float64) {
	const rateOfTail = 30
	spec := weather.Spec{Partitions: 1 + backfills, SegmentBytes: 64 << 20, Segments: reads/64 + 1}
	tier, r, done := l.open(t, 256<<20, spec)
	ctx, stop := context.WithCancelCause(t.Context())
	request := func(p int, offset int64) fetch.Request {
		return fetch.Request{Partition: tier.Partition(p), Offset: offset, MaxBytes: 1 << 20}
	}
	var running sync.WaitGroup
	read := make([]int64, backfills)
	for i := range backfills {
		running.Go(func() {
			var res fetch.Result
			defer res.Release()
			for offset := int64(0); ; offset = res.NextOffset() % tier.EndOffset() {
				if err := r.Fetch(ctx, request(1+i, offset), &res); err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				read[i] += int64(res.Size())
			}
		})
	}
	began := time.Now()
	took = make([]float64, reads)
	_, err := job.OpenLoop(ctx, reads, rateOfTail, func(ctx context.Context, i int) error {
		var res fetch.Result
		defer res.Release()
		began := time.Now()
		err := r.Fetch(ctx, request(0, tier.OffsetAt(int64(i)<<20)), &res)
		took[i] = time.Since(began).Seconds()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range read {
		rate += float64(n) / time.Since(began).Seconds()
	}
	stop(errors.New("enough"))
	running.Wait()
	done()
	return took, rate
}

// lognormal are first bytes as an object store has them.
func lognormal(median, p99 time.Duration) func() time.Duration {
	rng := rand.New(rand.NewPCG(1, 2))
	sigma := math.Log(p99.Seconds()/median.Seconds()) / 2.326
	return func() time.Duration {
		return time.Duration(float64(median) * math.Exp(sigma*rng.NormFloat64()))
	}
}

// Backfills take what a consumer at the tail leaves, and no more: where they fill the
// line, nearly all that it reads is there before it asks. With the line's connections
// divided among all that prefetch asked for, and its own prefetch in turn with theirs, it
// waited two seconds for half of its reads.
func TestTailBesideBackfills(t *testing.T) {
	const mib, link, reads, start = 1 << 20, 200, 240, 60
	synctest.Test(t, func(t *testing.T) {
		l := &line{draw: lognormal(30*time.Millisecond, 200*time.Millisecond), connection: 20 * mib, link: link * mib}
		took, rate := tailBeside(t, l, 8, reads)
		took = took[start:] // while everybody begins at once, nobody is known
		slices.Sort(took)
		p50, p90 := job.Quantile(took, .5), job.Quantile(took, .9)
		t.Logf("p50 %.0f ms, p90 %.0f ms, p99 %.0f ms, backfills %.0f MiB/s", p50*1e3, p90*1e3, job.Quantile(took, .99)*1e3, rate/mib)
		if p50 > .02 || p90 > .15 {
			t.Errorf("the tail waits %.0f ms for half of its reads, %.0f ms for a tenth", p50*1e3, p90*1e3)
		}
		if rate < .9*(link-30)*mib {
			t.Errorf("the backfills have %.0f MiB/s of a line of %d", rate/mib, link)
		}
	})
}

// Where the objects of some partitions hang, are cut or wrong, who reads others keeps four
// fifths of his rate, and who reads those gets an error, or bytes, by his deadline. Where
// they are throttled that is taken for the store's word, as which it is meant: then
// everybody has less, but nobody nothing.
func TestSickNeighbours(t *testing.T) {
	var alone float64
	synctest.Test(t, func(t *testing.T) { alone = besideSick(t, 0, storetest.None) })
	for name, c := range map[string]struct {
		kind  storetest.Kind
		least float64
	}{
		"hang": {storetest.Hang, .8}, "cut": {storetest.Cut, .8}, "stall": {storetest.Stall, .8}, "flip": {storetest.Flip, .8},
		"throttled": {storetest.FailBefore, .25},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				beside := besideSick(t, 4, c.kind)
				t.Logf("%.0f MiB/s, alone %.0f", beside/(1<<20), alone/(1<<20))
				if beside < c.least*alone {
					t.Errorf("%.2f of its rate", beside/alone)
				}
			})
		})
	}
}

// besideSick is the rate, in bytes/s, of a reader beside so many of whose partitions every
// GET fails.
func besideSick(t *testing.T, sick int, kind storetest.Kind) float64 {
	const mib, patience = 1 << 20, 5 * time.Second
	l := &line{first: 30 * time.Millisecond, connection: 20 * mib, link: 1000 * mib}
	l.Store = storetest.Inject(subject.NewStore(), func(c storetest.Call) storetest.Fault {
		if p, _, _, err := object.ParseKey(c.Key); c.Op != "get" || err == nil && p.Number == 0 {
			return storetest.Fault{}
		}
		f := storetest.Fault{Kind: kind, At: 100}
		if kind == storetest.FailBefore {
			f.Err = objstore.ErrThrottled
		}
		return f
	})
	tier, r, done := l.open(t, 256*mib, weather.Spec{Partitions: 1 + sick, SegmentBytes: 64 * mib, Segments: 2})
	stop := make(chan struct{})
	var running sync.WaitGroup
	for p := 1; p <= sick; p++ {
		running.Go(func() {
			var res fetch.Result
			defer res.Release()
			for offset := int64(0); ; offset = (offset + 4096) % tier.EndOffset() {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				began := time.Now()
				err := r.Fetch(ctx, fetch.Request{Partition: tier.Partition(p), Offset: offset, MaxBytes: mib, Hint: fetch.Scan}, &res)
				cancel()
				switch {
				case time.Since(began) > patience:
					t.Errorf("%v after a deadline of %v", time.Since(began), patience)
				case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, fetch.ErrUnavailable), errors.Is(err, fetch.ErrCorruption):
				default:
					t.Error(err)
				}
				select { // nobody asks for ever without a pause
				case <-time.After(10 * time.Millisecond):
				case <-stop:
				}
			}
		})
	}
	k := &sky{t: t, tier: tier, reader: r}
	began := time.Now()
	if err := k.read(t.Context(), 0, 0, tier.EndOffset(), fetch.Scan); err != nil {
		t.Fatal(err)
	}
	rate := float64(tier.PartitionBytes()) / time.Since(began).Seconds()
	close(stop)
	running.Wait()
	done()
	return rate
}
