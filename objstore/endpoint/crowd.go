package endpoint

import (
	"sync"
	"time"
)

// crowd learns how many requests of prefetch at a time the line bears. Beyond what
// fills the line, more of them only divide it, and whoever asks for something urgent
// shares it with all of them: a slot can be kept for him, but not the line.
//
// What it looks at is how fast a body arrives. How fast one does while few are in
// flight is measured anew now and then, for which few are let go for a moment. As
// long as a body takes less than twice as long as then, more may go; where it takes
// longer, fewer do. It looks only while prefetch waits for its room, and at the
// bodies of all reads: also where the processor is what is short.
type crowd struct {
	floor, most int
	apply       func(n int)

	mu     sync.Mutex
	limit  int       // guarded by mu
	best   float64   // bytes/s of a body while few are in flight; 0: not known; guarded by mu
	known  time.Time // when best was measured; guarded by mu
	before int       // the limit before few are let go; 0: they are not; guarded by mu
	since  time.Time // when those that were more will have ended, then; guarded by mu
	quiet  bodies    // that arrived while few were in flight; guarded by mu
	usual  bodies    // the others; guarded by mu
}

// bodies are some that have arrived.
type bodies struct {
	n     int
	bytes int64
	took  time.Duration
}

func (b *bodies) add(n int64, took time.Duration) {
	b.n++
	b.bytes += n
	b.took += max(took, time.Microsecond)
}

func (b *bodies) rate() float64 { return float64(b.bytes) / b.took.Seconds() }

const (
	// crowdFloor is the part of the room that few are, and below which nothing is
	// gained.
	crowdFloor = 4
	// crowdBody is the least body that says something.
	crowdBody = 512 << 10
	// crowdSample is how many bodies say how fast one is while few are in flight.
	crowdSample = 6
	// crowdEpoch is how many bodies are judged together.
	crowdEpoch = 16
	// crowdMemory is how long that holds.
	crowdMemory = 15 * time.Second
)

func newCrowd(most int, apply func(int)) *crowd {
	return &crowd{floor: max(1, most/crowdFloor), most: most, limit: most, apply: apply}
}

// arrived notes a body: n bytes in so much time, up to now, while so many reads were
// in flight. full is whether prefetch waits for its room.
func (c *crowd) arrived(n int64, took time.Duration, reads int, full bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.before > 0 && now.Sub(c.since) > crowdMemory {
		c.resume() // too few came to say anything
	}
	if n < crowdBody {
		return
	}
	switch {
	case reads <= c.floor, c.before > 0 && !now.Add(-took).Before(c.since):
		if c.quiet.add(n, took); c.quiet.n >= crowdSample {
			c.best, c.known = c.quiet.rate(), now
			c.quiet = bodies{}
			c.resume()
		}
	case c.before > 0: // it was begun beside many
	case full:
		if c.usual.add(n, took); c.usual.n >= min(c.limit, crowdEpoch) {
			c.judge(now)
			c.usual = bodies{}
		}
	default:
		c.usual = bodies{}
	}
}

// judge changes the limit by what the latest bodies were like.
func (c *crowd) judge(now time.Time) {
	if now.Sub(c.known) > crowdMemory {
		c.before, c.quiet = c.limit, bodies{}
		c.since = now.Add(c.usual.took / time.Duration(c.usual.n))
		c.set(c.floor)
		return
	}
	switch rate := c.usual.rate(); {
	case c.best == 0:
	case rate < c.best/2:
		c.set(max(c.floor, c.limit*3/4))
	case rate > c.best*.7:
		c.set(min(c.most, c.limit+c.limit/4+1))
	}
}

// resume ends the time in which few are let go.
func (c *crowd) resume() {
	if c.before > 0 {
		c.set(c.before)
		c.before = 0
	}
}

// now returns the limit.
func (c *crowd) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limit
}

func (c *crowd) set(n int) {
	if n != c.limit {
		c.limit = n
		c.apply(n)
	}
}
