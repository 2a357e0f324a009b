package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/segment"
)

// Target is what is driven: a segtier.Tier, or a fetch.Reader.
type Target interface {
	Fetch(ctx context.Context, req fetch.Request, res *fetch.Result) error
}

// Options of a Run.
type Options struct {
	// Request makes the request of an event: it knows partitions and log starts.
	// What it refuses ends the run before anything is fetched.
	Request func(Event) (fetch.Request, error)

	// Speed is how much faster than their times events are due; 0 is 1.
	Speed float64
	// Rate, if not 0, has events due at this rate a second instead, in their order.
	Rate float64
	// Full has each consumer go on as soon as it can: nothing is due.
	Full bool

	// Duration ends the run; a trace that is shorter begins again. 0 is once.
	Duration time.Duration
	// Warmup is how long after the beginning nothing is measured.
	Warmup time.Duration

	// Verify has every batch that is returned checked against its CRC.
	Verify bool
	// Serve is written every result to, concurrently; nil is nobody.
	Serve io.Writer
	// Labels has goroutines carry the pprof label "segtier" with "verify" and
	// "serve" while they do that.
	Labels bool

	// Steady is called, if not nil, once the warm-up is over.
	Steady func()
	// Live is called every Interval (0: a second), if it is not nil, and before Run returns.
	Live     func(Live)
	Interval time.Duration
}

func (o *Options) validate() error {
	switch {
	case o.Request == nil:
		return errors.New("replay: Options.Request is required")
	case !(o.Speed >= 0) || !(o.Rate >= 0) || o.Duration < 0 || o.Warmup < 0 || o.Interval < 0:
		return errors.New("replay: negative option")
	case o.Rate > 0 && o.Full || o.Speed != 0 && (o.Full || o.Rate > 0):
		return errors.New("replay: a speed, a rate and full speed exclude each other")
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	return nil
}

// job is an event of one consumer, as it will be replayed.
type job struct {
	due     time.Duration // since the beginning
	req     fetch.Request
	follows bool
}

// Run replays events, which are in the order of their times, and reports. It
// returns an error if it could not begin; if ctx ends, the report says so.
func Run(ctx context.Context, target Target, events []Event, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	queues, span, err := plan(events, &o)
	if err != nil {
		return nil, err
	}
	m := newMeter(o.Warmup, len(queues))
	r := &run{target: target, o: &o, meter: m, span: span, began: time.Now()}
	if o.Labels {
		r.verify = pprof.WithLabels(ctx, pprof.Labels("segtier", "verify"))
		r.serve = pprof.WithLabels(ctx, pprof.Labels("segtier", "serve"))
	}
	m.began = r.began
	if o.Duration > 0 {
		r.until = r.began.Add(o.Duration)
	}
	var all, beside sync.WaitGroup
	stop := make(chan struct{})
	beside.Go(func() { r.watch(stop) })
	for i, q := range queues {
		all.Go(func() { r.consume(ctx, i, q) })
	}
	all.Wait()
	close(stop)
	beside.Wait()
	return m.report(time.Since(r.began), len(queues), ctx.Err() != nil), nil
}

// plan gives each consumer its events. span is how long the whole takes.
func plan(events []Event, o *Options) (queues [][]job, span time.Duration, err error) {
	index := make(map[string]int)
	for i := range events {
		e := &events[i]
		req, err := o.Request(*e)
		if err != nil {
			return nil, 0, fmt.Errorf("event %d of %d (consumer %s, %s/%d, offset %d): %w", i+1, len(events), e.Consumer, e.Topic, e.Partition, e.Offset, err)
		}
		at, ok := index[e.Consumer]
		if !ok {
			at = len(queues)
			index[e.Consumer] = at
			queues = append(queues, nil)
		}
		due := time.Duration(float64(e.At) / o.Speed)
		if o.Rate > 0 {
			due = time.Duration(float64(i) / o.Rate * float64(time.Second))
		}
		queues[at] = append(queues[at], job{due, req, e.Follows})
		span = max(span, due)
	}
	if len(queues) == 0 {
		return nil, 0, errors.New("replay: no events")
	}
	// A round ends an average step behind its last event.
	span += max(span/time.Duration(len(events)), time.Microsecond)
	return queues, span, nil
}

// run is one Run.
type run struct {
	target Target
	o      *Options
	meter  *meter
	span   time.Duration
	began  time.Time
	until  time.Time // zero: once

	verify, serve context.Context //nolint:containedctx // labels of goroutines
}

// watch tells what is going on.
func (r *run) watch(stop <-chan struct{}) {
	steady := time.NewTimer(r.o.Warmup)
	defer steady.Stop()
	tick := time.NewTicker(r.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-steady.C:
			if r.o.Steady != nil {
				r.o.Steady()
			}
			continue
		case <-tick.C:
		case <-stop:
			if r.o.Live != nil {
				l := r.meter.live()
				l.Last = true
				r.o.Live(l)
			}
			return
		}
		if r.o.Live != nil {
			r.o.Live(r.meter.live())
		}
	}
}

// consume is one consumer.
func (r *run) consume(ctx context.Context, number int, queue []job) {
	var res fetch.Result
	defer res.Release()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last place
	for round := 0; ; round++ {
		for i := range queue {
			due := time.Now()
			if !r.o.Full {
				due = r.began.Add(queue[i].due + time.Duration(int64(round)*int64(r.span)))
			}
			if !r.until.IsZero() && !due.Before(r.until) {
				return
			}
			if wait := time.Until(due); wait > 0 {
				timer.Reset(wait)
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
			}
			if ctx.Err() != nil {
				return
			}
			req := queue[i].req
			if queue[i].follows && last.read && last.partition == req.Partition {
				req.Offset = last.next
			}
			last = place{partition: req.Partition}
			last.next, last.read = r.one(ctx, number, due, req, &res)
		}
		if r.until.IsZero() {
			return
		}
	}
}

// place is where a consumer is.
type place struct {
	partition segment.Partition
	next      int64
	read      bool // its last read gave it something
}

// one replays one event, and returns where its consumer is, if it was given something.
func (r *run) one(ctx context.Context, number int, due time.Time, req fetch.Request, res *fetch.Result) (next int64, read bool) {
	began := time.Now()
	err := r.target.Fetch(ctx, req, res)
	size := res.Size()
	if err == nil && r.o.Verify {
		err = r.check(ctx, res)
	}
	if err == nil && r.o.Serve != nil {
		r.as(r.serve, ctx, func() { _, err = res.WriteTo(r.o.Serve) })
	}
	next = res.NextOffset()
	res.Release()
	ended := time.Now()
	if ctx.Err() != nil && err != nil {
		return 0, false // the caller left, not the tier
	}
	r.meter.add(number, sample{due: due, began: began, ended: ended, bytes: size, err: err})
	return next, err == nil && size > 0
}

// check verifies every batch.
func (r *run) check(ctx context.Context, res *fetch.Result) (err error) {
	r.as(r.verify, ctx, func() {
		for h, raw := range res.Batches() {
			if _, err = segment.VerifyBatch(raw); err != nil {
				err = fmt.Errorf("batch at offset %d was served and is wrong: %w", h.BaseOffset, err)
				return
			}
		}
	})
	return err
}

// as runs f with the labels of one context, and goes back to those of another.
func (r *run) as(labels, back context.Context, f func()) {
	if labels == nil {
		f()
		return
	}
	pprof.SetGoroutineLabels(labels)
	defer pprof.SetGoroutineLabels(back)
	f()
}

func sortEvents(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}
