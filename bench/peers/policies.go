package main

import (
	"context"
	"fmt"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/maypok86/otter/v2"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/policy"
)

// policyWork runs the trace that the job names through a policy.
func policyWork(open func(capacity int) (policy.Policy, func(), error)) job.Work {
	return func(_ context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
		trace, err := policy.Make(j.Name, policy.Options{
			HalfKnown: j.Param["half"] != 0, Shorten: int(j.Param["shorten"]), Seed: uint64(j.Param["seed"]),
		})
		if err != nil {
			return nil, err
		}
		p, done, err := open(trace.Capacity)
		if err != nil {
			return nil, err
		}
		defer done()
		m.Start()
		ratio := policy.Ratio(trace, p)
		m.Stop()
		return map[string]float64{"ratio": ratio}, nil
	}
}

// ristrettoPolicy waits for each insertion: its figures are those of a cache
// that is never in a hurry.
type ristrettoPolicy struct {
	c *ristretto.Cache[uint64, struct{}]
}

func newRistretto(capacity int) (policy.Policy, func(), error) {
	c, err := ristretto.NewCache(&ristretto.Config[uint64, struct{}]{
		NumCounters: int64(10 * capacity), MaxCost: int64(capacity), BufferItems: 64, IgnoreInternalCost: true,
		KeyToHash: func(k uint64) (uint64, uint64) { return mix(k), k },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("ristretto: %w", err)
	}
	return ristrettoPolicy{c}, c.Close, nil
}

// Access implements policy.Policy.
func (r ristrettoPolicy) Access(a policy.Access) bool {
	k := number(a.Chunk)
	if _, ok := r.c.Get(k); ok {
		return true
	}
	r.c.Set(k, struct{}{}, 1)
	r.c.Wait()
	return false
}

type otterPolicy struct {
	c *otter.Cache[uint64, struct{}]
}

func newOtter(capacity int) (policy.Policy, func(), error) {
	c, err := otter.New(&otter.Options[uint64, struct{}]{
		MaximumSize: capacity,
		Executor:    func(fn func()) { fn() }, // evictions happen before the next access
	})
	if err != nil {
		return nil, nil, fmt.Errorf("otter: %w", err)
	}
	return otterPolicy{c}, func() { c.StopAllGoroutines() }, nil
}

// Access implements policy.Policy.
func (o otterPolicy) Access(a policy.Access) bool {
	k := number(a.Chunk)
	if _, ok := o.c.GetIfPresent(k); ok {
		return true
	}
	o.c.Set(k, struct{}{})
	return false
}

// number makes one of a chunk's two numbers.
func number(c policy.Chunk) uint64 {
	return uint64(uint32(c.Partition))<<32 | uint64(uint32(c.Position))
}

// mix spreads keys that follow each other: splitmix64's finaliser.
func mix(k uint64) uint64 {
	k ^= k >> 30
	k *= 0xbf58476d1ce4e5b9
	k ^= k >> 27
	k *= 0x94d049bb133111eb
	return k ^ k>>31
}
