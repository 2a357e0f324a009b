package endpoint

import (
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
)

// pipe is a line that so many bodies of a MiB share: it and each connection have a
// rate, in MiB/s.
type pipe struct{ line, connection float64 }

func (p pipe) took(n int) time.Duration {
	return time.Duration(float64(time.Second) / min(p.connection, p.line/float64(n)))
}

// The crowd is as large as fills the line, and not much larger, whatever the line:
// and where the connections are what is slow, there is none.
func TestCrowdFillsTheLine(t *testing.T) {
	for name, c := range map[string]struct {
		pipe        pipe
		least, most int
	}{
		"narrow":                {pipe{200, 20}, 10, 24},
		"narrower":              {pipe{50, 20}, 12, 24}, // few are enough, and fewer are not known
		"wide":                  {pipe{2000, 20}, 48, 48},
		"fast, one is too many": {pipe{100, 100}, 12, 24},
	} {
		t.Run(name, func(t *testing.T) {
			limit := 48
			crowd := newCrowd(limit, func(n int) { limit = n })
			now := time.Unix(0, 0)
			// Two of demand are always in flight beside.
			run := func(d time.Duration) {
				for end := now.Add(d); now.Before(end); {
					n := limit + 2
					took := c.pipe.took(n)
					now = now.Add(took)
					for range n {
						crowd.arrived(1<<20, took, n, true, now)
					}
				}
			}
			run(time.Minute)
			// It is measured anew now and then: look at it most of the time.
			outside := 0
			for range 100 {
				run(500 * time.Millisecond)
				if limit < c.least || limit > c.most {
					outside++
				}
			}
			if outside > 10 {
				t.Errorf("%d of 100 times outside of %d to %d, at the end it is %d", outside, c.least, c.most, limit)
			}
		})
	}
}

// A line that grows wider is found out, and where nothing waits nothing changes.
func TestCrowdGrows(t *testing.T) {
	limit := 48
	crowd := newCrowd(limit, func(n int) { limit = n })
	now := time.Unix(0, 0)
	run := func(p pipe, full bool) {
		for end := now.Add(time.Minute); now.Before(end); {
			n := limit
			took := p.took(n)
			now = now.Add(took)
			for range n {
				crowd.arrived(1<<20, took, n, full, now)
			}
		}
	}
	run(pipe{50, 20}, false)
	if limit != 48 {
		t.Errorf("%d though nothing waited", limit)
	}
	run(pipe{50, 20}, true)
	if limit > 24 {
		t.Errorf("%d on a narrow line", limit)
	}
	run(pipe{4000, 20}, true)
	if limit != 48 {
		t.Errorf("%d on a wide line", limit)
	}
	crowd.arrived(1, time.Hour, 48, true, now) // a body that says nothing
	if crowd.now() != 48 {
		t.Error("a byte was taken for a measure")
	}
}

// Few are let go for a while only, also if nothing comes in it that says how fast a body is.
func TestCrowdDoesNotWaitForEver(t *testing.T) {
	for name, body := range map[string]int64{"small ones": 100 << 10, "nearly none": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			limit := 48
			crowd := newCrowd(limit, func(n int) { limit = n })
			now := time.Unix(0, 0)
			for range crowdEpoch {
				crowd.arrived(1<<20, time.Second, 48, true, now)
			}
			if limit != 48/crowdFloor {
				t.Fatalf("%d are let go, to see how fast a few are", limit)
			}
			for range 4 {
				now = now.Add(10 * time.Second)
				crowd.arrived(body, time.Second, 14, true, now)
			}
			if limit != 48 {
				t.Errorf("%d after %v", limit, now.Sub(time.Unix(0, 0)))
			}
		})
	}
}

// One stream that waits for room is in nobody's way, however wide it goes; two, of one
// tenant or of two, share the line with each other, and who waits for anything else says
// nothing.
func TestOneStreamIsNoCrowd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSlots(bound{8, 1 << 40}, bound{})
		busy := func(want bool) {
			t.Helper()
			if n, full := s.busy(); n != 6 || full != want {
				t.Errorf("%d reads in flight, a crowd waits: %v, want 6 and %v", n, full, want)
			}
		}
		for range 6 { // all that prefetch may have
			hold(t, s, ahead(1).of(1))
		}
		busy(false)
		first, second := ask(s, ahead(1).of(1)), ask(s, ahead(1).of(1))
		busy(false)
		pacing := ask(s, pacing(1).of(2))
		busy(false)
		other := ahead(1).of(1)
		other.tenant = "another"
		third := ask(s, other)
		busy(true)
		third.leave()
		busy(false)
		fourth := ask(s, ahead(1).of(3))
		busy(true)
		for _, a := range []*asking{first, second, pacing, fourth} {
			a.leave()
		}
		for range 6 {
			s.release(ahead(1).of(1))
		}
		nothingLeft(t, s)
	})
}

// How fast a body is while few are in flight is known from times when few are anyway; and
// it is measured anew when that is long ago: connections may have become slower, of which
// more is the answer.
func TestCrowdMeasures(t *testing.T) {
	limit := 48
	crowd := newCrowd(limit, func(n int) { limit = n })
	now := time.Unix(0, 0)
	arrive := func(bodies, reads int, took time.Duration) {
		for range bodies {
			crowd.arrived(1<<20, took, reads, true, now)
		}
		now = now.Add(took)
	}
	arrive(crowdSample, 48/crowdFloor, 50*time.Millisecond)
	arrive(crowdEpoch, 48, 50*time.Millisecond)
	if limit != 48 {
		t.Errorf("%d, to measure what is known", limit)
	}
	for range 3 * int(crowdMemory/(200*time.Millisecond)) {
		arrive(limit+2, limit+2, 200*time.Millisecond)
	}
	if limit != 48 {
		t.Errorf("%d of connections that have become slower", limit)
	}
}
