package endpoint

import (
	"math"
	"sync"
	"time"
)

// limiter learns how many requests at a time a store can bear, of those to areas that it
// has throttled: half as many when
// it says that there are too many, one more when as many as there may be have
// succeeded. Answers to requests that were made before the latest halving say
// nothing about it: one crowd is one lesson.
type limiter struct {
	floor, most int // it stays between them
	apply       func(n int)

	mu      sync.Mutex
	now     int    // guarded by mu
	gained  int    // successes since the last change; guarded by mu
	lessons uint64 // halvings so far; guarded by mu
}

// floorShare is the part of the slots below which no limit falls: a store that
// refuses whatever we do gains nothing from fewer, and each that is refused waits.
const floorShare = 8

func newLimiter(most int, apply func(int)) *limiter {
	return &limiter{floor: max(1, most/floorShare), most: most, now: most, apply: apply}
}

// begin returns what has been learned by now; it is given back with the outcome.
func (l *limiter) begin() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lessons
}

// throttled learns from a refusal.
func (l *limiter) throttled(lessons uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lessons != l.lessons || l.now == l.floor {
		return
	}
	l.lessons++
	l.gained = 0
	l.now = max(l.floor, l.now/2)
	l.apply(l.now)
}

// succeeded learns from an answer.
func (l *limiter) succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == l.most {
		return
	}
	if l.gained++; l.gained >= l.now {
		l.gained = 0
		l.now++
		l.apply(l.now)
	}
}

// limit returns the limit now; cut is whether it is below what there may be.
func (l *limiter) limit() (n int, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.now < l.most
}

// tokens are a budget that work earns and repetition spends.
type tokens struct {
	most, earn float64 // at most so many; so many for each earned
	perSecond  float64 // and for each second

	mu   sync.Mutex
	have float64   // guarded by mu
	at   time.Time // when have was right; guarded by mu
}

// share is what one of those who spend a budget has taken of it, fading.
type share struct {
	spent float64   // guarded by the budget's mu
	at    time.Time // when spent was right; likewise
}

// sharesFade is after how long a half of what was spent counts no more.
const sharesFade = 10 * time.Second

// earned notes a piece of work.
func (t *tokens) earned() {
	t.mu.Lock()
	t.have = min(t.most, t.have+t.earn)
	t.mu.Unlock()
}

// spend takes a token, if there is one. Who has a share leaves the last half of them to those
// who have taken less than an eighth of all.
func (t *tokens) spend(of *share) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.have = min(t.most, t.have+now.Sub(t.at).Seconds()*t.perSecond)
	t.at = now
	if of != nil {
		of.spent *= math.Exp2(-now.Sub(of.at).Seconds() / sharesFade.Seconds())
		of.at = now
		if t.have-1 < t.most/2 && of.spent+1 > max(t.most/8, 1) {
			return false
		}
	}
	if t.have < 1 {
		return false
	}
	if t.have--; of != nil {
		of.spent++
	}
	return true
}
