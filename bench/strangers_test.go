package bench

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore/endpoint"
)

// crowded is readers who each look at so many places, one after the other, in four segments
// of 64 MiB, on a line as S3's. It returns how long each look took, and all of them.
func crowded(t *testing.T, readers, looks, slots int) (st fetch.Stats, took []time.Duration, all time.Duration) {
	const mib, segments = 1 << 20, 4
	l := &line{
		draw: lognormal(30*time.Millisecond, 120*time.Millisecond), connection: 60 * mib, link: 1000 * mib,
		options: endpoint.Options{Requests: slots},
	}
	tier, r, done := l.open(t, 64*mib, weather.Spec{SegmentBytes: 64 * mib, Segments: segments})
	defer done()
	began := time.Now()
	took = make([]time.Duration, readers*looks)
	var running sync.WaitGroup
	for i := range readers {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			var res fetch.Result
			defer res.Release()
			for n := range looks {
				at := rng.Int64N(segments * 64 * mib)
				began := time.Now()
				if err := r.Fetch(t.Context(), fetch.Request{Partition: tier.Partition(0), Offset: tier.OffsetAt(at), MaxBytes: 64 << 10, Hint: fetch.TimeQuery}, &res); err != nil {
					t.Error(err)
					return
				}
				took[i*looks+n] = time.Since(began)
				res.Release()
			}
		})
	}
	running.Wait()
	return r.Stats(), took, time.Since(began)
}

// Strangers who look at places of the same segments share GETs while slots are short.
func TestStrangersShareGets(t *testing.T) {
	for _, c := range []struct {
		name                  string
		readers, slots, looks int
		most                  float64 // GETs for each MiB
	}{
		{"8 slots", 64, 8, 20, .8},
		{"8 slots, a crowd", 256, 8, 5, .65},
		{"a slot for each", 64, 64, 20, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				st, took, all := crowded(t, c.readers, c.looks, c.slots)
				slices.Sort(took)
				var sum time.Duration
				for _, d := range took {
					sum += d
				}
				n := len(took)
				ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
				t.Logf("%d looks: %d GETs for %d MiB, %v in all; a look takes %v on average, half of them %v, 99 of 100 %v, the slowest %v",
					n, st.DataGets, st.DataBytes>>20, ms(all), ms(sum/time.Duration(n)), ms(took[n/2]), ms(took[n*99/100]), ms(took[n-1]))
				if gets := float64(st.DataGets) / float64(st.DataBytes>>20); gets > c.most {
					t.Errorf("%.2f GETs for each MiB, want %.2f at most", gets, c.most)
				}
				if c.slots == c.readers && st.Shared > 0 {
					t.Errorf("%d looks waited for others, with a slot for each", st.Shared)
				}
			})
		})
	}
}
