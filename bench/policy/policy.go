package policy

import "container/list"

// Policy is a cache that says of each access whether it is a hit, and inserts
// what is not as it sees fit.
type Policy interface {
	Access(Access) bool
}

// Ratio runs a trace through a policy and returns the share of hits.
func Ratio(t Trace, p Policy) float64 {
	hits, n := 0, 0
	for a := range t.Accesses {
		if p.Access(a) {
			hits++
		}
		n++
	}
	if n == 0 {
		return 0
	}
	return float64(hits) / float64(n)
}

// LRU keeps what was used last.
type LRU struct {
	capacity int
	order    *list.List // of Chunk, last used first
	at       map[Chunk]*list.Element
}

// NewLRU returns an empty LRU.
func NewLRU(capacity int) *LRU {
	return &LRU{capacity: capacity, order: list.New(), at: map[Chunk]*list.Element{}}
}

// Access implements Policy.
func (c *LRU) Access(a Access) bool {
	if e := c.at[a.Chunk]; e != nil {
		c.order.MoveToFront(e)
		return true
	}
	if len(c.at) == c.capacity {
		last := c.order.Back()
		delete(c.at, last.Value.(Chunk))
		c.order.Remove(last)
	}
	c.at[a.Chunk] = c.order.PushFront(a.Chunk)
	return false
}

// S3FIFO is three queues: what is new, what was asked for again, and the names
// of what left the first without that.
type S3FIFO struct {
	small, main, ghost        *list.List
	smallMax, mainMax, ghosts int
	at                        map[Chunk]*s3Entry
	ghostAt                   map[Chunk]*list.Element
}

type s3Entry struct {
	chunk  Chunk
	freq   int
	inMain bool
}

// NewS3FIFO returns an empty S3FIFO.
func NewS3FIFO(capacity int) *S3FIFO {
	small := max(capacity/10, 1)
	return &S3FIFO{
		small: list.New(), main: list.New(), ghost: list.New(),
		smallMax: small, mainMax: capacity - small, ghosts: capacity - small,
		at: map[Chunk]*s3Entry{}, ghostAt: map[Chunk]*list.Element{},
	}
}

// Access implements Policy.
func (c *S3FIFO) Access(a Access) bool {
	if e := c.at[a.Chunk]; e != nil {
		e.freq = min(e.freq+1, 3)
		return true
	}
	for len(c.at) >= c.smallMax+c.mainMax {
		if c.small.Len() >= c.smallMax {
			c.evictSmall()
		} else {
			c.evictMain()
		}
	}
	e := &s3Entry{chunk: a.Chunk}
	c.at[a.Chunk] = e
	if g := c.ghostAt[a.Chunk]; g != nil {
		c.ghost.Remove(g)
		delete(c.ghostAt, a.Chunk)
		e.inMain = true
		c.main.PushFront(e)
	} else {
		c.small.PushFront(e)
	}
	return false
}

// evictSmall makes one chunk leave small: to main if it was asked for more than
// once, else to the ghosts.
func (c *S3FIFO) evictSmall() {
	for c.small.Len() > 0 {
		last := c.small.Back()
		e := last.Value.(*s3Entry)
		c.small.Remove(last)
		if e.freq > 1 {
			e.freq, e.inMain = 0, true
			c.main.PushFront(e)
			if c.main.Len() > c.mainMax {
				c.evictMain()
				return
			}
			continue
		}
		delete(c.at, e.chunk)
		c.ghostAt[e.chunk] = c.ghost.PushFront(e.chunk)
		if c.ghost.Len() > c.ghosts {
			oldest := c.ghost.Back()
			delete(c.ghostAt, oldest.Value.(Chunk))
			c.ghost.Remove(oldest)
		}
		return
	}
	c.evictMain()
}

// evictMain evicts the oldest of main that nobody asked for since its last turn.
func (c *S3FIFO) evictMain() {
	for c.main.Len() > 0 {
		last := c.main.Back()
		e := last.Value.(*s3Entry)
		if e.freq > 0 {
			e.freq--
			c.main.MoveToFront(last)
			continue
		}
		c.main.Remove(last)
		delete(c.at, e.chunk)
		return
	}
}
