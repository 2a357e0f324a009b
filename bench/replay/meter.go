package replay

import (
	"errors"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/segtier/segtier/fetch"
)

// Quantiles of a distribution of times, in microseconds.
type Quantiles struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"meanMicros"`
	P50   float64 `json:"p50Micros"`
	P90   float64 `json:"p90Micros"`
	P99   float64 `json:"p99Micros"`
	P999  float64 `json:"p999Micros"`
	Max   float64 `json:"maxMicros"`
}

// Report is what a Run has measured. Counts are of the whole run, times of what
// began after the warm-up.
type Report struct {
	Consumers int     `json:"consumers"`
	Seconds   float64 `json:"seconds"`
	Fetches   int64   `json:"fetches"`   // that returned data
	Bytes     int64   `json:"sizeBytes"` // of those
	EndOfTier int64   `json:"endOfTier"` // answers that the offset is not tiered: an end, out of range, skipped
	Errors    int64   `json:"errors"`    // all others
	CutShort  bool    `json:"cutShort"`  // the run was interrupted

	Latency    Quantiles `json:"latency"`    // from when a fetch was due
	Service    Quantiles `json:"service"`    // from when it began
	StartDelay Quantiles `json:"startDelay"` // from when it was due to when it began

	FirstError error `json:"-"`
}

// Live is what has happened since the last Live.
type Live struct {
	Elapsed time.Duration // since the beginning
	Over    time.Duration // what this is about
	Fetches int64
	Bytes   int64
	Errors  int64 // since the beginning
	Latency Quantiles
	Last    bool // the run is over
}

const (
	// Values are recorded in nanoseconds, from 1 to an hour, with three digits.
	histogramMax    = int64(time.Hour)
	histogramDigits = 3
	meterShards     = 8
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, histogramMax, histogramDigits)
}

// meter collects samples. Consumers are spread over its shards.
type meter struct {
	warmup time.Duration
	began  time.Time
	shards [meterShards]shard

	mu     sync.Mutex
	first  error     // guarded by mu
	lastAt time.Time // of live; guarded by mu
}

type shard struct {
	mu                              sync.Mutex
	latency, service, delay, recent *hdrhistogram.Histogram // guarded by mu
	fetches, bytes, ends, errors    int64                   // guarded by mu
	recentFetches, recentBytes      int64                   // guarded by mu
}

// sample is one fetch.
type sample struct {
	due, began, ended time.Time
	bytes             int
	err               error
}

func newMeter(warmup time.Duration, consumers int) *meter {
	m := &meter{warmup: warmup}
	for i := range min(meterShards, consumers) {
		s := &m.shards[i]
		s.latency, s.service, s.delay, s.recent = newHistogram(), newHistogram(), newHistogram(), newHistogram()
	}
	return m
}

// add takes a sample of a consumer.
func (m *meter) add(consumer int, v sample) {
	record := func(h *hdrhistogram.Histogram, d time.Duration) {
		_ = h.RecordValue(min(max(int64(d), 1), histogramMax)) // in range
	}
	s := &m.shards[consumer%meterShards]
	s.mu.Lock()
	var failed bool
	switch {
	case v.err == nil:
		s.fetches, s.recentFetches = s.fetches+1, s.recentFetches+1
		s.bytes, s.recentBytes = s.bytes+int64(v.bytes), s.recentBytes+int64(v.bytes)
	case errors.Is(v.err, fetch.ErrEndOfTier), errors.Is(v.err, fetch.ErrOutOfRange), errors.Is(v.err, fetch.ErrSkipped):
		s.ends++
	default:
		s.errors++
		failed = true
	}
	record(s.recent, v.ended.Sub(v.due))
	if v.due.Sub(m.began) >= m.warmup {
		record(s.latency, v.ended.Sub(v.due))
		record(s.service, v.ended.Sub(v.began))
		record(s.delay, v.began.Sub(v.due))
	}
	s.mu.Unlock()
	if failed {
		m.mu.Lock()
		if m.first == nil {
			m.first = v.err
		}
		m.mu.Unlock()
	}
}

// live returns what has happened since it was asked the last time.
func (m *meter) live() Live {
	now := time.Now()
	m.mu.Lock()
	last := m.lastAt
	m.lastAt = now
	m.mu.Unlock()
	if last.IsZero() {
		last = m.began
	}
	l := Live{Elapsed: now.Sub(m.began), Over: now.Sub(last)}
	sum := newHistogram()
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		if s.recent != nil {
			l.Fetches += s.recentFetches
			l.Bytes += s.recentBytes
			l.Errors += s.errors
			sum.Merge(s.recent)
			s.recent.Reset()
			s.recentFetches, s.recentBytes = 0, 0
		}
		s.mu.Unlock()
	}
	l.Latency = quantiles(sum)
	return l
}

// report sums up. Nobody adds any more.
func (m *meter) report(took time.Duration, consumers int, cut bool) *Report {
	r := &Report{Consumers: consumers, Seconds: took.Seconds(), CutShort: cut}
	latency, service, delay := newHistogram(), newHistogram(), newHistogram()
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		if s.latency != nil {
			r.Fetches, r.Bytes, r.EndOfTier, r.Errors = r.Fetches+s.fetches, r.Bytes+s.bytes, r.EndOfTier+s.ends, r.Errors+s.errors
			latency.Merge(s.latency)
			service.Merge(s.service)
			delay.Merge(s.delay)
		}
		s.mu.Unlock()
	}
	m.mu.Lock()
	r.FirstError = m.first
	m.mu.Unlock()
	r.Latency, r.Service, r.StartDelay = quantiles(latency), quantiles(service), quantiles(delay)
	return r
}

func quantiles(h *hdrhistogram.Histogram) Quantiles {
	micros := func(ns float64) float64 { return ns / 1e3 }
	at := func(q float64) float64 { return micros(float64(h.ValueAtQuantile(q))) }
	if h.TotalCount() == 0 {
		return Quantiles{}
	}
	return Quantiles{
		Count: h.TotalCount(), Mean: micros(h.Mean()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: micros(float64(h.Max())),
	}
}
