package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/segtier/segtier/objstore"
)

const (
	// hedgeShare of the reads that may be hedged are, at most: what the slowest ones
	// gain is worth that many more GETs, and a store that is slow as a whole is not
	// asked for more.
	hedgeShare = 0.045
	// hedgeBurst is how many hedges may be saved up.
	hedgeBurst = 10
	// hedgeFloor is the least time after which a GET counts as slow.
	hedgeFloor = 10 * time.Millisecond
	// hedgeQuantile of the GETs have answered when one counts as slow.
	hedgeQuantile = 0.95
	// hedgeSamples are remembered; before a half of them are there nobody knows
	// what is slow.
	hedgeSamples = 256
)

// pulse remembers how long the latest GETs took to their first byte.
type pulse struct {
	mu     sync.Mutex
	latest [hedgeSamples]time.Duration // guarded by mu
	n      int                         // ever; guarded by mu
	slow   time.Duration               // the quantile, 0 while unknown; guarded by mu
	sorted []time.Duration             // scratch; guarded by mu
}

// beat notes a time to the first byte, or how long one was waited for in vain.
func (p *pulse) beat(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest[p.n%hedgeSamples] = d
	p.n++
	if p.n < hedgeSamples/2 || p.n%16 != 0 {
		return
	}
	p.sorted = append(p.sorted[:0], p.latest[:min(p.n, hedgeSamples)]...)
	slices.Sort(p.sorted)
	p.slow = max(hedgeFloor, p.sorted[int(float64(len(p.sorted))*hedgeQuantile)])
}

// patience returns how long to wait before a GET counts as slow, 0 if nobody knows.
func (p *pulse) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

var errPanicked = errors.New("the store panicked")

// answer is what one of two GETs for the same bytes came to.
type answer struct {
	hedge bool
	info  objstore.Info
	body  io.ReadCloser
	err   error
	took  time.Duration
}

// hedgeable reports whether a get of n bytes may be made twice.
func (r *reading) hedgeable(n int64) bool {
	return n <= r.call.e.opts.HedgeBytes && r.class() <= BackfillDemand
}

// race gets [off, off+n), and once more if the first one is slow to answer. The
// first answer that is none of an error wins. The other request is ended, and
// its body, if there is one, closed unread: bytes are written by the reader of the
// body that this returns, and by nobody else. join waits until the loser is gone,
// which takes no longer than the store needs to notice that its context has ended.
func (e *Endpoint) race(c *call, w want, key, identity string, off int64) (info objstore.Info, body io.ReadCloser, join func(), err error) {
	e.hedges.earned()
	w.seat = 0 // the first GET's
	answers := make(chan answer, 2)
	var cancels [2]context.CancelFunc // of the first GET and the hedge
	var running sync.WaitGroup
	start := func(i int) {
		ctx, cancel := context.WithCancel(c.ctx)
		cancels[i] = cancel
		e.stats.gets.Add(1)
		running.Go(func() {
			a := answer{hedge: i == 1}
			began := time.Now()
			defer func() { // also if the store panics: here nobody else could catch it
				if p := recover(); p != nil {
					a.err = fmt.Errorf("%w: %v", errPanicked, p)
				}
				a.took = time.Since(began)
				answers <- a
			}()
			a.info, a.body, a.err = e.store.Get(ctx, key, off, w.n, objstore.GetOptions{IfMatch: identity})
		})
	}
	start(0)
	out, hedged := 1, false
	var slow <-chan time.Time
	if d := e.pulse.patience(); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		slow = timer.C
	}
	var won answer
	for out > 0 {
		select {
		case <-slow:
			slow = nil
			if hedged = e.hedgeNow(w); hedged {
				start(1)
				out++
			}
			continue
		case won = <-answers:
			out--
		}
		if won.err == nil {
			break
		}
		slow = nil // an error is no slowness: the retry is for that
		if out > 0 && errors.Is(won.err, objstore.ErrThrottled) {
			c.refused()
		}
	}
	winner := 0
	if won.hedge {
		winner = 1
	}
	if won.err == nil {
		e.pulse.beat(won.took)
		e.stats.hedgeWins.Add(int64(winner))
	}
	if hedged {
		cancels[1-winner]()
		if out == 0 {
			e.slots.release(w)
		} else {
			running.Go(func() { e.lost(<-answers, w) })
		}
	}
	return won.info, won.body, func() {
		running.Wait()
		cancels[winner]()
	}, won.err
}

// lost ends what has lost a race, and gives its slot back.
func (e *Endpoint) lost(a answer, w want) {
	if !a.hedge {
		e.pulse.beat(a.took) // it would have taken longer still
	}
	if a.err == nil {
		e.stats.hedgeWaste.Add(w.n)
		_ = a.body.Close() // of an answer that nobody wants
	}
	e.slots.release(w)
}

// hedgeNow takes what one more GET needs: a part of the budget and a slot, while
// the store bears as many requests as there may be and nobody waits for one.
func (e *Endpoint) hedgeNow(w want) bool {
	if !e.slots.try(w) {
		return false
	}
	if !e.hedges.spend(nil) {
		e.slots.release(w)
		return false
	}
	e.stats.hedges.Add(1)
	return true
}
