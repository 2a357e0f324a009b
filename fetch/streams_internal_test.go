package fetch

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/segment"
)

// sequential notes reads of one segment of ten offsets a chunk.
type sequential struct {
	lanes lanes
	ids   atomic.Uint64
}

func (q *sequential) begin(offset, n int64) *holding {
	in := new(holding)
	k := reach{offset: offset, seg: segment.UUID{1}, upper: 1e6, c: int(offset / 10), to: int((offset+n-1)/10) + 1, chunks: 1e5}
	in.stream, in.next = q.lanes.follow(&q.ids, nil, &k, in).s, offset+n
	return in
}

func (q *sequential) read(offset, n int64) *stream {
	in := q.begin(offset, n)
	q.lanes.ended(in, false)
	return in.stream
}

// A stranger who is taken for a stream, since he begins near it, leaves its reader
// where he was, however much he reads.
func TestStrangerNearAStream(t *testing.T) {
	var q sequential
	q.read(0, 10)
	s := q.read(10, 10)
	if s == nil || q.read(25, 200) != s {
		t.Fatal("a little jump is no stream's")
	}
	if got := q.read(20, 10); got != s {
		t.Error("the reader is another stream, because a stranger was taken for him")
	}
}

// A first read that ends late, when its place is another's, says nothing of that one.
func TestFirstReadThatEndsLate(t *testing.T) {
	var q sequential
	late := q.begin(5000, 1000)
	for i := range int64(maxFirst) {
		q.read(100_000+1000*i, 1)
	}
	q.lanes.ended(late, false)
	if q.read(6000, 10) != nil {
		t.Error("what was forgotten goes on")
	}
	if i := int64(maxFirst - 1); q.read(100_001+1000*i, 10) == nil {
		t.Error("the latest was forgotten")
	}
}

// All streams together have half of the budget ahead of them, one alone five eighths,
// many a quarter; each as much as any other, and none who does not read any more.
func TestShares(t *testing.T) {
	const budget = 1 << 30
	now := time.Unix(0, 0)
	for _, late := range []bool{false, true} {
		var ss streams
		known := make([]*stream, 100)
		for i := range known {
			known[i] = new(stream)
			share := ss.share(known[i], now, budget, late)
			n := int64(i + 1)
			most, least := int64(budget/2), int64(budget/4)
			if n == 1 {
				most, least = budget/8*5, budget/8*5
			} else if late {
				least = budget/2 - n
			}
			if sum := share * n; sum > most || sum < least-n {
				t.Errorf("%d streams have %d of %d together (late: %v), want %d to %d", n, sum, budget, late, least, most)
			}
		}
		if late {
			continue
		}
		if sum := ss.share(known[0], now, budget, false) * 100; sum > budget/10*3 {
			t.Errorf("many have %d of %d", sum, budget)
		}
		if got := ss.share(known[0], now.Add(2*idle), budget, false); got != budget/8*5 || ss.n.Load() != 1 {
			t.Errorf("the only one that still reads has %d of %d, of %d streams", got, budget, ss.n.Load())
		}
		ss.gone(known[0])
		if ss.n.Load() != 0 {
			t.Errorf("%d streams, and none reads", ss.n.Load())
		}
	}
}

// What is fetched in vain halves what is ahead of everybody; and who keeps pace on slow
// connections has each chunk by itself, where others have runs.
func TestPlanOfAStream(t *testing.T) {
	const chunk = 1000
	plan := func(rate int64, hurry float64, lost int64) (window, unit int64) {
		t.Helper()
		r, x := aloft(t)
		r.meter.note(chunk, rate, time.Millisecond, time.Second) // bytes/s, nearly
		r.waste.note(64<<20, lost, r.cache.MemoryBytes())
		s := r.single(cache.Log{}, 0)
		s.hint, s.hurry = Sequential, hurry
		s.enter(x, 3, 3, 0, 1)
		s.from = s.at - keepsPace
		if !r.plan(s, chunk) {
			t.Fatal("nothing is to be fetched ahead")
		}
		return s.window, s.unit
	}
	free, run := plan(100<<20, 1, 0)
	if run < 10*chunk {
		t.Errorf("runs of %d bytes", run)
	}
	for lost, brake := range map[int64]int{10 << 20: 1, 20 << 20: 2, 40 << 20: 3} {
		if window, _ := plan(100<<20, 1, lost); window > free>>brake {
			t.Errorf("%d of 64 MiB were in vain, and %d bytes may be ahead, of %d", lost>>20, window, free)
		}
	}
	if _, unit := plan(10<<20, -1, 0); unit != chunk {
		t.Errorf("keeps pace on slow connections, in runs of %d bytes", unit)
	}
	if _, unit := plan(100<<20, -1, 0); unit <= chunk {
		t.Errorf("keeps pace on fast connections, in runs of %d bytes", unit)
	}
	if _, unit := plan(10<<20, 1, 0); unit <= chunk {
		t.Errorf("catches up on slow connections, in runs of %d bytes", unit)
	}
}

// A Cursor of another partition, or of another Reader, is not the reader's who names it.
func TestAnnounced(t *testing.T) {
	chunks, err := cache.New(cache.Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer chunks.Close()
	r, other := &Reader{cache: chunks}, &Reader{cache: chunks}
	p := segment.Partition{Topic: "orders", TopicID: segment.UUID{1}}
	q := p
	q.Number++
	mine, of, anothers := r.Announce(p, 0), r.Announce(q, 0), other.Announce(p, 0)
	for name, c := range map[string]struct {
		cursor *Cursor
		want   bool
	}{"none": {nil, false}, "mine": {mine, true}, "of another partition": {of, false}, "of another Reader": {anothers, false}} {
		req := Request{Partition: p, Cursor: c.cursor}
		if got := req.announced(r); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
