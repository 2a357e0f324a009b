package fetch

import "time"

// search finds how many runs of one stream should be in flight. An object store
// gives each connection a speed of its own, so that a stream which waits may be
// served faster by more of them, or not: that is measured, not known. The number
// is doubled when the stream waited for most of an epoch, kept if the rate
// answered, taken back if it did not, and tried again later and later.
type search struct {
	level    int  // runs in flight wanted: 2 << level
	informed bool // by the rate of a connection

	before  float64       // rate at the level below, bytes/s; 0: not measured
	hold    int           // epochs until the next try
	backoff int           // what hold will be after a try in vain
	began   time.Time     // of the epoch; zero: none yet
	bytes   int64         // read in the epoch
	stalled time.Duration // of it, waited for the store
}

const (
	maxLevel = 4
	maxRuns  = 2 << maxLevel
	// An epoch is a window's bytes, and long enough for a clock to say something.
	minEpoch = 50 * time.Millisecond
	// answered is how much faster twice as many runs must be to be worth it.
	answered = 1.1
)

func (q *search) runs() int { return 2 << q.level }

// start sets the level by what one connection is known to give, in bytes/s: as
// many as are usually needed by one of so many streams, so that little is left to
// search. 0 is not known: several short ones then.
func (q *search) start(connection float64, streams int) {
	*q = search{backoff: 4, informed: connection > 0, level: 3}
	if connection > 0 {
		q.level = 0
	}
	for connection == 0 && q.level > 0 && streams > 1 {
		q.level, streams = q.level-1, streams/2
	}
	for connection > 0 && q.level < maxLevel && float64(q.runs())*connection < plenty/float64(max(streams, 1)) {
		q.level++
	}
}

// plenty is what consumers are assumed to take together, in bytes/s.
const plenty = 128 << 20

// read notes that bytes were read, after a wait of stalled. It is true when it is
// time to judge.
func (q *search) read(bytes int64, stalled time.Duration, window int64) bool {
	q.bytes += bytes
	q.stalled += stalled
	return q.began.IsZero() || q.bytes >= window
}

// judge ends an epoch. grow says whether more runs can be had.
func (q *search) judge(now time.Time, grow bool) {
	if q.began.IsZero() {
		q.began, q.bytes, q.stalled = now, 0, 0
		return
	}
	took := now.Sub(q.began)
	if took < minEpoch {
		return
	}
	rate := float64(q.bytes) / took.Seconds()
	waited := q.stalled*4 > took
	q.began, q.bytes, q.stalled = now, 0, 0
	switch {
	case q.before > 0: // the level was just raised
		if rate < q.before*answered {
			q.level--
			q.hold, q.backoff = q.backoff, min(2*q.backoff, 64)
		} else {
			q.backoff = 4
		}
		q.before = 0
	case q.hold > 0:
		q.hold--
	case waited && grow && q.level < maxLevel:
		q.before = rate
		q.level++
	case !waited && q.level > 0:
		// The reader is the slower one: give back, until it waits again.
		q.level--
		q.hold = 2
	}
}
