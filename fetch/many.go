package fetch

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ManyRequest asks for batches of several partitions at once, as one Fetch request
// of Kafka's does.
type ManyRequest struct {
	// Requests are served in this order: where MaxBytes or memory are short, the
	// first ones are served. So who asks again begins with those that got nothing.
	Requests []Request

	// MaxBytes bounds the batches of all partitions in sum; 0 or less is no bound but
	// each one's own. As in Kafka both bounds hold for whole batches, and only the
	// first partition that has data gets one batch of any size, in excess of both.
	MaxBytes int
}

// Answer is what FetchMany has for one partition: batches, or why not.
type Answer struct {
	Result Result
	Err    error // nil: there is at least one batch in Result; otherwise that is empty
}

// manyAtOnce is how many partitions of one FetchMany are worked on at the same
// time, once their reads have been asked for. Each takes a goroutine that waits.
const manyAtOnce = 32

// Reasons for ErrNotReady, beside that ctx has ended.
var (
	errLater = errors.New("it is not in memory yet")
	errLimit = errors.New("MaxBytes leaves no room for its next batch")
)

// notReady is ErrNotReady with a reason.
type notReady struct{ why error }

func (e *notReady) Error() string        { return ErrNotReady.Error() + ": " + e.why.Error() }
func (e *notReady) Is(target error) bool { return target == ErrNotReady }
func (e *notReady) Unwrap() error        { return e.why }

// FetchMany reads several partitions. It returns when it has an answer for each,
// but no later than ctx ends: then with what is ready. A partition that is not
// has an error that is ErrNotReady, for which a broker answers with no records and
// no error: what was begun for it goes on and is found by the next call. One
// partition's error is no other's.
//
// What is in memory is taken at once, and the rest asked for, all of it before
// anything is waited for. Memory is waited for only as long as the call holds none,
// so that two calls never wait for each other: where it is short, the last
// partitions are not ready.
//
// The answers are those given, used again and made as many as there are requests:
// give it back what it returned, and nil at first. They are the caller's, each to
// be released.
func (r *Reader) FetchMany(ctx context.Context, req ManyRequest, answers []Answer) []Answer {
	began := time.Now()
	m := many{r: r, req: req, answers: resize(answers, len(req.Requests))}
	m.left = m.most()
	m.fetch(ctx)
	if told := r.o.Events.Fetched; told != nil {
		took := time.Since(began)
		for i := range m.answers {
			a := &m.answers[i]
			told(ctx, Fetched{
				Request: req.Requests[i], Began: began, Took: took,
				Size: a.Result.Size(), NextOffset: a.Result.NextOffset(), Err: a.Err,
			})
		}
	}
	return m.answers
}

// resize makes answers n empty ones.
func resize(answers []Answer, n int) []Answer {
	for i := range answers {
		answers[i].Result.Release() // all of them, before any memory is asked for
		answers[i].Err = nil
	}
	if n > cap(answers) {
		answers = append(answers, make([]Answer, n-len(answers))...)
	}
	return answers[:n]
}

// many is one FetchMany. Partitions are named by their place in the request.
type many struct {
	r       *Reader
	req     ManyRequest
	answers []Answer
	left    int64     // of MaxBytes
	some    bool      // a partition has data, or is waited for: no other may exceed its bound
	waiting []pending // are being read from the store
	missed  []int     // MaxBytes or memory did not suffice for them
}

// pending is a partition that is waited for, and the terms it was asked for on.
type pending struct {
	i     int
	limit int64
	terms terms
}

func (m *many) fetch(ctx context.Context) {
	now, cancel := context.WithCancelCause(ctx)
	cancel(errLater) // what would have to be waited for is begun, and fails with this
	todo := make([]int, len(m.answers))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		m.sweep(now, todo)
		m.wait(ctx)
		m.count()
		if todo = m.missed; m.some || ctx.Err() != nil || len(todo) == 0 {
			break
		}
		// Nobody has anything, so nothing is held, and what was set apart for others
		// is there: the first one may wait, for memory too.
		i := todo[0]
		m.note(i, m.one(ctx, pending{i: i, limit: m.left}))
		if todo = todo[1:]; m.some {
			break
		}
	}
	// What was set apart for those that brought less, or are late, is for those that
	// found nothing left: if they need not be waited for.
	m.sweep(now, todo)
	for i := range m.answers {
		if a := &m.answers[i]; a.Err != nil && unready(ctx, a.Err) {
			a.Err = &notReady{a.Err}
		}
	}
}

// unready reports whether a failed fetch says nothing about its partition.
func unready(ctx context.Context, err error) bool {
	return errors.Is(err, errLater) || errors.Is(err, errLimit) || errors.Is(err, errShort) ||
		ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// sweep takes what partitions have in memory, in order, has the rest read, and
// sets room apart for it.
func (m *many) sweep(now context.Context, todo []int) {
	m.missed, m.waiting = nil, m.waiting[:0]
	for _, i := range todo {
		if m.left <= 0 && m.some {
			m.note(i, m.refuse(i))
			continue
		}
		p := pending{i: i, limit: m.left, terms: terms{hard: m.some, impatient: true}}
		err := m.one(now, p)
		if m.note(i, err); errors.Is(err, errLater) {
			m.waiting = append(m.waiting, p)
			m.left, m.some = m.left-min(p.limit, max(int64(m.req.Requests[i].MaxBytes), 1)), true
		}
	}
}

// refuse says why a partition has no room left: unless it has none of its own fault.
func (m *many) refuse(i int) error {
	req := &m.req.Requests[i]
	rd := reading{r: m.r, p: req.Partition, lineage: req.Lineage, logStart: req.LogStart, local: req.LocalLogStart}
	err := req.validate()
	if err == nil {
		err = rd.look()
	}
	if err == nil {
		err = rd.locate(req.Offset, new(place))
	}
	if err != nil {
		return err
	}
	return errLimit
}

// wait waits for those that are being read, each for itself.
func (m *many) wait(ctx context.Context) {
	errs := make([]error, len(m.waiting))
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(len(m.waiting), manyAtOnce) {
		running.Go(func() {
			for k := next.Add(1) - 1; k < int64(len(errs)); k = next.Add(1) - 1 {
				errs[k] = m.one(ctx, m.waiting[k])
			}
		})
	}
	running.Wait()
	for k, p := range m.waiting {
		m.note(p.i, errs[k])
	}
	slices.Sort(m.missed)
}

// count finds out what is left of MaxBytes and whether anybody has data.
func (m *many) count() {
	m.left, m.some = m.most(), false
	for i := range m.answers {
		if n := m.answers[i].Result.Size(); n > 0 {
			m.left, m.some = m.left-int64(n), true
		}
	}
}

// most is MaxBytes.
func (m *many) most() int64 {
	if m.req.MaxBytes > 0 {
		return int64(m.req.MaxBytes)
	}
	return math.MaxInt64
}

// note writes down how the fetch of partition i ended.
func (m *many) note(i int, err error) {
	m.answers[i].Err = err
	switch {
	case err == nil:
		m.left, m.some = m.left-int64(m.answers[i].Result.Size()), true
	case errors.Is(err, errLimit), errors.Is(err, errShort):
		m.missed = append(m.missed, i)
	}
}

// one fetches one partition.
func (m *many) one(ctx context.Context, p pending) error {
	req := m.req.Requests[p.i]
	req.MaxBytes = int(min(int64(req.MaxBytes), p.limit))
	return m.r.fetch(ctx, &req, &m.answers[p.i].Result, p.terms)
}
