package main

import (
	"context"

	"github.com/segtier/segtier/bench/job"
)

// latency asks for Count ranges of PartSize bytes, Param["rate"] a second or, if that is 0, one after the other, each
// where nobody asked before, as the same work of ours does.
func latency(open job.Opener) job.Work {
	return func(ctx context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
		r, err := open(j)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if err := job.Warm(ctx, j, r); err != nil {
			return nil, err
		}
		m.Start()
		all, err := job.Loop(ctx, j.Count, j.Param["rate"], func(ctx context.Context, i int) error {
			o := &j.Objects[i%len(j.Objects)]
			pieces := max(int(o.LogSize/j.PartSize), 1)
			at := int64(i/len(j.Objects)%pieces) * j.PartSize
			b, release, err := r.Get(ctx, o, at, min(j.PartSize, o.LogSize-at))
			if err != nil {
				return err
			}
			m.Count(int64(len(b)))
			release()
			return nil
		})
		if err != nil {
			return nil, err
		}
		m.Stop()
		return job.Summary(all), nil
	}
}
