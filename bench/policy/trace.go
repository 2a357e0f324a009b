package policy

import (
	"fmt"
	"iter"
	"math/rand/v2"
)

// Names of the traces, and what is the same in all of them.
const (
	Capacity     = 2048 // chunks; see Trace.Capacity
	SegmentLen   = 256  // chunks of a segment
	tailStart    = 1_000_000
	partitions   = 32
	backfillFrom = 500 // tick
	zipfChunks   = 50_000
)

// Chunk names a chunk.
type Chunk struct {
	Partition int32
	Position  int32
}

// Access is one read of a chunk. Cursor is -1 if nobody's.
type Access struct {
	Chunk  Chunk
	Cursor int
}

// Cursor is a reader and where it begins.
type Cursor struct {
	Start Chunk
	Known bool
}

// Trace is a sequence of accesses, the same at each iteration.
type Trace struct {
	Name     string
	Capacity int // chunks
	Cursors  []Cursor
	Accesses iter.Seq[Access]
}

// Options choose among the variants of a trace.
type Options struct {
	// HalfKnown: only the cursors with even numbers are known.
	HalfKnown bool
	// Shorten divides the number of ticks, rounds or accesses, for a quick look;
	// 0 is 1. The figures of a shortened trace are not those of the trace.
	Shorten int
	// Seed of the random ones.
	Seed uint64
}

// Names returns the names of all traces.
func Names() []string {
	return []string{"A", "A2", "B", "C", "D", "E", "F", "G", "A-jitter", "B-jitter", "C-jitter", "D-jitter"}
}

// Make returns a trace by its name.
func Make(name string, o Options) (Trace, error) {
	short := max(o.Shorten, 1)
	fan := fanout{lags: []int{0, 8, 16, 40}, ticks: 4000 / short, seed: o.Seed}
	capacity := Capacity
	base := name
	if n := len(name) - len("-jitter"); n > 0 && name[n:] == "-jitter" {
		base, fan.jitter = name[:n], true
	}
	t := Trace{Name: name}
	switch base {
	case "A":
	case "A2":
		capacity = 2560
	case "B":
		fan.lags = []int{0, 8, 16, 80}
	case "C":
		fan.backfills = 2
	case "D":
		fan.backfills, fan.ticks = 8, 3000/short
	case "E", "F", "G":
		if fan.jitter {
			return Trace{}, fmt.Errorf("there is no trace %q", name)
		}
	default:
		return Trace{}, fmt.Errorf("there is no trace %q", name)
	}
	fan.from = min(backfillFrom, fan.ticks/8)
	if short == 1 {
		fan.from = backfillFrom
	}
	switch base {
	case "E":
		t.Accesses = zipf(o.Seed, 600_000/short)
	case "F":
		t.Cursors, t.Accesses = loop(40 / min(short, 20))
	case "G":
		fan.ticks = 3000 / short
		t.Cursors = fan.cursors()
		first, then := zipf(o.Seed, 300_000/short), fan.accesses()
		t.Accesses = func(yield func(Access) bool) {
			for a := range first {
				if !yield(a) {
					return
				}
			}
			for a := range then {
				if !yield(a) {
					return
				}
			}
		}
	default:
		t.Cursors, t.Accesses = fan.cursors(), fan.accesses()
	}
	t.Capacity = capacity
	for i := range t.Cursors {
		t.Cursors[i].Known = !o.HalfKnown || i%2 == 0
	}
	all, cursors := t.Accesses, t.Cursors
	t.Accesses = func(yield func(Access) bool) {
		for a := range all {
			if a.Cursor >= 0 && !cursors[a.Cursor].Known {
				a.Cursor = -1
			}
			if !yield(a) {
				return
			}
		}
	}
	return t, nil
}

// fanout is tail consumers behind one another, and backfills.
type fanout struct {
	lags      []int
	ticks     int
	backfills int
	from      int // tick of the first backfill
	jitter    bool
	seed      uint64
}

func (f fanout) cursors() []Cursor {
	var all []Cursor
	for p := range partitions {
		for range f.lags {
			all = append(all, Cursor{Start: Chunk{int32(p), tailStart}})
		}
	}
	for b := range f.backfills {
		all = append(all, Cursor{Start: Chunk{int32(partitions + b), 0}})
	}
	return all
}

func (f fanout) accesses() iter.Seq[Access] {
	if f.jitter {
		return f.jittered()
	}
	return func(yield func(Access) bool) {
		for tick := range f.ticks {
			cursor := 0
			for p := range partitions {
				for _, lag := range f.lags {
					if tick >= lag && !yield(Access{Chunk{int32(p), int32(tailStart + tick - lag)}, cursor}) {
						return
					}
					cursor++
				}
			}
			if tick < f.from {
				continue
			}
			for b := range f.backfills {
				for i := range 64 {
					if !yield(Access{Chunk{int32(partitions + b), int32((tick-f.from)*64 + i)}, cursor + b}) {
						return
					}
				}
			}
		}
	}
}

// jittered is the same crowd, less regular.
func (f fanout) jittered() iter.Seq[Access] {
	return func(yield func(Access) bool) {
		rng := rand.New(rand.NewPCG(f.seed, 1))
		type consumer struct {
			next, join, stalled int
		}
		consumers := make([]consumer, partitions*len(f.lags))
		for i := range consumers {
			consumers[i] = consumer{join: rng.IntN(f.ticks/20 + 1)}
		}
		backfill := make([]int, f.backfills)
		for tick := range f.ticks {
			for i := range consumers {
				c := &consumers[i]
				lag := f.lags[i%len(f.lags)]
				behind := tick - lag + 1 - c.next // chunks until it is at its lag
				if tick < c.join || behind <= 0 {
					continue
				}
				if c.stalled > 0 {
					c.stalled--
					continue
				}
				if rng.IntN(200) == 0 {
					c.stalled = 1 + rng.IntN(60)
					continue
				}
				burst := 1
				if behind > 1 {
					burst = min(behind, 2+rng.IntN(7))
				}
				for range burst {
					if !yield(Access{Chunk{int32(i / len(f.lags)), int32(tailStart + c.next)}, i}) {
						return
					}
					c.next++
				}
			}
			if tick < f.from {
				continue
			}
			for b := range backfill {
				for range 16 + rng.IntN(97) {
					if !yield(Access{Chunk{int32(partitions + b), int32(backfill[b])}, len(consumers) + b}) {
						return
					}
					backfill[b]++
				}
			}
		}
	}
}

// zipf reads a few of many old chunks often. They lie in one partition in an
// order that says nothing of their frequency.
func zipf(seed uint64, n int) iter.Seq[Access] {
	return func(yield func(Access) bool) {
		rng := rand.New(rand.NewPCG(seed, 2))
		where := rng.Perm(zipfChunks)
		z := rand.NewZipf(rng, 1.01, 1, zipfChunks-1)
		for range n {
			if !yield(Access{Chunk{partitions + 100, int32(where[z.Uint64()])}, -1}) {
				return
			}
		}
	}
}

// loop is two readers that go round and round.
func loop(rounds int) ([]Cursor, iter.Seq[Access]) {
	const chunks = 3072
	cursors := []Cursor{{Start: Chunk{0, 0}}, {Start: Chunk{0, chunks / 2}}}
	return cursors, func(yield func(Access) bool) {
		for i := range rounds * chunks {
			if !yield(Access{Chunk{0, int32(i % chunks)}, 0}) ||
				!yield(Access{Chunk{0, int32((i + chunks/2) % chunks)}, 1}) {
				return
			}
		}
	}
}
