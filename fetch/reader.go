package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/cache"
	"github.com/segtier/segtier/internal/pace"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
)

// Options of a Reader. The zero value is the default of every field.
type Options struct {
	// TailBytes is how much memory the tails of segments (chunk tables,
	// transaction indexes, histories) may take that are kept for the next fetch, in bytes; 0 is
	// 32 MiB. It is beside the budget of the cache. A tail takes some 40 bytes for each chunk
	// of its segment: 40 KiB for 1 GiB in chunks of 1 MiB. What fetches in progress use is
	// beside it.
	TailBytes int64
	// RunBytes bounds one GET for data, in bytes, up to 1 GiB; 0 is 16 MiB, or a sixteenth
	// of the endpoint's BytesInFlight if that is less, but a MiB at least. It is what
	// backfills use. Readers in sequence get half of it, and what somebody waits for
	// a quarter, first. Longer demands are split and fetched in parallel: a
	// connection of an object store has a speed of its own, whatever is asked of it.
	RunBytes int64
	// VisibilityGrace is how long after a segment became FINISHED the store may not
	// show its object to everybody yet; 0 is a minute, by the clocks of writer and
	// reader. A missing object is unavailable until then, and damage afterwards.
	VisibilityGrace time.Duration
	// Labels has the Reader's goroutines carry the pprof label "segtier", with what
	// they do ("fill", "tail"). Callers label their own.
	Labels bool
	// Events are told to the host.
	Events Events
	// Logger hears of damage (warn) and of panics in a store (error); nil is silent.
	Logger *slog.Logger
}

// maxRunBytes is more than a line carries while a reader waits.
const maxRunBytes = 1 << 30

func (o Options) validate() (Options, error) {
	if o.TailBytes < 0 || o.RunBytes < 0 || o.VisibilityGrace < 0 {
		return o, fmt.Errorf("fetch: negative option: TailBytes %d, RunBytes %d, VisibilityGrace %v", o.TailBytes, o.RunBytes, o.VisibilityGrace)
	}
	if o.RunBytes > maxRunBytes {
		return o, fmt.Errorf("fetch: RunBytes is %d, at most %d is allowed", o.RunBytes, maxRunBytes)
	}
	if o.VisibilityGrace == 0 {
		o.VisibilityGrace = time.Minute
	}
	if o.TailBytes == 0 {
		o.TailBytes = 32 << 20
	}
	if o.RunBytes == 0 {
		o.RunBytes = 16 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Isolation is Kafka's isolation level of a consumer.
type Isolation uint8

// The isolation levels.
const (
	// ReadUncommitted returns batches alone.
	ReadUncommitted Isolation = iota
	// ReadCommitted also finds the aborted transactions among them.
	ReadCommitted
)

// Request asks for batches of one partition. Only the host knows lineage and
// log start.
type Request struct {
	Partition segment.Partition

	// Lineage is the partition's history of leader epochs. Nil takes the newest
	// history that metadata knows, which may be another than the host's after an
	// unclean election. It is not kept. It must be valid (Lineage.Validate), which is
	// not checked; one without an epoch that is not nil has nothing in the tier.
	Lineage segment.Lineage

	LogStart int64 // first offset that exists; below it is out of range
	Offset   int64 // where to read from

	// LocalLogStart is the first offset in the host's local log, 0 or less if that is not
	// known or nothing was deleted there yet. With it nobody waits for ever at
	// offsets that are nowhere any more: see "Holes" in the package comment.
	LocalLogStart int64

	// MaxBytes bounds the batches in sum, but never below one batch: one of any
	// size is returned even for 0 or less.
	MaxBytes  int
	Isolation Isolation

	// Hint says how the caller goes on, if it knows.
	Hint Hint

	// Tenant names for whom it is read; "" is nobody. Tenants have equal shares where
	// requests to the store are short, and bounds if endpoint.Options has them.
	Tenant string

	// Cursor is the one consumer who asks, if it was announced; optional. See
	// Reader.Announce. It must be of this Reader and Partition, which is not checked.
	Cursor *Cursor

	stream *stream // whose read this is, if it is a Stream's
}

// validate names what is not among the values that there are. What look finds of the rest is
// its to tell.
func (req *Request) validate() error {
	switch {
	case req.Hint > TimeQuery:
		return fmt.Errorf("fetch: Request.Hint is %d: there are Detect (0) to TimeQuery (%d)", req.Hint, TimeQuery)
	case req.Isolation > ReadCommitted:
		return fmt.Errorf("fetch: Request.Isolation is %d: there are ReadUncommitted (0) and ReadCommitted (%d)", req.Isolation, ReadCommitted)
	}
	return nil
}

// errNoResult: there is nowhere to put what is read.
var errNoResult = errors.New("fetch: the Result is nil")

// limit is MaxBytes, at least 1, and little enough to be added to a position of a log.
func (req *Request) limit() int64 { return min(max(int64(req.MaxBytes), 1), math.MaxInt64/4) }

// Reader reads tiered segments. All methods may be called concurrently; each
// Result belongs to one call at a time.
type Reader struct {
	meta  metadata.Store
	ep    *endpoint.Endpoint
	cache *cache.Cache
	o     Options
	tails tails
	stats counters

	noteEvery int // see noteEvery; tests have it smaller

	streams streams
	meter   meter
	waste   waste

	chunkSize atomic.Int64 // of the segment whose tail was read last; 0: none was

	closed atomic.Bool // set under mu

	mu   sync.Mutex
	jobs map[*job]struct{} // running; guarded by mu
	idle chan struct{}     // closed when closed and no job is left; guarded by mu
}

// New makes a Reader. It owns nothing that is given to it.
func New(meta metadata.Store, ep *endpoint.Endpoint, c *cache.Cache, o Options) (*Reader, error) {
	if meta == nil || ep == nil || c == nil {
		return nil, errors.New("fetch: New needs metadata, an endpoint and a cache")
	}
	runs := o.RunBytes
	o, err := o.validate()
	if err != nil {
		return nil, err
	}
	if runs == 0 {
		// So that enough of them are in flight: one that has all the bytes goes alone.
		o.RunBytes = max(min(o.RunBytes, ep.BytesInFlight()/16), 1<<20)
	}
	r := &Reader{
		meta: meta, ep: ep, cache: c, o: o,
		noteEvery: noteEvery,
		idle:      make(chan struct{}), jobs: make(map[*job]struct{}),
	}
	r.tails.init(o.TailBytes)
	return r, nil
}

// job is something that Close must end: a goroutine of the Reader, or a caller
// that waits.
type job struct {
	cancel context.CancelCauseFunc
	abort  func(error) // tells who waits for the job, without waiting for it; may be nil
}

// begin registers a job; false if the Reader is closed.
func (r *Reader) begin(j *job) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return false
	}
	r.jobs[j] = struct{}{}
	return true
}

// end takes a job out again.
func (r *Reader) end(j *job) {
	j.cancel(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, j)
	if r.closed.Load() && len(r.jobs) == 0 {
		close(r.idle)
	}
}

// spawn runs f in a goroutine that outlives the caller, whose context's values
// it keeps, and that ends with the Reader. What f panics with is given to abort,
// as is ErrClosed when the Reader is closed, now or later: abort may be called
// at any time, and more than once.
func (r *Reader) spawn(ctx context.Context, what activity, abort func(error), f func(context.Context)) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	j := &job{cancel: cancel, abort: abort}
	if !r.begin(j) {
		cancel(ErrClosed)
		abort(ErrClosed)
		return
	}
	go func() {
		defer r.end(j)
		defer func() {
			if v := recover(); v != nil {
				r.o.Logger.ErrorContext(ctx, "panic while reading from the store", "panic", v, "stack", string(debug.Stack()))
				abort(fmt.Errorf("panic while reading from the store: %v", v))
			}
		}()
		r.labelled(ctx, what, f)
	}()
}

// closeWait bounds how long Close waits for a store that ignores its context.
const closeWait = time.Second

// Close ends every call in progress with ErrClosed, cancels what they had
// started and waits for it. Results stay valid until they are released; the
// cache, the endpoint and metadata are their owners' to close. If the store
// ignores that its context was cancelled, Close returns an error after a second.
// It may be called more than once.
func (r *Reader) Close() error {
	r.mu.Lock()
	var jobs []*job
	if !r.closed.Swap(true) {
		for j := range r.jobs {
			jobs = append(jobs, j)
		}
		if len(jobs) == 0 {
			close(r.idle)
		}
	}
	r.mu.Unlock()
	for _, j := range jobs {
		if j.abort != nil {
			j.abort(ErrClosed)
		}
		j.cancel(ErrClosed)
	}
	r.streams.close()
	if !pace.Within(r.idle, closeWait) {
		return fmt.Errorf("fetch: closed, but reads have not returned from the store %v after they were cancelled", closeWait)
	}
	return nil
}

// counters is what Stats is made from.
type counters struct {
	fetches, bytes, tailGets, dataGets, dataBytes, cut atomic.Int64
	ahead, wasted, calledOff, gaps, shared             atomic.Int64
}

// Stats counts what a Reader has done since it was made.
type Stats struct {
	Fetches   int64 // calls of Fetch, and partitions of FetchMany, that returned data
	Bytes     int64 // in their Results
	TailGets  int64 // GETs for tails of segments
	DataGets  int64 // GETs for runs of chunks, without the endpoint's retries
	DataBytes int64 // asked for by those
	Cut       int64 // Results cut short, for memory or because of an error further on
	Ahead     int64 // of DataBytes, fetched before anybody asked for them
	Wasted    int64 // of those, bytes that the reader they were for left unread, or met too late
	CalledOff int64 // of those, bytes that were not fetched after all: their reader went elsewhere
	Shared    int64 // runs that came with another caller's GET: they waited beside it for a slot
	GapBytes  int64 // of DataBytes, fetched although they were here, to save a GET
	Streams   int64 // that are fetched ahead for
	Tails     int   // tails in memory
	TailBytes int64 // memory they take
}

// Stats returns the counters; each is of its own moment.
func (r *Reader) Stats() Stats {
	st := Stats{
		Fetches: r.stats.fetches.Load(), Bytes: r.stats.bytes.Load(),
		TailGets: r.stats.tailGets.Load(), DataGets: r.stats.dataGets.Load(), DataBytes: r.stats.dataBytes.Load(),
		Cut: r.stats.cut.Load(), Ahead: r.stats.ahead.Load(), Wasted: r.stats.wasted.Load(), CalledOff: r.stats.calledOff.Load(), Shared: r.stats.shared.Load(), GapBytes: r.stats.gaps.Load(),
		Streams: r.streams.n.Load(),
	}
	st.Tails, st.TailBytes = r.tails.stats()
	return st
}
