package fetch

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/segment"
)

// Every chunk that is asked for is in exactly one run, in order; runs keep to
// their bounds, and no two of them could have been one.
func TestRunsHoldEveryChunkOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pl := planner{
			first: rapid.IntRange(1, 8).Draw(t, "first"), unit: rapid.IntRange(1, 16).Draw(t, "unit"),
			gap: rapid.IntRange(0, 3).Draw(t, "gap"), grid: rapid.Bool().Draw(t, "grid"),
		}
		chunks := rapid.SliceOfNDistinct(rapid.IntRange(0, 60), 0, 40, rapid.ID).Draw(t, "chunks")
		slices.Sort(chunks)
		runs := pl.runs(nil, chunks)
		var covered []int
		for i, run := range runs {
			limit := pl.unit
			if i == 0 && !pl.grid {
				limit = pl.first
			}
			if run.len() < 1 || run.len() > limit {
				t.Fatalf("run %v is longer than %d", run, limit)
			}
			if pl.grid && run.from/pl.unit != (run.to-1)/pl.unit {
				t.Fatalf("run %v crosses a multiple of %d", run, pl.unit)
			}
			gaps, inRow := 0, 0
			for c := run.from; c < run.to; c++ {
				if _, asked := slices.BinarySearch(chunks, c); asked {
					covered, inRow = append(covered, c), 0
					continue
				}
				gaps++
				if inRow++; inRow > pl.gap || c == run.from || c == run.to-1 {
					t.Fatalf("run %v of %v: a gap at %d", run, chunks, c)
				}
			}
			if gaps*4 > run.len() {
				t.Fatalf("run %v of %v is %d chunks of gaps", run, chunks, gaps)
			}
			if i > 0 {
				before := runs[i-1]
				most := pl.unit
				if i == 1 && !pl.grid {
					most = pl.first
				}
				joined := span{before.from, run.from + 1}
				if run.from == before.to && joined.len() <= most && (!pl.grid || joined.from/pl.unit == run.from/pl.unit) {
					t.Fatalf("runs %v and %v could have been one", before, run)
				}
			}
		}
		if !slices.Equal(covered, chunks) {
			t.Fatalf("runs %v hold %v, asked for %v", runs, covered, chunks)
		}
	})
}

// Whoever starts where, soon asks for the same runs.
func TestNextRunsMeetOnTheGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit, stop := rapid.IntRange(1, 16).Draw(t, "unit"), rapid.IntRange(1, 100).Draw(t, "stop")
		room := rapid.IntRange(0, 40).Draw(t, "room")
		at := rapid.IntRange(0, stop).Draw(t, "from")
		for range stop + 1 {
			run := nextRun(at, stop, unit, room)
			if run.len() == 0 {
				if whole := min((at/unit+1)*unit, stop) - at; whole > 0 && whole <= room {
					t.Fatalf("no run at %d, though %d chunks fit", at, whole)
				}
				return
			}
			if run.from != at || run.to > stop || run.len() > min(unit, room) || run.to%unit != 0 && run.to != stop {
				t.Fatalf("run %v at %d of %d by %d with room for %d", run, at, stop, unit, room)
			}
			at = run.to
		}
		t.Fatal("no end")
	})
}

// A reader in sequence is one stream, whoever reads beside it, whatever chunk sizes and
// little jumps there are; reads at random are never taken for one.
func TestDetector(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perChunk, chunks = 10, 50 // offsets
		var l lanes
		var ids atomic.Uint64
		read := func(offset, n int64) *stream {
			seg := segment.UUID{byte(offset / (perChunk * chunks)), byte(offset / (perChunk * chunks) >> 8)}
			start := offset / (perChunk * chunks) * perChunk * chunks
			c := int((offset - start) / perChunk)
			upper := start + perChunk*chunks
			end := min(offset+n, upper)
			k := reach{offset: offset, seg: seg, start: start, upper: upper, c: c, to: int((end-1-start)/perChunk) + 1, chunks: chunks}
			var in holding
			in.stream, in.next = l.follow(&ids, nil, &k, &in).s, end
			l.ended(&in, false)
			return in.stream
		}
		type reader struct {
			at    int64
			reads int
			s     *stream
		}
		readers := make([]reader, rapid.IntRange(1, 8).Draw(t, "readers"))
		for i := range readers {
			readers[i].at = int64(i) * 5000 // far from each other
		}
		for range 100 {
			i := rapid.IntRange(0, len(readers)-1).Draw(t, "who")
			r := &readers[i]
			n := rapid.Int64Range(1, 2*perChunk).Draw(t, "n")
			if r.s != nil && rapid.IntRange(0, 3).Draw(t, "jump") == 0 {
				floor := r.at / (perChunk * chunks) * perChunk * chunks // not back into the segment before
				r.at = max(r.at+rapid.Int64Range(-perChunk/2, 2*perChunk).Draw(t, "by"), floor)
			}
			s := read(r.at, n)
			if r.s != nil && s != r.s || r.reads > 0 && s == nil {
				t.Fatalf("reader %d at %d is another stream now", i, r.at)
			}
			r.s = s
			r.reads++
			r.at = min(r.at+n, (r.at/(perChunk*chunks)+1)*perChunk*chunks)
			if rapid.Bool().Draw(t, "stranger") {
				// Somewhere where nobody is.
				if s := read(100_000+2000*rapid.Int64Range(0, 40).Draw(t, "where"), 1); s != nil {
					t.Fatalf("reads at random are a stream")
				}
			}
		}
	})
}

// Reads at random, however near each other, never begin a stream; two in sequence do.
func TestRandomReadsAreNoStream(t *testing.T) {
	var l lanes
	var ids atomic.Uint64
	follow := func(offset int64, c int) (reads int) {
		k := reach{offset: offset, seg: segment.UUID{1}, upper: 1000, c: c, to: c + 1, chunks: 100}
		var in holding
		f := l.follow(&ids, nil, &k, &in)
		in.stream, in.next = f.s, offset+3
		l.ended(&in, false)
		return f.reads
	}
	for i := range 100 {
		offset := int64(i * 7 % 100 * 10) // a chunk is 10 offsets: never where one ended
		if reads := follow(offset, int(offset/10)); reads != 0 {
			t.Fatalf("read %d at %d: %d in sequence", i, offset, reads)
		}
	}
	follow(505, 50)
	if reads := follow(508, 50); reads != 2 {
		t.Fatalf("two in sequence: %d", reads)
	}
	// A stranger in the middle of a stream takes nothing away from it.
	for offset := int64(511); offset < 600; offset += 3 {
		follow(offset-5, int(offset-5)/10)
		if reads := follow(offset, int(offset)/10); reads < 3 {
			t.Fatalf("at %d a stranger ended the stream", offset)
		}
	}
}

// network is a store of which each connection has a rate and all together have
// one, and which needs a while for the first byte.
type network struct{ connection, link, first float64 }

// rate is what a reader gets with n runs of unit bytes in flight.
func (w network) rate(n int, unit float64) float64 {
	per := unit / (w.first + unit/w.connection)
	return min(float64(n)*per, w.link)
}

// The search comes to what the network gives and no further, from a right guess
// and from none, and gives back when the reader is the slow one.
func TestSearch(t *testing.T) {
	const unit = 8 << 20
	for name, c := range map[string]struct {
		net    network
		reader float64 // bytes/s it takes; 0: whatever it gets
		known  bool
		most   int // runs in the end, at most
	}{
		"one connection is all":  {net: network{500e6, 500e6, .03}, most: 4},
		"slow connections":       {net: network{10e6, 120e6, .03}, most: 32},
		"slow connections known": {net: network{10e6, 120e6, .03}, known: true, most: 32},
		"no limit":               {net: network{60e6, 1e12, .03}, most: 32},
		"slow reader":            {net: network{60e6, 1e12, .03}, reader: 20e6, most: 4},
		"slow reader, many runs": {net: network{5e6, 1e12, .03}, reader: 3e6, known: true, most: 4},
	} {
		t.Run(name, func(t *testing.T) {
			q := search{backoff: 4}
			if c.known {
				q.start(c.net.connection, 1)
			}
			now := time.Unix(0, 0)
			best, last := 0.0, 0.0
			for n := 2; n <= 32; n *= 2 {
				best = max(best, c.net.rate(n, unit))
			}
			if c.reader > 0 {
				best = min(best, c.reader)
			}
			for range 300 {
				window := int64(q.runs()) * unit
				rate := c.net.rate(q.runs(), unit)
				stalled := 1.0
				if c.reader > 0 && c.reader < rate {
					rate, stalled = c.reader, 0
				}
				took := time.Duration(float64(window) / rate * 1e9)
				now = now.Add(took)
				if q.read(window, time.Duration(stalled*float64(took)), window) {
					q.judge(now, true)
				}
				last = rate
				if q.runs() < 2 || q.runs() > 32 {
					t.Fatalf("%d runs", q.runs())
				}
			}
			if last < best*.85 {
				t.Errorf("%.0f MB/s with %d runs, there are %.0f", last/1e6, q.runs(), best/1e6)
			}
			if q.runs() > c.most {
				t.Errorf("%d runs in flight, want at most %d", q.runs(), c.most)
			}
		})
	}
}

// More runs that were in vain are tried again later and later; after some that were not, soon
// again. Who waited for nothing is let be for a moment before he gets more.
func TestSearchWaitsBeforeItTriesAgain(t *testing.T) {
	var q search
	q.start(plenty, 1)
	now := time.Unix(0, 0)
	epoch := func(rate int64, waited bool) (raised bool) {
		level := q.level
		now = now.Add(time.Second)
		stalled := time.Duration(0)
		if waited {
			stalled = time.Second
		}
		if q.read(rate, stalled, 0) {
			q.judge(now, true)
		}
		return q.level > level
	}
	// between returns how many epochs go by until more is tried.
	between := func(rate int64) (n int) {
		for !epoch(rate, true) {
			if n++; n > 1000 {
				t.Fatal("more is never tried again")
			}
		}
		return n
	}
	vain := func() (all []int) {
		for range 7 {
			epoch(1000, true) // no more than before
			all = append(all, between(1000))
		}
		return all
	}
	if n := between(1000); n != 1 {
		t.Errorf("%d epochs until more is tried, want the first that begins", n)
	}
	want := []int{4, 8, 16, 32, 64, 64, 64}
	if got := vain(); !slices.Equal(got, want) {
		t.Errorf("tried again after %v epochs, want %v", got, want)
	}
	epoch(2000, true) // which answers
	if n := between(1000); n != 0 {
		t.Errorf("%d epochs until more is tried after what was not in vain", n)
	}
	if got := vain(); !slices.Equal(got, want) {
		t.Errorf("once it was not in vain, tried again after %v epochs, want %v", got, want)
	}
	epoch(2000, true)
	if level := q.level; epoch(1000, false) || q.level != level-1 {
		t.Errorf("level %d, from %d, where the reader waits for nothing", q.level, level)
	}
	if n := between(1000); n != 2 {
		t.Errorf("%d epochs until more is tried after some were given back, want 2", n)
	}
	// What comes at once is no epoch yet: the clock would say that it was fast.
	level, had := q.level, q.before
	for range 3 {
		if q.read(1000, 0, 0) {
			q.judge(now, true)
		}
	}
	if q.level != level || q.before != had || q.bytes != 3000 {
		t.Errorf("level %d, from %d, judged by what took no time; %d bytes are left of the 3000", q.level, level, q.bytes)
	}
}

// What is fetched in vain puts the brake on, and what is not lets it go again; the sooner
// the less memory there is for it.
func TestBrake(t *testing.T) {
	for _, budget := range []int64{1 << 30, 64 << 20} {
		var w waste
		mib := min(budget, memoryOfWaste) / 256
		note := func(spent, lost int64) { w.note(spent*mib, lost*mib, budget) }
		brake := func() int { return w.brake(budget) }
		note(16, 16)
		if brake() != 0 {
			t.Errorf("budget %d: braked by too little to judge", budget)
		}
		note(64, 30)
		if brake() != 3 {
			t.Errorf("budget %d: brake %d where half is in vain", budget, brake())
		}
		for range 20 {
			note(64, 1)
		}
		if brake() != 0 {
			t.Errorf("budget %d: brake %d where nothing is in vain any more", budget, brake())
		}
	}
}

// Reads of which one begins by chance where another ended make a stream that goes
// again, so that no place of the partition is taken for somebody's for good.
func TestStreamsRetire(t *testing.T) {
	var l lanes
	var ids atomic.Uint64
	var gone []*stream
	follow := func(offset, n int64) *stream {
		var in holding
		f := l.follow(&ids, nil, &reach{offset: offset, seg: segment.UUID{1}, c: int(offset / 10), to: int(offset/10) + 1, upper: 1e6, chunks: 1e5}, &in)
		if in.stream, in.next = f.s, offset+n; f.gone != nil {
			gone = append(gone, f.gone)
		}
		l.ended(&in, false)
		return f.s
	}
	follow(0, 10)
	s := follow(10, 10)
	if s == nil {
		t.Fatal("two in sequence are no stream")
	}
	for i := range int64(retiredAfter / 2) {
		follow(10_000+i*50, 10)
	}
	if follow(20, 10) != s {
		t.Fatal("a stream that reads now and then is not kept")
	}
	for i := range int64(retiredAfter + 2*maxFirst) {
		follow(10_000+i*50, 10)
	}
	if len(gone) != 1 || gone[0] != s || len(l.known) != 0 || follow(30, 10) != nil {
		t.Fatalf("%d streams went, %d are there: want none left", len(gone), len(l.known))
	}
	// There is an end to how many are told apart.
	for i := range int64(2 * maxLanes) {
		follow(100_000+1000*i, 10)
		follow(100_010+1000*i, 10)
	}
	if len(l.known) != maxLanes || len(gone) != 1+maxLanes {
		t.Fatalf("%d streams, %d went", len(l.known), len(gone))
	}
}

// The cache is told of a consumer that nobody announced once it has gone on twice, and no more
// of one whose place is another's.
func TestStrangersHaveCursors(t *testing.T) {
	c, err := cache.New(cache.Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var l lanes
	var ids atomic.Uint64
	read := func(offset int64, announced bool) (s *stream, cursor *cache.Cursor, wanted bool) {
		var in holding
		k := reach{offset: offset, seg: segment.UUID{1}, c: int(offset / 10), to: int(offset/10) + 1, upper: 1e6, chunks: 1e5}
		in.stream, in.next = l.follow(&ids, nil, &k, &in).s, offset+10
		cursor, wanted = l.ended(&in, announced)
		return in.stream, cursor, wanted
	}
	for i, want := range []bool{false, false, true, true} {
		if _, _, wanted := read(int64(10*i), false); wanted != want {
			t.Fatalf("read %d: a cursor is wanted: %v", i, wanted)
		}
	}
	if _, _, wanted := read(40, true); wanted {
		t.Fatal("a cursor is wanted beside the host's own")
	}
	s, _, _ := read(50, false)
	own := l.announce(c, s)
	if _, cursor, wanted := read(60, false); own == nil || cursor != own || wanted {
		t.Fatal("the cursor is not the stream's")
	}
	// Jumps a little: it is still known.
	if _, cursor, _ := read(90, false); cursor != own {
		t.Fatal("a little jump is another consumer")
	}
	if n := len(l.forget()); n != 1 || l.announce(c, s) != nil {
		t.Fatalf("%d streams were forgotten, and one has a cursor still", n)
	}
}
