package weather

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Stats is what a server has counted since it was made or reset.
type Stats struct {
	Requests map[string]int64 `json:"requests"` // by operation
	Answers  map[int]int64    `json:"answers"`  // by HTTP status
	Faults   map[Kind]int64   `json:"faults"`   // that happened

	DataGets int64 `json:"dataGets"` // GETs of virtual objects that began in the log
	TailGets int64 `json:"tailGets"` // and behind it

	BytesOut int64 `json:"bytesOut"` // of bodies of objects
	BytesIn  int64 `json:"bytesIn"`  // of bodies of writes, decoded

	// DuplicateBytes were sent before, to whomever. DuplicateMiB are the aligned MiB
	// of objects of which some byte was sent twice, TouchedMiB those of which any
	// was sent.
	DuplicateBytes int64 `json:"duplicateBytes"`
	DuplicateMiB   int64 `json:"duplicateMiB"`
	TouchedMiB     int64 `json:"touchedMiB"`

	Abandoned   int64 `json:"abandoned"`   // bodies that the client did not take to the end; seen when it is written to
	Broken      int64 `json:"broken"`      // bodies that could not be read here: a fault of the server
	Connections int64 `json:"connections"` // opened
	Open        int64 `json:"open"`        // now
	IdleClosed  int64 `json:"idleClosed"`  // because of IdleClose
	InFlight    int64 `json:"inFlight"`    // requests now
	MostFlight  int64 `json:"mostInFlight"`
}

// counters make Stats.
type counters struct {
	bytesOut, bytesIn, abandoned, broken, connections, open, idleClosed, inFlight, most, data, tails atomic.Int64

	mu       sync.Mutex
	requests map[string]int64     // guarded by mu
	answers  map[int]int64        // guarded by mu
	faults   map[Kind]int64       // guarded by mu
	sentOf   map[string]*coverage // by object; guarded by mu
}

func (c *counters) init() {
	c.requests, c.answers, c.faults = make(map[string]int64), make(map[int]int64), make(map[Kind]int64)
	c.sentOf = make(map[string]*coverage)
}

// reset forgets all but what is going on now.
func (c *counters) reset() {
	for _, n := range []*atomic.Int64{&c.bytesOut, &c.bytesIn, &c.abandoned, &c.broken, &c.connections, &c.idleClosed, &c.data, &c.tails} {
		n.Store(0)
	}
	c.most.Store(c.inFlight.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.init()
}

func (c *counters) stats() Stats {
	st := Stats{
		DataGets: c.data.Load(), TailGets: c.tails.Load(), BytesOut: c.bytesOut.Load(), BytesIn: c.bytesIn.Load(),
		Abandoned: c.abandoned.Load(), Broken: c.broken.Load(), Connections: c.connections.Load(), Open: c.open.Load(),
		IdleClosed: c.idleClosed.Load(), InFlight: c.inFlight.Load(), MostFlight: c.most.Load(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st.Requests, st.Answers, st.Faults = maps.Clone(c.requests), maps.Clone(c.answers), maps.Clone(c.faults)
	for _, o := range c.sentOf {
		st.DuplicateBytes += o.twice
		st.TouchedMiB += int64(len(o.cells))
		for _, twice := range o.cells {
			if twice {
				st.DuplicateMiB++
			}
		}
	}
	return st
}

// begin counts a request, and returns what is to be called at its end.
func (c *counters) begin(operation string) func() {
	c.mu.Lock()
	c.requests[operation]++
	c.mu.Unlock()
	n := c.inFlight.Add(1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	return func() { c.inFlight.Add(-1) }
}

func (c *counters) status(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[code]++
}

func (c *counters) fault(k Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[k]++
}

func (c *counters) connection(n int64) {
	c.open.Add(n)
	if n > 0 {
		c.connections.Add(1)
	}
}

func (c *counters) kindOfGet(tail bool) {
	if tail {
		c.tails.Add(1)
	} else {
		c.data.Add(1)
	}
}

// sent counts bytes of an object.
func (c *counters) sent(object string, off, n int64) {
	c.bytesOut.Add(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.sentOf[object]
	if o == nil {
		o = &coverage{cells: make(map[int64]bool)}
		c.sentOf[object] = o
	}
	o.add(off, off+n)
}

// coverage is which bytes of an object were sent.
type coverage struct {
	spans []span         // sorted, apart from each other
	twice int64          // bytes sent again
	cells map[int64]bool // touched MiB; true: in part touched again
}

type span struct{ from, to int64 }

// add takes [from, to).
func (c *coverage) add(from, to int64) {
	const cell = 1 << 20
	for i := from / cell; i*cell < to; i++ {
		c.cells[i] = c.cells[i] || false
	}
	// Spans i to j overlap or touch what is added.
	i, _ := slices.BinarySearchFunc(c.spans, from, func(s span, at int64) int {
		if s.to < at {
			return -1
		}
		return 1
	})
	j, all := i, span{from, to}
	for ; j < len(c.spans) && c.spans[j].from <= to; j++ {
		s := c.spans[j]
		if a, b := max(s.from, from), min(s.to, to); a < b {
			c.twice += b - a
			for k := a / cell; k*cell < b; k++ {
				c.cells[k] = true
			}
		}
		all = span{min(all.from, s.from), max(all.to, s.to)}
	}
	c.spans = slices.Replace(c.spans, i, j, all)
}
