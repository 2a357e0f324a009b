package endpoint

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segtier/segtier/internal/pace"
	"github.com/segtier/segtier/objstore"
)

// Options of an Endpoint. The zero value is the default of every field.
type Options struct {
	// Requests is how many requests may be in flight; 0 is 64.
	Requests int
	// BytesInFlight is how many bytes those requests may carry together; 0 is
	// 256 MiB. A request for more than that runs alone.
	BytesInFlight int64
	// TenantRequests and TenantBytesInFlight bound what the Reads of one tenant
	// (ReadRequest.Tenant) may have in flight; 0 is no bound. The request that
	// reaches the bytes may go beyond them.
	TenantRequests      int
	TenantBytesInFlight int64
	// UploadBytesPerSecond bounds how fast all uploads together send the bytes of
	// parts, sent again ones included; 0 is no bound. A part waits its turn before
	// it takes a slot and then goes at the speed of the line, so over times shorter
	// than a part takes at this rate more may be seen. Reads are not bounded.
	UploadBytesPerSecond int64
	// Attempts is how many tries in a row may fail before the call does; 0 is 4,
	// 1 is no retries. A Read that has verified one more piece, and a List that
	// has yielded one more object, start counting anew. Throttled tries have a
	// count of their own, 16.
	Attempts int
	// RetryBudget is how many tries after the first one may be made at once, by
	// all calls together; 0 is 100. Ten calls that succeed, and each second, give
	// one more. Where none is left, a call fails with the first fault: a store that
	// is down is not asked several times for each thing. Throttled tries, and those
	// that go on behind a piece that was read, take nothing of it.
	RetryBudget int
	// ProgressTimeout is how long a store may send nothing before the request
	// is given up and tried again; 0 is 10 s. It applies to Read and Stat.
	ProgressTimeout time.Duration
	// UploadProgressTimeout is how long an upload that holds a slot may neither
	// read its source nor confirm a part before it is given up and tried again; 0
	// is 2 minutes. Sealing, for which no slot is held, may take longer.
	UploadProgressTimeout time.Duration
	// HedgeBytes is up to which size Reads of demand are hedged: if the store is
	// slower to answer than it was for 95 of 100, the same is asked once more, and
	// the first answer is taken. At most 4.5 % more GETs are made. 0 is none: it
	// helps where the slowness of one request says nothing about the next.
	HedgeBytes int64
	// Logger hears of retries (debug) and of damage (warn); nil is silent.
	Logger *slog.Logger
}

func (o Options) validate() (Options, error) {
	for name, v := range map[string]int64{
		"Requests": int64(o.Requests), "BytesInFlight": o.BytesInFlight,
		"TenantRequests": int64(o.TenantRequests), "TenantBytesInFlight": o.TenantBytesInFlight,
		"UploadBytesPerSecond": o.UploadBytesPerSecond, "Attempts": int64(o.Attempts), "RetryBudget": int64(o.RetryBudget),
		"ProgressTimeout": int64(o.ProgressTimeout), "UploadProgressTimeout": int64(o.UploadProgressTimeout), "HedgeBytes": o.HedgeBytes,
	} {
		if v < 0 {
			return o, fmt.Errorf("endpoint: option %s is negative: %d", name, v)
		}
	}
	setDefault(&o.Requests, 64)
	setDefault(&o.BytesInFlight, 256<<20)
	setDefault(&o.Attempts, 4)
	setDefault(&o.RetryBudget, 100)
	setDefault(&o.ProgressTimeout, 10*time.Second)
	setDefault(&o.UploadProgressTimeout, 2*time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Endpoint is a store with bounds, retries and verified reads. It is safe for
// concurrent use.
type Endpoint struct {
	store objstore.Store
	opts  Options
	slots *slots
	pace  *pace.Pacer // of uploads
	stats counters

	readLimit, writeLimit *limiter
	retries, hedges       tokens
	pulse                 pulse
	crowd                 *crowd

	uploads atomic.Uint64 // so far; numbers them as streams

	// born is the zero of pauseUntil, which is a duration since then: what the
	// store asked all of us to wait. answeredAt is when it last answered, likewise.
	born       time.Time
	pauseUntil atomic.Int64
	answeredAt atomic.Int64

	done chan struct{} // closed by Close
	idle chan struct{} // closed when Close was called and the last call has left

	mu     sync.Mutex
	closed bool               // guarded by mu
	calls  map[*call]struct{} // in progress; guarded by mu
}

// New returns an Endpoint for store, which it does not own.
func New(store objstore.Store, opts Options) (*Endpoint, error) {
	if store == nil {
		return nil, errors.New("endpoint: no store")
	}
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	e := &Endpoint{
		store: store,
		opts:  opts,
		slots: newSlots(bound{opts.Requests, opts.BytesInFlight}, bound{opts.TenantRequests, opts.TenantBytesInFlight}),
		pace:  pace.New(opts.UploadBytesPerSecond, pace.Clock{}),
		born:  time.Now(),
		done:  make(chan struct{}),
		idle:  make(chan struct{}),
		calls: make(map[*call]struct{}),

		retries: tokens{most: float64(opts.RetryBudget), have: float64(opts.RetryBudget), earn: 0.1, perSecond: 1, at: time.Now()},
		hedges:  tokens{most: hedgeBurst, earn: hedgeShare, at: time.Now()},
	}
	e.readLimit = newLimiter(opts.Requests, e.slots.limitReads)
	e.writeLimit = newLimiter(opts.Requests, e.slots.limitWrites)
	e.crowd = newCrowd(without(background, opts.Requests), e.slots.limitCrowd)
	return e, nil
}

// closeWait bounds how long Close waits for a store that ignores its context.
const closeWait = 5 * time.Second

// Close ends the calls in progress with objstore.ErrClosed and waits for them
// to return; later ones fail with ErrClosed. It does not close the store. If
// the store ignores that its context was cancelled, Close returns an error
// after 5 s, and the buffers of those calls are still in use.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.done)
		for c := range e.calls {
			c.cancel(objstore.ErrClosed)
		}
		if len(e.calls) == 0 {
			close(e.idle)
		}
	}
	e.mu.Unlock()

	if pace.Within(e.idle, closeWait) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Errorf("endpoint: closed, but %d calls have not returned from the store %v after they were cancelled",
		len(e.calls), closeWait)
}

// Stat returns what the store knows of an object. Like Delete it is upkeep: when slots
// are short it goes behind those who read and write.
func (e *Endpoint) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if err := objstore.ValidateKey(key); err != nil {
		return objstore.Info{}, &objstore.Error{Op: "stat", Key: key, Err: err}
	}
	var info objstore.Info
	err := e.do(ctx, forReads, objstore.Error{Op: "stat", Key: key}, func(c *call) (err error) {
		w, err := e.slots.acquire(c.ctx, want{line: looking, area: c.area, call: c})
		if err != nil {
			return err
		}
		defer func() { e.slots.ended(w, c.outcome(err)) }()
		c.learn(e.readLimit)
		e.stats.stats.Add(1)
		c.arm()
		info, err = e.store.Stat(c.ctx, key)
		c.disarm()
		return err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// Delete removes objects; those that are absent already are fine. On an error
// some may have been deleted.
func (e *Endpoint) Delete(ctx context.Context, keys ...string) error {
	at := objstore.Error{Op: "delete"}
	for i, key := range keys {
		if err := objstore.ValidateKey(key); err != nil {
			return &objstore.Error{Op: at.Op, Key: key, Err: err}
		}
		if i == 0 {
			at.Key = key
		}
	}
	return e.do(ctx, forWrites, at, func(c *call) error {
		w, err := e.slots.acquire(c.ctx, want{line: deleting, area: c.area})
		if err != nil {
			return err
		}
		defer e.slots.release(w)
		c.learn(e.writeLimit)
		e.stats.deletes.Add(1)
		return e.store.Delete(c.ctx, keys...)
	})
}

// List yields the objects whose keys begin with prefix and are greater than
// after, in ascending order. When listing fails on the way and another try may
// help, it goes on behind the last key it yielded. It takes no slot, which it
// would have to hold while its consumer works.
func (e *Endpoint) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		err := e.do(ctx, forListing, objstore.Error{Op: "list", Key: prefix}, func(c *call) error {
			e.stats.lists.Add(1)
			for info, err := range e.store.List(c.ctx, prefix, after) {
				if err != nil {
					return err
				}
				c.tries.gained()
				after = info.Key
				if !yield(info, nil) {
					return nil
				}
			}
			return nil
		})
		if err != nil {
			yield(objstore.Info{}, err)
		}
	}
}
