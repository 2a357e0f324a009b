package cache

import (
	"math/rand/v2"
	"testing"
)

// crowd is readers of 32 partitions behind one another, and backfills: traces A
// to D of bench/policy, where the optimum of each is known. Each access gives the
// reader's number.
type crowd struct {
	capacity, ticks, backfills int
	lags                       []int
	jitter                     bool
}

func (w crowd) run(read func(cursor int, log, position int)) {
	rng := rand.New(rand.NewPCG(1, 1))
	type reader struct{ next, stalled int }
	readers := make([]reader, 32*len(w.lags))
	for tick := range w.ticks {
		for i := range readers {
			r := &readers[i]
			behind := tick - w.lags[i%len(w.lags)] + 1 - r.next
			if behind <= 0 {
				continue
			}
			if w.jitter {
				if r.stalled > 0 {
					r.stalled--
					continue
				}
				if rng.IntN(200) == 0 {
					r.stalled = 1 + rng.IntN(60)
					continue
				}
				behind = min(behind, 2+rng.IntN(7))
			}
			for range behind {
				read(i, i/len(w.lags), r.next)
				r.next++
			}
		}
		if tick < w.ticks/8 {
			continue
		}
		for b := range w.backfills {
			for i := range 64 {
				read(len(readers)+b, 32+b, (tick-w.ticks/8)*64+i)
			}
		}
	}
}

// ratio runs a crowd through a cache, with all cursors announced, and returns the share
// of hits.
func (w crowd) ratio(t testing.TB) float64 {
	const size, offsets = 64, 100 // a chunk
	c, err := New(Options{MemoryBytes: int64(w.capacity) * size})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	place := func(log, position int) Place {
		return Place{Log: Log{Number: int32(log)}, First: int64(position * offsets), Next: int64((position + 1) * offsets)}
	}
	var cursors []*Cursor
	for i := range 32 * len(w.lags) {
		cursors = append(cursors, c.Announce(Log{Number: int32(i / len(w.lags))}, 0))
	}
	for b := range w.backfills {
		cursors = append(cursors, c.Announce(Log{Number: int32(32 + b)}, 0))
	}
	var l Lease
	n, hits := 0, 0
	w.run(func(cursor, log, position int) {
		k, p := key(log+1, position), place(log, position)
		if o, _ := c.Acquire(k, size, nil, &l); o == Missing {
			var r Reservation
			if !c.TryReserve(size, &r) {
				t.Fatalf("no room: %+v", c.Stats())
			}
			_, f := c.Acquire(k, size, &r, &l)
			f.Place(p)
			f.Done()
		} else {
			hits++
		}
		n++
		l.Release()
		cursors[cursor].Read(p.First, p.Next)
	})
	c.policy.rc.Wait()
	check(t, c)
	return float64(hits) / float64(n)
}

// A policy that does not know cursors has a tenth of the optimum on some of
// these (ristretto alone), or a half (least recently used). What readers that nobody
// announced make of it is in package fetch, which finds them.
func TestHitRatioOfFollowers(t *testing.T) {
	tail, long := []int{0, 8, 16, 40}, []int{0, 8, 16, 80}
	ticks := 120
	if soak() > 1 {
		ticks = 4000
	}
	if raceDetector {
		ticks = 20 // too few for the figures; this is of the decisions, one at a time
	}
	for _, tc := range []struct {
		name  string
		w     crowd
		least float64
	}{
		{"A", crowd{capacity: 2048, ticks: ticks, lags: tail}, .69},
		{"B", crowd{capacity: 2048, ticks: 2 * ticks, lags: long}, .60},
		{"C", crowd{capacity: 2048, ticks: ticks, lags: tail, backfills: 2}, .32},
		{"D", crowd{capacity: 2048, ticks: ticks, lags: tail, backfills: 8}, .12},
		{"A with jitter", crowd{capacity: 2048, ticks: ticks, lags: tail, jitter: true}, .68},
		{"B with jitter", crowd{capacity: 2048, ticks: 2 * ticks, lags: long, jitter: true}, .59},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ratio := tc.w.ratio(t)
			t.Logf("hit ratio %.3f", ratio)
			if !raceDetector && ratio < tc.least {
				t.Errorf("want %.3f", tc.least)
			}
		})
	}
}

// A few chunks of many are read often, by nobody who reads in sequence.
func TestHitRatioOfFavourites(t *testing.T) {
	const size, chunks = 64, 50_000
	c, err := New(Options{MemoryBytes: 2048 * size})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	where := rng.Perm(chunks)
	z := rand.NewZipf(rng, 1.01, 1, chunks-1)
	var l Lease
	hits := 0
	n := 150_000
	if raceDetector {
		n = 15_000
	}
	for range n {
		at := where[z.Uint64()]
		if o, _ := c.Acquire(key(1, at), size, nil, &l); o == Missing {
			var r Reservation
			if !c.TryReserve(size, &r) {
				t.Fatalf("no room: %+v", c.Stats())
			}
			_, f := c.Acquire(key(1, at), size, &r, &l)
			f.Place(Place{First: int64(at), Next: int64(at + 1)})
			f.Done()
		} else {
			hits++
		}
		l.Release()
	}
	st := check(t, c)
	t.Logf("hit ratio %.3f; %d of %d bytes are main's", float64(hits)/float64(n), st.Main, st.Used)
	// Least recently used has .60 of so short a trace, the optimum .74.
	if !raceDetector && float64(hits)/float64(n) < .55 {
		t.Errorf("hit ratio %.3f", float64(hits)/float64(n))
	}
}
