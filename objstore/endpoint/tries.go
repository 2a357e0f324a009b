package endpoint

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/segtier/segtier/objstore"
)

const (
	// Faults pass quickly or not at all.
	faultBase, faultCap = 50 * time.Millisecond, 2 * time.Second
	// Throttling passes with time, and only if we wait.
	throttleBase, throttleCap = 100 * time.Millisecond, 5 * time.Second
	maxThrottled              = 16
	// maxRetryAfter bounds what a store may ask for: S3 says seconds; more is
	// asked again rather than believed.
	maxRetryAfter = 30 * time.Second
)

// tries counts the attempts of one call and says whether there is another. It
// has one count for faults and one for throttling: a busy store is no broken
// one.
type tries struct {
	max       int // attempts in a row that gain nothing
	faults    int // since the last gain
	throttled int // since the last gain
	corrupt   bool
	total     int
	gain      bool // since the last try that failed
}

// gained notes that the attempt got somewhere.
func (t *tries) gained() { t.faults, t.throttled, t.gain = 0, 0, true }

// free reports whether the next try asks for something else than the last one did.
func (t *tries) free() bool { return t.gain }

// last reports whether tries have failed, and the next one is final if it fails as they
// did.
func (t *tries) last() bool {
	return t.faults > 0 && t.faults == t.max-1 || t.throttled == maxThrottled-1
}

// next decides after a failed attempt: how long to wait before the next one, or
// that there is none.
func (t *tries) next(err error) (time.Duration, bool) {
	t.total++
	t.gain = false
	switch {
	case permanent(err):
		return 0, false
	case errors.Is(err, objstore.ErrThrottled):
		t.throttled++
		return jitter(throttleBase, throttleCap, t.throttled-1), t.max > 1 && t.throttled < maxThrottled
	case errors.Is(err, objstore.ErrCorrupt):
		// Once more, at once: it may have been damaged on the way.
		again := !t.corrupt
		t.corrupt = true
		return 0, again
	default:
		t.faults++
		return jitter(faultBase, faultCap, t.faults-1), t.faults < t.max
	}
}

// errShrunk is permanent: what the sums are of is gone.
var errShrunk = errors.New("the source ends early: it was cut while it was uploaded")

// permanent reports whether another attempt cannot help. An unknown error may
// pass; a context's error is not permanent here, since the caller's own
// context was looked at before: it is the store's idea of a timeout.
func permanent(err error) bool {
	for _, p := range [...]error{
		objstore.ErrNotExist, objstore.ErrConflict, objstore.ErrChanged, objstore.ErrRange,
		objstore.ErrReadOnly, objstore.ErrRefused, objstore.ErrFull, objstore.ErrClosed, errTooLong, errShrunk, errUnbound, errNoTurn,
	} {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}

// jitter returns a random time up to base·2^n, at most cap: full jitter, so
// that callers that failed together do not come back together.
func jitter(base, limit time.Duration, n int) time.Duration {
	d := limit
	if n < 16 {
		d = min(limit, base<<n)
	}
	return rand.N(d) + 1
}
