package job

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// OpenLoop calls do n times, rate times a second, whether or not earlier calls
// have returned: a latency is from when a call was due, so that waiting for a
// slow one is not left out. It returns the latencies in seconds, ascending, and
// the first error.
func OpenLoop(ctx context.Context, n int, rate float64, do func(ctx context.Context, i int) error) ([]float64, error) {
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
		all   = make([]float64, 0, n) // guarded by mu
		first error                   // guarded by mu
	)
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range n {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		calls.Go(func() {
			err := do(ctx, i)
			took := time.Since(due).Seconds()
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took)
			if err != nil && first == nil {
				first = err
			}
		})
	}
	calls.Wait()
	if first == nil {
		first = context.Cause(ctx)
	}
	slices.Sort(all)
	return all, first
}

// ClosedLoop calls do n times, one after the other, and returns the latencies in
// seconds, ascending.
func ClosedLoop(ctx context.Context, n int, do func(ctx context.Context, i int) error) ([]float64, error) {
	took := make([]float64, n)
	for i := range took {
		began := time.Now()
		if err := do(ctx, i); err != nil {
			return nil, err
		}
		took[i] = time.Since(began).Seconds()
	}
	slices.Sort(took)
	return took, nil
}

// Loop is OpenLoop, or ClosedLoop if rate is 0.
func Loop(ctx context.Context, n int, rate float64, do func(ctx context.Context, i int) error) ([]float64, error) {
	if rate == 0 {
		return ClosedLoop(ctx, n, do)
	}
	return OpenLoop(ctx, n, rate, do)
}

// Quantile returns the value below which the share q of sorted lies; NaN of
// nothing.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Summary returns the usual quantiles of latencies in seconds as values of a
// Result.
func Summary(sorted []float64) map[string]float64 {
	v := map[string]float64{"samples": float64(len(sorted))}
	if len(sorted) > 0 {
		v["p50"], v["p90"], v["p99"], v["max"] = Quantile(sorted, .5), Quantile(sorted, .9), Quantile(sorted, .99), sorted[len(sorted)-1]
	}
	return v
}
