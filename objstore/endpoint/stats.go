package endpoint

import "sync/atomic"

// Stats counts what an Endpoint has done since it was made, and what it is
// doing.
type Stats struct {
	Gets, Stats, Uploads, Deletes, Lists int64 // attempts

	Bytes         int64 // of bodies of gets, good or not
	BytesUploaded int64 // of objects that were uploaded

	Retries   int64 // attempts after the first
	Resumes   int64 // gets that went on inside a range
	Throttles int64 // attempts that the store refused for being too many
	Stalls    int64 // attempts ended because the store sent nothing
	Corrupt   int64 // pieces and answers that were wrong, before any retry
	Unretried int64 // calls that failed because the retry budget was spent

	Hedges     int64 // gets made because another was slow; they are in Gets
	HedgeWins  int64 // of those, the ones whose answer was taken
	HedgeWaste int64 // bytes of answers that were not taken; most were not sent

	ReadLimit, WriteLimit int // requests at a time to directories that have throttled, as learned
	PrefetchLimit         int // requests at a time, as learned from how fast answers arrive

	RequestsInFlight int
	BytesInFlight    int64
	Waiting          int // for a slot
}

// BytesInFlight returns Options.BytesInFlight: what is longer goes alone.
func (e *Endpoint) BytesInFlight() int64 { return e.opts.BytesInFlight }

type counters struct {
	gets, stats, uploads, deletes, lists         atomic.Int64
	bytes, bytesUploaded                         atomic.Int64
	retries, resumes, throttles, stalls, corrupt atomic.Int64
	unretried, hedges, hedgeWins, hedgeWaste     atomic.Int64
}

// Stats returns the counts so far. They are not of one instant.
func (e *Endpoint) Stats() Stats {
	c := &e.stats
	s := Stats{
		Gets: c.gets.Load(), Stats: c.stats.Load(), Uploads: c.uploads.Load(), Deletes: c.deletes.Load(), Lists: c.lists.Load(),
		Bytes: c.bytes.Load(), BytesUploaded: c.bytesUploaded.Load(),
		Retries: c.retries.Load(), Resumes: c.resumes.Load(), Throttles: c.throttles.Load(),
		Stalls: c.stalls.Load(), Corrupt: c.corrupt.Load(), Unretried: c.unretried.Load(),
		Hedges: c.hedges.Load(), HedgeWins: c.hedgeWins.Load(), HedgeWaste: c.hedgeWaste.Load(),
	}
	s.ReadLimit, _ = e.readLimit.limit()
	s.WriteLimit, _ = e.writeLimit.limit()
	s.PrefetchLimit = e.crowd.now()
	taken, waiting := e.slots.inFlight()
	s.RequestsInFlight, s.BytesInFlight, s.Waiting = taken.requests, taken.bytes, waiting
	return s
}
