package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
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
	bubble.Test(t, func(t *testing.T) {
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
