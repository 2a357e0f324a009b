package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/segtier/segtier/bench/job"
)

// week is what a team writes in a week: chunks of 1 MiB in ristretto, one GET
// for each, and singleflight so that two who want the same wait for one.
type week struct {
	src    *full
	flight singleflight.Group
	cache  *ristretto.Cache[string, []byte]
}

const weekChunk = 1 << 20

func openWeek(j job.Job) (job.Reader, error) {
	open, err := sdkBody(j)
	if err != nil {
		return nil, err
	}
	memory := j.Memory
	if memory == 0 {
		memory = 256 << 20
	}
	c, err := ristretto.NewCache(&ristretto.Config[string, []byte]{
		NumCounters: max(10*memory/weekChunk, 1000), MaxCost: memory, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, err
	}
	return &week{src: &full{open: open}, cache: c}, nil
}

func (w *week) Close() { w.cache.Close() }

// chunk returns chunk number i of o.
func (w *week) chunk(ctx context.Context, o *job.Object, i int64) ([]byte, error) {
	key := o.Key + "#" + strconv.FormatInt(i, 10)
	if b, ok := w.cache.Get(key); ok {
		return b, nil
	}
	v, err, _ := w.flight.Do(key, func() (any, error) {
		// The cache keeps the buffer, so it is not used again.
		b, _, err := w.src.Get(ctx, o, i*weekChunk, min(weekChunk, o.LogSize-i*weekChunk))
		if err != nil {
			return nil, err
		}
		w.cache.Set(key, b, int64(len(b)))
		return b, nil
	})
	if err != nil {
		return nil, err
	}
	return v.([]byte), nil
}

func (w *week) Get(ctx context.Context, o *job.Object, off, n int64) ([]byte, func(), error) {
	i := off / weekChunk
	b, err := w.chunk(ctx, o, i)
	if err != nil {
		return nil, nil, err
	}
	from := off - i*weekChunk
	if from+n > int64(len(b)) {
		return nil, nil, fmt.Errorf("a range across chunks: %d bytes at %d", n, off)
	}
	return b[from : from+n], func() {}, nil
}

// chunks yields each chunk of the objects, in order.
func chunks(objects []job.Object) func(yield func(*job.Object, int64) bool) {
	return func(yield func(*job.Object, int64) bool) {
		for i := range objects {
			for c := int64(0); c*weekChunk < objects[i].LogSize; c++ {
				if !yield(&objects[i], c) {
					return
				}
			}
		}
	}
}

// fanout has Streams consumers read all objects, each Param["lag"] chunks behind
// the one before.
func fanout(ctx context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	r, err := openWeek(j)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	w := r.(*week)
	outs := make([]*job.Pipe, j.Streams)
	for i := range outs {
		if outs[i], err = job.Dial(ctx, j.Sink, fmt.Sprintf("%s/%d", j.Label, i)); err != nil {
			return nil, err
		}
		defer outs[i].Close()
	}
	m.Start()
	leash := job.NewLeash(j.Streams, int64(j.Param["lag"])*weekChunk)
	group, ctx := errgroup.WithContext(ctx)
	for i, out := range outs {
		group.Go(func() error {
			defer leash.Done(i)
			for o, c := range chunks(j.Objects) {
				if err := leash.Wait(ctx, i); err != nil {
					return err
				}
				b, err := w.chunk(ctx, o, c)
				if err != nil {
					return err
				}
				if _, err := out.Write(b); err != nil {
					return err
				}
				m.Count(int64(len(b)))
				leash.Moved(i, int64(len(b)))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	m.Stop()
	var errs sync.WaitGroup
	failed := make([]error, len(outs))
	for i, out := range outs {
		errs.Go(func() { failed[i] = out.Finish() })
	}
	errs.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// serve reads what is in memory Count times and writes it to the sink.
func serve(ctx context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
	r, err := openWeek(j)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	w := r.(*week)
	for o, c := range chunks(j.Objects) {
		if _, err := w.chunk(ctx, o, c); err != nil {
			return nil, err
		}
	}
	w.cache.Wait()
	out, err := job.Dial(ctx, j.Sink, j.Label)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	m.Start()
	for range j.Count {
		for o, c := range chunks(j.Objects) {
			b, err := w.chunk(ctx, o, c)
			if err != nil {
				return nil, err
			}
			bufs := net.Buffers{b}
			n, err := bufs.WriteTo(out.TCPConn)
			if err != nil {
				return nil, err
			}
			m.Count(n)
		}
	}
	m.Stop()
	return nil, out.Finish()
}
