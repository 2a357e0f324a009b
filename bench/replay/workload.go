package replay

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/segtier/segtier/bench/policy"
	"github.com/segtier/segtier/segment"
)

// Extent is what a tier holds of one partition, without holes.
type Extent struct {
	Partition  segment.Partition
	First, End int64 // offsets; End is behind the last
	Bytes      int64 // of log
}

// offset returns about which offset lies at a position of the log.
func (x *Extent) offset(pos int64) int64 {
	if x.Bytes <= 0 {
		return x.First
	}
	// The product may need more than 64 bits; the quotient is less than End.
	high, low := bits.Mul64(uint64(min(pos, x.Bytes-1)), uint64(x.End-x.First))
	q, _ := bits.Div64(high, low, uint64(x.Bytes))
	return x.First + int64(q)
}

// World is what a workload is made for. It has at least one Extent, and each has
// offsets.
type World []Extent

// Workload is made-up traffic.
type Workload struct {
	Name, About string

	make func(*maker)
}

// Workloads returns all workloads.
func Workloads() []Workload {
	all := []Workload{
		{"catchup", "one consumer reads a partition from its beginning to its end", catchUp},
		{"fanout", "four consumers a partition, 0, 8, 16 and 40 chunks behind the tail", func(m *maker) { m.fanout(0) }},
		{"backfill-2", "fanout beside 2 backfills, 64 chunks each at a time", func(m *maker) { m.fanout(2) }},
		{"backfill-8", "fanout beside 8 backfills", func(m *maker) { m.fanout(8) }},
		{"random", "64 consumers read 64 KiB at random, 1,000 fetches a second", random},
		{"seek", "16 consumers read two chunks and jump, forth or back", seek},
		{"loop", "two consumers read a partition over and over, half a loop apart", loop},
		{"zipf", "64 consumers read chunks, a few of them often", zipf},
		{"streams", "1,000 consumers read in sequence, each at its own place", streams},
		{"slow", "one slow consumer and fifteen fast ones of one partition", slow},
	}
	for _, name := range policy.Names() {
		all = append(all, Workload{"trace-" + name, "cache trace " + name + "; see package policy", func(m *maker) { m.trace(name) }})
	}
	return all
}

// FindWorkload returns a workload by its name.
func FindWorkload(name string) (Workload, error) {
	i := slices.IndexFunc(Workloads(), func(w Workload) bool { return w.Name == name })
	if i < 0 {
		var names []string
		for _, w := range Workloads() {
			names = append(names, w.Name)
		}
		return Workload{}, fmt.Errorf("there is no workload %q; there are %v", name, names)
	}
	return Workloads()[i], nil
}

// Events makes the events of the workload for a world, at most n (0: as many as it
// has).
func (w Workload) Events(world World, n int, seed uint64) ([]Event, error) {
	if len(world) == 0 {
		return nil, fmt.Errorf("workload %s: the tier holds nothing to read", w.Name)
	}
	if n <= 0 {
		n = maxEvents
	}
	m := &maker{world: world, n: n, rng: rand.New(rand.NewPCG(seed, 0x7265706c6179)), seed: seed, unit: 1 << 20, places: make(map[string]spot)}
	for _, x := range world {
		// A small tier is read in small pieces.
		m.unit = min(m.unit, max(x.Bytes/16, 1<<10))
	}
	w.make(m)
	if len(m.events) == 0 {
		return nil, fmt.Errorf("workload %s: no events for this tier", w.Name)
	}
	return m.events, nil
}

// maker makes the events of one workload.
type maker struct {
	world World
	n     int // events at most
	rng   *rand.Rand
	seed  uint64
	unit  int64 // bytes that a consumer reads at a time: a chunk
	exact bool  // the accesses are those of a cache trace

	events []Event
	places map[string]spot // where each consumer's last read ends
}

// spot is a position of an extent.
type spot struct {
	x   *Extent
	pos int64
}

func (m *maker) full() bool { return len(m.events) >= m.n }

// units returns how many chunks an extent has.
func (m *maker) units(x *Extent) int64 { return max(x.Bytes/m.unit, 1) }

// read adds an event: a chunk of an extent, both taken modulo what there is.
func (m *maker) read(at time.Duration, consumer string, extent int, unit int64) {
	x := &m.world[extent%len(m.world)]
	m.add(at, consumer, x, unit%m.units(x)*m.unit, m.unit)
}

func (m *maker) add(at time.Duration, consumer string, x *Extent, pos, n int64) {
	if m.full() {
		return
	}
	m.events = append(m.events, Event{
		At: at, Consumer: consumer, Topic: x.Partition.Topic, TopicID: x.Partition.TopicID, Partition: x.Partition.Number,
		Offset: x.offset(pos), MaxBytes: int(n),
		// Which batch begins where is not known here: who reads in sequence does not jump.
		Follows: !m.exact && m.places[consumer] == spot{x, pos},
	})
	m.places[consumer] = spot{x, pos + n}
}

// consumers names consumers once.
func consumers(n int, format string) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(format, i)
	}
	return names
}

func catchUp(m *maker) {
	for i := range m.units(&m.world[0]) {
		m.read(time.Duration(i)*5*time.Millisecond, "catchup", 0, i)
	}
}

// fanout is tail consumers at lags, and backfills of other partitions if there
// are any.
func (m *maker) fanout(backfills int) {
	const tick = 200 * time.Millisecond
	lags := []int64{0, 8, 16, 40}
	tails := min(len(m.world), 32)
	if len(m.world) > backfills {
		tails = min(tails, len(m.world)-backfills)
	}
	tail, back := consumers(tails*len(lags), "tail-%d"), consumers(backfills, "backfill-%d")
	most := int64(0)
	for i := range tails {
		most = max(most, m.units(&m.world[i]))
	}
	for t := int64(0); t < most+lags[len(lags)-1] && !m.full(); t++ {
		at := time.Duration(t) * tick
		for p := range tails {
			for l, lag := range lags {
				if pos := t - lag; pos >= 0 && pos < m.units(&m.world[p]) {
					m.read(at, tail[p*len(lags)+l], p, pos)
				}
			}
		}
		for b := range back {
			for i := range int64(64) {
				m.read(at+time.Duration(i)*tick/64, back[b], tails+b, t*64+i)
			}
		}
	}
	sortEvents(m.events)
}

func random(m *maker) {
	names := consumers(64, "random-%d")
	at := 0.0
	for i := range min(m.n, 100_000) {
		x := &m.world[m.rng.IntN(len(m.world))]
		n := min(m.unit, 64<<10)
		m.add(time.Duration(at*float64(time.Second)), names[i%len(names)], x, m.rng.Int64N(max(x.Bytes-n, 1)), n)
		at += m.rng.ExpFloat64() / 1000
	}
}

func seek(m *maker) {
	names := consumers(16, "seek-%d")
	pos := make([]int64, len(names))
	for t := range int64(2000) {
		for i, name := range names {
			x := &m.world[i%len(m.world)]
			if t%2 == 0 {
				jump := int64(m.rng.ExpFloat64() * 20)
				if m.rng.IntN(2) == 0 {
					jump = -jump
				}
				pos[i] = max(0, pos[i]+jump) % m.units(x)
			}
			m.read(time.Duration(t)*20*time.Millisecond, name, i, pos[i])
			pos[i]++
		}
	}
}

func loop(m *maker) {
	units := m.units(&m.world[0])
	for i := range units * 8 {
		at := time.Duration(i) * 5 * time.Millisecond
		m.read(at, "loop-0", 0, i)
		m.read(at, "loop-1", 0, i+units/2)
	}
}

func zipf(m *maker) {
	var total int64
	for i := range m.world {
		total += m.units(&m.world[i])
	}
	total = min(total, 1<<20)
	where := m.rng.Perm(int(total))
	z := rand.NewZipf(m.rng, 1.01, 1, uint64(total-1))
	names := consumers(64, "zipf-%d")
	for i := range min(m.n, 100_000) {
		chunk := int64(where[z.Uint64()])
		extent := 0
		for ; chunk >= m.units(&m.world[extent]); extent++ {
			chunk -= m.units(&m.world[extent])
		}
		m.read(time.Duration(i)*time.Millisecond, names[i%len(names)], extent, chunk)
	}
}

func streams(m *maker) {
	names := consumers(1000, "stream-%d")
	for t := range int64(64) {
		for i, name := range names {
			x := &m.world[i%len(m.world)]
			m.read(time.Duration(t)*time.Second+time.Duration(i)*time.Millisecond, name, i, m.units(x)*int64(i)/int64(len(names))+t)
		}
	}
}

func slow(m *maker) {
	names := consumers(16, "fast-%d")
	names[0] = "slow"
	for t := range m.units(&m.world[0]) {
		for i, name := range names {
			if i > 0 || t%10 == 0 {
				m.read(time.Duration(t)*10*time.Millisecond, name, 0, max(0, t-int64(i)))
			}
		}
	}
}

// trace plays a cache trace: exactly its accesses, in its order, a millisecond
// apart. Where the world is smaller than the trace, partitions and positions are
// taken modulo what there is.
func (m *maker) trace(name string) {
	t, err := policy.Make(name, policy.Options{Seed: m.seed})
	if err != nil {
		return // a name of policy.Names
	}
	m.exact = true
	known, others := consumers(len(t.Cursors), "cursor-%d"), consumers(64, "reader-%d")
	i := 0
	for a := range t.Accesses {
		if m.full() {
			return
		}
		who := others[i%len(others)]
		if a.Cursor >= 0 {
			who = known[a.Cursor]
		}
		m.read(time.Duration(i)*time.Millisecond, who, int(a.Chunk.Partition), int64(a.Chunk.Position))
		i++
	}
}
