package explore_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
)

// The writers. Who is newer has the greater leader epoch.
func leader(epoch int32) metadata.Writer { return metadata.Writer{BrokerID: epoch, LeaderEpoch: epoch} }

// seams returns the endpoint and the metadata store of a process.
func (p *proc) seams() (fullMeta, *endpoint.Endpoint) {
	var s objstore.Store = procStore{p}
	var m fullMeta = procMeta{p}
	if f := p.w.sc.defeat.store; f != nil {
		s = f(p, s)
	}
	if f := p.w.sc.defeat.meta; f != nil {
		m = f(p, m)
	}
	return m, p.w.endpoint(s)
}

// copies is an actor that copies segments, given by their place, at the same time,
// as a broker does whose Copier is behind.
func copies(name string, w metadata.Writer, which ...int) actor {
	return actor{name: name, run: func(ctx context.Context, p *proc) error {
		meta, ep := p.seams()
		defer ep.Close()
		c, err := lifecycle.NewCopier(meta, ep, lifecycle.CopierOptions{})
		if err != nil {
			return err
		}
		defer c.Close()
		var g errgroup.Group
		begun := func() bool { return true } // the copy before, which the host is to begin first
		for _, i := range which {
			src := p.w.logs[i]
			this := &copying{base: src.Info().StartOffset, by: w}
			p.copies = append(p.copies, this)
			if _, err := p.step(begun, "begin copy"); err != nil {
				break
			}
			var ended atomic.Bool
			begun = func() bool { return ended.Load() || c.Copying(p.w.p, src.Info().StartOffset) }
			g.Go(func() error {
				defer ended.Store(true)
				this.seg, this.err = c.Copy(ctx, src, w)
				this.ended = true
				return this.err
			})
		}
		return g.Wait()
	}}
}

// deleter returns the Deleter of a process.
func (p *proc) deleter(meta metadata.Store, ep *endpoint.Endpoint) (*lifecycle.Deleter, error) {
	return lifecycle.NewDeleter(meta, ep, lifecycle.DeleterOptions{
		Concurrency: 1, PerSecond: -1, Delay: p.w.sc.defeat.delay,
		Wait: func(context.Context, time.Duration) error {
			// Whoever has begun to read by now is not to be disturbed, if the delay is
			// long enough for it.
			var before []*reading
			for _, r := range p.w.procs {
				if p.w.sc.patient && r.reading != nil {
					before = append(before, r.reading)
				}
			}
			_, err := p.step(func() bool {
				for _, r := range p.w.procs {
					for _, b := range before {
						if r.reading == b && !r.isDead() {
							return false
						}
					}
				}
				return true
			}, "the delay is over")
			return err
		},
	})
}

// retires is an actor that applies retention by time: everything is too old that
// ends below an offset.
func retires(name string, w metadata.Writer) actor {
	return actor{name: name, run: func(ctx context.Context, p *proc) error {
		p.retiring = true
		meta, ep := p.seams()
		defer ep.Close()
		d, err := p.deleter(meta, ep)
		if err != nil {
			return err
		}
		defer d.Close()
		e, err := lifecycle.NewExpirer(d, lifecycle.ExpirerOptions{})
		if err != nil {
			return err
		}
		_, err = e.Expire(ctx, p.w.retention(w))
		return err
	}}
}

func (w *world) retention(wr metadata.Writer) lifecycle.ExpireRequest {
	return lifecycle.ExpireRequest{
		Partition: w.p, Writer: wr, Lineage: epochs(), LogEnd: math.MaxInt64, RetentionMs: int64(time.Hour / time.Millisecond),
	}
}

// deletes is an actor that deletes the segment at a place, in whatever state it is.
func deletes(name string, w metadata.Writer, which int) actor {
	return actor{name: name, run: func(ctx context.Context, p *proc) error {
		meta, ep := p.seams()
		defer ep.Close()
		d, err := p.deleter(meta, ep)
		if err != nil {
			return err
		}
		defer d.Close()
		v, err := meta.View(p.w.p)
		if err != nil {
			return err
		}
		i := p.w.logs[which].Info()
		return d.Delete(ctx, w, v.Exactly(i.StartOffset, i.EndOffset)...)
	}}
}

// reads is an actor that fetches at offsets, one after the other.
func reads(name string, maxBytes int, offsets ...int64) actor {
	return actor{name: name, run: func(ctx context.Context, p *proc) error {
		meta, ep := p.seams()
		defer ep.Close()
		c, err := cache.New(cache.Options{MemoryBytes: 1 << 20})
		if err != nil {
			return err
		}
		defer c.Close()
		r, err := fetch.New(meta, ep, c, fetch.Options{})
		if err != nil {
			return err
		}
		defer r.Close()
		var res fetch.Result
		defer res.Release()
		var last error
		for _, o := range offsets {
			if _, err := p.step(nil, "begin read"); err != nil {
				return err
			}
			p.reading = &reading{offset: o, hurt: p.hurt}
			last = r.Fetch(ctx, fetch.Request{Partition: p.w.p, Offset: o, MaxBytes: maxBytes}, &res)
			p.read(last, &res)
		}
		return last
	}}
}

// copied has segments copied before anybody starts.
func copied(which ...int) func(w *world) {
	return func(w *world) {
		ep := w.endpoint(w.store)
		defer ep.Close()
		c, err := lifecycle.NewCopier(w.meta, ep, lifecycle.CopierOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		defer c.Close()
		for _, i := range which {
			seg, err := c.Copy(w.t.Context(), w.logs[i], leader(0))
			if err != nil {
				w.t.Fatal(err)
			}
			w.baptize(seg.ID, "before")
		}
		w.look()
		w.first, w.previous = w.present, w.present
	}
}

// settle has the successors of everybody do what is left to do, checks that
// nothing is, and that doing it again changes nothing.
func (w *world) settle() {
	for _, key := range append([]string(nil), w.limbo...) {
		w.catchUp(key)
	}
	<-time.After(time.Hour) // what is left over is old enough now
	w.succeed()
	w.check()
	once := w.describe()
	if len(w.wrong) == 0 {
		w.atRest()
		<-time.After(time.Hour)
		w.succeed()
		w.check()
		if twice := w.describe(); twice != once {
			w.fail("done again, it came to another state:\n%s\nthan\n%s", twice, once)
		}
	}
}

// succeed runs the successors once.
func (w *world) succeed() {
	ctx := w.t.Context()
	meta := w.meta
	ep := w.endpoint(w.store)
	defer ep.Close()
	last := func(what string, err error) {
		if err != nil {
			w.fail("afterwards, %s: %v", what, err)
		}
	}
	d, err := lifecycle.NewDeleter(meta, ep, lifecycle.DeleterOptions{Delay: -1, PerSecond: -1})
	last("deleter", err)
	defer d.Close()
	last("deletions are resumed", d.Resume(ctx, w.p, leader(9)))
	c, err := lifecycle.NewCopier(meta, ep, lifecycle.CopierOptions{})
	last("copier", err)
	defer c.Close()
	for i := range w.sc.copies {
		if _, err := c.Copy(ctx, w.logs[i], leader(9)); err != nil && !errors.Is(err, lifecycle.ErrBelowLogStart) {
			last("copy", err)
		}
	}
	if w.sc.retains {
		e, err := lifecycle.NewExpirer(d, lifecycle.ExpirerOptions{})
		last("expirer", err)
		_, err = e.Expire(ctx, w.retention(leader(9)))
		last("retention", err)
	}
	last("deletions are resumed", d.Resume(ctx, w.p, leader(9)))
	w.collect(meta, ep, d)
	w.look()
}

// atRest checks that nothing is left over.
func (w *world) atRest() {
	v := w.view()
	objects := 0
	for s := range v.All() {
		if s.State != metadata.CopySegmentFinished {
			w.fail("afterwards %s is in %s: %s", w.names[s.ID], s.State, w.describeView(v))
		}
		objects++
	}
	for i := range w.sc.copies {
		at := w.logs[i].Info().StartOffset
		if _, ok := v.Lookup(nil, at); !ok && at >= v.LogStart() {
			w.fail("afterwards offset %d is lost: %s", at, w.describeView(v))
		}
	}
	if got := len(w.present) - 1; got != objects {
		w.fail("afterwards there are %d objects for %d segments: %s", got, objects, w.describe())
	}
	if up := w.pending(); len(up) > 0 {
		w.fail("afterwards %d uploads are unfinished", len(up))
	}
}
