package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
)

// Names in the store.
const (
	bucket  = "lab"
	segtier = "segtier" // the subject that is ours

	peersModule   = "bench/peers"
	cachingModule = "bench/peers/caching"
)

// doer does a job; a runner in a process of its own, or in a test what it likes.
type doer interface {
	do(ctx context.Context, j job.Job) (job.Result, error)
}

// lab runs experiments and collects figures.
type lab struct {
	ctx   context.Context
	work  string // directory for files
	quick bool
	plan  plan

	at      weather.Addresses
	caFile  string
	sink    string // address
	check   checker
	watch   loadWatch
	ours    doer
	peers   map[string]doer   // by subject/work
	missing map[string]string // by module of peers: why it has no runner
	log     io.Writer         // what is being done

	print  printer
	only   func(id string) bool
	failed bool // a row was void

	label    int
	upload   map[int64]subject.Segment
	settings map[string]settings // best ones of a sweep, by work/subject
	hits     map[string]float64  // hit ratios, by trace/policy
}

// settings of a client.
type settings struct {
	PartSize    int64
	Concurrency int
}

// void is a row whose bytes are wrong.
type void struct{ why string }

// Error implements error.
func (v void) Error() string { return "void: " + v.why }

// wants are sums that must arrive at the sink, by what is appended to the label.
type wants map[string]checksum.Sum

// run has a job done in the weather that is, and checks what was served.
func (l *lab) run(j job.Job, want wants) (job.Result, error) {
	l.label++
	j.Label = fmt.Sprintf("%s-%s-%d", j.Work, j.Subject, l.label)
	if j.Server == "" {
		j.Server = l.at.HTTP
	}
	j.CAFile, j.Bucket, j.Client = l.caFile, bucket, j.Subject
	j.Sink = l.sink
	if why := l.lacks(j.Subject, j.Work); why != "" {
		return job.Result{}, fmt.Errorf("%w: %s", job.ErrMissing, why)
	}
	r := l.peers[j.Subject+"/"+j.Work]
	if r == nil {
		r = l.ours
	}
	ctx, cancel := context.WithTimeout(l.ctx, 10*time.Minute)
	defer cancel()
	_, _ = fmt.Fprintf(l.log, "  %s %s %s\n", j.Subject, j.Work, j.Name)
	res, err := r.do(ctx, j)
	switch {
	case err != nil:
		return res, err
	case res.Missing != "":
		return res, fmt.Errorf("%w: %s", job.ErrMissing, res.Missing)
	case res.Error != "":
		return res, fmt.Errorf("%s/%s: %s", j.Subject, j.Work, res.Error)
	}
	for suffix, sum := range want {
		if err := l.check.served(ctx, j.Label+suffix, sum); err != nil {
			return res, err
		}
	}
	return res, nil
}

// moduleOf returns which module of peers has a subject for a work, "" for ours.
func moduleOf(who, work string) string {
	switch {
	case who == segtier, who == "bare", who == "ristretto" && work != "policy":
		return ""
	case who == "caching-bucket":
		return cachingModule
	default:
		return peersModule
	}
}

// lacks returns why there is nobody to do a work, "" if there is.
func (l *lab) lacks(who, work string) string {
	module := moduleOf(who, work)
	if why := l.missing[module]; module != "" && why != "" {
		return why
	}
	if module != "" && l.peers[who+"/"+work] == nil {
		return module + " does not do it"
	}
	return ""
}

// admin asks the server.
func (l *lab) admin(method, path, body string, into any) error {
	ctx, cancel := context.WithTimeout(l.ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, l.at.Admin+"/_weather/"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("weather server: %s %s: %s: %s", method, path, resp.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// weather changes the weather and forgets what was counted and written.
func (l *lab) weather(s weather.Schedule) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return errors.Join(l.admin(http.MethodPost, "schedule", string(text), nil), l.reset())
}

func (l *lab) reset() error { return l.admin(http.MethodPost, "reset?objects=true", "", nil) }

// stats returns what the server counted since the last reset.
func (l *lab) stats() (s weather.Stats, err error) {
	err = l.admin(http.MethodGet, "stats", "", &s)
	return s, err
}

// counted runs a job between a reset and a look at what the server counted.
func (l *lab) counted(j job.Job, want wants) (job.Result, weather.Stats, error) {
	if err := l.reset(); err != nil {
		return job.Result{}, weather.Stats{}, err
	}
	res, err := l.run(j, want)
	if err != nil {
		return res, weather.Stats{}, err
	}
	s, err := l.stats()
	return res, s, err
}

// checker says whether bytes are what they should be. An error that is void says
// that they are not.
type checker interface {
	served(ctx context.Context, label string, want checksum.Sum) error
	written(ctx context.Context, key string, want checksum.Sum) error
}

// both is the checker of a lab: the sink knows what was served, the store what
// was written.
type both struct {
	*sink
	store string // URL of the bucket
}

// written reads an object back.
func (b both) written(ctx context.Context, key string, want checksum.Sum) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.store+"/"+key, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return void{fmt.Sprintf("reading %s back: %s", key, resp.Status)}
	}
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.Copy(h, resp.Body)
	if err != nil {
		return err
	}
	if n != want.Len || h.Sum32() != want.CRC32C {
		return void{fmt.Sprintf("%s has %d bytes that sum to %08x, not %d that sum to %08x", key, n, h.Sum32(), want.Len, want.CRC32C)}
	}
	return nil
}

// checkObjects reads back what a job wrote.
func (l *lab) checkObjects(res job.Result, want checksum.Sum, n int) error {
	if len(res.Keys) != n {
		return void{fmt.Sprintf("%s/%s wrote %d objects, not %d", res.Subject, res.Work, len(res.Keys), n)}
	}
	for _, key := range res.Keys {
		if err := l.check.written(l.ctx, key, want); err != nil {
			return err
		}
	}
	return nil
}

// segment returns a segment of size bytes of log, on disk.
func (l *lab) segment(size int64) (subject.Segment, error) {
	if s, ok := l.upload[size]; ok {
		return s, nil
	}
	dir := filepath.Join(l.work, fmt.Sprintf("segment-%d", size))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return subject.Segment{}, err
	}
	s, err := subject.MakeSegment(l.ctx, dir, size)
	if err == nil {
		l.upload[size] = s
	}
	return s, err
}

// world is a generated tier and what peers must know of it.
type world struct {
	tier    *weather.Tier
	spec    json.RawMessage
	objects []job.Object // of partition 0, unless everyPartition added the others
	log     checksum.Sum // of partition 0
}

func makeWorld(s weather.Spec) (w world, err error) {
	if w.tier, err = s.Tier(); err != nil {
		return w, err
	}
	if w.spec, err = json.Marshal(w.tier.Spec()); err != nil {
		return w, err
	}
	return w, w.describe(0)
}

// describe adds the objects of partition p.
func (w *world) describe(p int) error {
	for i := range w.tier.Spec().Segments {
		o, err := w.tier.Object(p, i)
		if err != nil {
			return err
		}
		tail, err := o.Tail()
		if err != nil {
			return err
		}
		log := tail.Section(object.Log)
		described := job.Object{Key: o.Key(), Size: o.Size(), LogSize: log.Len, CRC32C: log.CRC32C, Chunk: tail.Table.ChunkSize}
		for _, c := range tail.Table.Chunks {
			described.Sums = append(described.Sums, c.CRC32C)
		}
		w.objects = append(w.objects, described)
		if p == 0 {
			w.log = w.log.Append(checksum.Sum{Len: log.Len, CRC32C: log.CRC32C})
		}
	}
	return nil
}

// everyPartition adds the objects of all partitions but the first, which are
// there.
func (w *world) everyPartition() error {
	for p := 1; p < w.tier.Spec().Partitions; p++ {
		if err := w.describe(p); err != nil {
			return err
		}
	}
	return nil
}

// times returns the sum of n logs after each other.
func (w world) times(n int) checksum.Sum {
	var all checksum.Sum
	for range n {
		all = all.Append(w.log)
	}
	return all
}

// scale returns full, or short in a quick run.
func scale[T any](l *lab, full, short T) T {
	if l.quick {
		return short
	}
	return full
}

// compare runs A B B A.
func (l *lab) compare(a, b func() (job.Result, error)) ([]round[job.Result], error) {
	return abba(l.plan, l.watch.watch, a, b)
}

// repeat runs one side as often as there are rounds.
func (l *lab) repeat(a func() (job.Result, error)) ([]round[job.Result], error) {
	return abba(l.plan, l.watch.watch, a, func() (job.Result, error) { return job.Result{}, nil })
}

// show prints a figure from a value for each round.
func (l *lab) show(id string, values []float64, disturbed int, note string) error {
	m, err := metricOf(id)
	if err != nil {
		return err
	}
	f := figure{metric: m, value: median(values), rounds: len(values), disturbed: disturbed, spread: spread(values), note: note, quick: l.quick}
	if l.only != nil && !l.only(id) {
		return nil
	}
	return l.print.figure(f)
}

// showRounds prints a figure of rounds.
func (l *lab) showRounds(id string, rounds []round[job.Result], value func(round[job.Result]) float64, note string) error {
	values, disturbed := make([]float64, len(rounds)), 0
	for i, r := range rounds {
		values[i] = value(r)
		if r.disturbed {
			disturbed++
		}
	}
	return l.show(id, values, disturbed, note)
}

// none prints that there is no value, and why.
func (l *lab) none(id, why string) error {
	m, err := metricOf(id)
	if err != nil {
		return err
	}
	if l.only != nil && !l.only(id) {
		return nil
	}
	return l.print.figure(figure{metric: m, value: math.NaN(), note: why})
}

// tracking remembers which figures were shown, so that none is left out.
type tracking struct {
	printer
	mu    sync.Mutex
	shown map[string]bool // guarded by mu
}

func (t *tracking) figure(f figure) error {
	t.mu.Lock()
	t.shown[f.id] = true
	t.mu.Unlock()
	return t.printer.figure(f)
}

func (t *tracking) has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown[id]
}
