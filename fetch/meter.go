package fetch

import (
	"sync"
	"time"
)

// meter knows how the store answers: how long the first byte takes, and how fast
// one connection is. Both are moving averages over runs.
type meter struct {
	mu    sync.Mutex
	first float64 // seconds to the first byte; 0: not known
	rate  float64 // of a connection, bytes/s; 0: not known
	sure  bool    // rate comes from runs of several chunks
}

// usualFirst is what is taken for the time to the first byte until it is known.
const usualFirst = 20 * time.Millisecond

// nearStore is the time to the first byte below which a GET costs nothing worth
// saving.
const nearStore = 10 * time.Millisecond

// known returns the time to the first byte, in seconds, and the rate of one
// connection, in bytes/s; 0 is not known.
func (m *meter) known() (first, rate float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first, m.rate
}

// worth is how many bytes a connection moves in the time to the first byte: so
// much a GET costs, and so many bytes may be read in vain to save one.
func (m *meter) worth() int64 {
	first, rate := m.known()
	if first < nearStore.Seconds() {
		return 0
	}
	return int64(first * rate)
}

// note takes a run: its first chunk of n bytes was there after `first`, the rest
// of `rest` bytes after `all`.
func (m *meter) note(n, rest int64, first, all time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first = max(first, time.Microsecond) // a clock may stand still
	if body := max(all-first, time.Microsecond); rest > 0 {
		sample := float64(rest) / body.Seconds()
		if !m.sure {
			m.rate, m.sure = sample, true
		}
		m.rate += (sample - m.rate) / 8
	} else if !m.sure {
		// No more than a hint, since the first byte's time is in it: take what is
		// usual off.
		sample := float64(n) / (first - min(first/2, usualFirst)).Seconds()
		if m.rate == 0 {
			m.rate = sample
		}
		m.rate += (sample - m.rate) / 8
		return
	}
	if m.sure {
		sample := max(first.Seconds()-float64(n)/m.rate, 0)
		if m.first == 0 {
			m.first = sample
		}
		m.first += (sample - m.first) / 8
	}
}
