package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/segtier/segtier/bench/policy"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const header = `{"format":"segtier-trace","version":1}` + "\n"

func TestTracesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Event {
			return Event{
				At: time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "at")) * time.Microsecond, Consumer: rapid.StringMatching(`[a-z"\\é ]{1,20}`).Draw(t, "consumer"),
				Topic: rapid.StringMatching(`[a-z][a-z0-9._-]{0,20}`).Draw(t, "topic"), TopicID: segment.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
				Partition: rapid.Int32Range(0, 1<<31-1).Draw(t, "partition"), Offset: rapid.Int64Min(0).Draw(t, "offset"), Follows: rapid.Bool().Draw(t, "follows"),
				MaxBytes: rapid.IntRange(0, 1<<31-1).Draw(t, "max"), Committed: rapid.Bool().Draw(t, "committed"),
			}
		}), 1, 20).Draw(t, "events")
		var b bytes.Buffer
		if err := Write(&b, events); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&b)
		if err != nil {
			t.Fatal(err)
		}
		sortEvents(events)
		if !reflect.DeepEqual(got, events) {
			t.Fatalf("%+v, written were %+v", got, events)
		}
	})
}

func TestBadTraces(t *testing.T) {
	const good = `{"atMicros":1,"consumer":"c","partition":"t/0","offset":5,"maxBytes":9}`
	if events, err := Read(strings.NewReader(header + "\n# note\n" + good + "\n" + strings.Replace(good, ":1,", ":0,", 1))); err != nil || len(events) != 2 || events[0].At != 0 {
		t.Fatalf("%v: %v", events, err)
	}
	for text, want := range map[string]string{
		"":                                       "empty",
		header:                                   "no events",
		good:                                     "line 1: a trace begins with",
		`{"format":"segtier-trace","version":2}`: "line 1: version 2",
		"\x00\x01binary":                         "line 1: a trace begins with",
		header + good + "\n{":                    "line 3",
		header + "[]":                            "line 2",
		header + good + good:                     "something follows",
		header + strings.Replace(good, "offset", "ofset", 1):            `unknown field "ofset"`,
		header + strings.Replace(good, `"offset":5,`, "", 1):            "no offset",
		header + strings.Replace(good, `"offset":5`, `"offset":-5`, 1):  "offset -5",
		header + strings.Replace(good, ":1,", ":-1,", 1):                "atMicros -1",
		header + strings.Replace(good, ":1,", ":1e30,", 1):              "line 2",
		header + strings.Replace(good, ":9", ":3000000000", 1):          "maxBytes 3000000000",
		header + strings.Replace(good, `"c"`, `""`, 1):                  "consumer of 0 bytes",
		header + strings.Replace(good, "t/0", "t", 1):                   "is not topic/number",
		header + strings.Replace(good, "t/0", "t/-1", 1):                "is not topic/number",
		header + strings.Replace(good, "t/0", "../0", 1):                "topic name",
		header + strings.Replace(good, "}", `,"isolation":"dirty"}`, 1): "isolation",
		header + strings.Replace(good, "}", `,"topicId":"x"}`, 1):       "line 2",
		header + good + "\n" + strings.Repeat("x", maxLine+1):           "line 3: longer than",
	} {
		_, err := Read(strings.NewReader(text))
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
	failed := errors.New("disk")
	if _, err := Read(io.MultiReader(strings.NewReader(header), failing{failed})); !errors.Is(err, failed) || errors.Is(err, ErrTrace) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzRead(f *testing.F) {
	f.Add([]byte(header + `{"atMicros":1,"consumer":"c","partition":"t/0","offset":5,"maxBytes":9}`))
	f.Add([]byte(header + "#\n\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		events, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := Write(&again, events); err != nil {
			t.Fatal(err)
		}
		if back, err := Read(&again); err != nil || !reflect.DeepEqual(back, events) {
			t.Fatalf("%v: %v, %v", events, back, err)
		}
	})
}

func TestRecorder(t *testing.T) {
	var b bytes.Buffer
	r := NewRecorder(&b, func(ctx context.Context) string { name, _ := ctx.Value(t).(string); return name })
	p := segment.Partition{Topic: "t", TopicID: segment.UUID{1}, Number: 3}
	base := time.Now()
	fetched := func(ctx context.Context, at time.Duration, offset, next int64) {
		r.Fetched(ctx, fetch.Fetched{Request: fetch.Request{Partition: p, Offset: offset, MaxBytes: 10}, Began: base.Add(at), NextOffset: next})
	}
	fetched(t.Context(), 0, 100, 110)                                              // c1
	fetched(t.Context(), 5*time.Millisecond, 110, 120)                             // c1 goes on
	fetched(t.Context(), 3*time.Millisecond, 110, 120)                             // another, who began earlier
	fetched(context.WithValue(t.Context(), t, "mine"), 9*time.Millisecond, 120, 0) // named
	fetched(t.Context(), 7*time.Millisecond, 120, 0)                               // one of the two, which gets nothing
	fetched(t.Context(), -time.Millisecond, 9, 0)                                  // had begun before the first that ended
	for range 2 {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fetched(t.Context(), 0, 1, 2) // after the end
	events, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%v %s %d", e.At, e.Consumer, e.Offset))
		if e.Topic != "t" || e.TopicID != p.TopicID || e.Partition != 3 || e.MaxBytes != 10 {
			t.Errorf("%+v", e)
		}
	}
	want := []string{"0s c1 100", "0s c3 9", "3ms c2 110", "5ms c1 110", "7ms c2 120", "9ms mine 120"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	broken := NewRecorder(failing{errors.New("disk")}, nil)
	broken.Fetched(t.Context(), fetch.Fetched{Request: fetch.Request{Partition: p}, Began: base})
	if err := broken.Close(); err == nil {
		t.Error("a trace that is not written is no error")
	}
}

// A host is not held up by a slow disk; what is missing is told.
func TestRecorderDrops(t *testing.T) {
	out, in := io.Pipe()
	r := NewRecorder(in, nil)
	for range 2 * queueLength {
		r.Fetched(t.Context(), fetch.Fetched{Request: fetch.Request{Partition: segment.Partition{Topic: "t"}}, Began: time.Now()})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, out)
	}()
	err := r.Close()
	in.Close()
	<-done
	if err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("%v", err)
	}
}

// target answers as its function says.
type target func(ctx context.Context, req fetch.Request) error

func (f target) Fetch(ctx context.Context, req fetch.Request, _ *fetch.Result) error {
	return f(ctx, req)
}

func request(e Event) (fetch.Request, error) {
	return fetch.Request{Partition: segment.Partition{Topic: e.Topic, Number: e.Partition}, Offset: e.Offset, MaxBytes: e.MaxBytes}, nil
}

func steady(n int, every time.Duration, names ...string) (events []Event) {
	for i := range n {
		events = append(events, Event{At: time.Duration(i) * every, Consumer: names[i%len(names)], Topic: "t", Offset: int64(i)})
	}
	return events
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// One fetch that hangs is not one bad latency among a thousand good ones: those
// that had to wait for it are late, too.
func TestNoCoordinatedOmission(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stalls := target(func(ctx context.Context, req fetch.Request) error {
			if req.Offset == 500 {
				return sleep(ctx, time.Second)
			}
			return sleep(ctx, time.Millisecond)
		})
		r, err := Run(t.Context(), stalls, steady(1000, 10*time.Millisecond, "c"), Options{Request: request})
		if err != nil {
			t.Fatal(err)
		}
		near := func(what string, got, want float64) {
			t.Helper()
			if got < want*.99 || got > want*1.01 {
				t.Errorf("%s is %.0f µs, want %.0f", what, got, want)
			}
		}
		// 1 s of stall at a fetch each 10 ms: some 110 of 1,000 are late.
		near("the longest latency", r.Latency.Max, 1e6)
		near("the 99th percentile", r.Latency.P99, 910e3+1e3)
		near("the median", r.Latency.P50, 1e3)
		near("the 99th percentile of service", r.Service.P99, 1e3)
		near("the longest service", r.Service.Max, 1e6)
		near("the longest start delay", r.StartDelay.Max, 990e3)
		if r.Fetches != 1000 || r.Errors != 0 || r.Latency.Count != 1000 || r.CutShort || r.Consumers != 1 {
			t.Errorf("%+v", r)
		}
	})
}

func TestPaces(t *testing.T) {
	events := steady(101, 10*time.Millisecond, "a", "b")
	quick := target(func(ctx context.Context, _ fetch.Request) error { return sleep(ctx, time.Millisecond) })
	for name, c := range map[string]struct {
		o       Options
		want    time.Duration
		fetches int64
	}{
		"original":          {Options{}, 1001 * time.Millisecond, 101},
		"ten times as fast": {Options{Speed: 10}, 101 * time.Millisecond, 101},
		"at a rate":         {Options{Rate: 50}, 2001 * time.Millisecond, 101},
		"at full speed":     {Options{Full: true}, 51 * time.Millisecond, 101},
		"cut":               {Options{Duration: 95 * time.Millisecond}, 91 * time.Millisecond, 10},
		"again and again":   {Options{Speed: 10, Duration: time.Second}, 1 * time.Second, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				began := time.Now()
				c.o.Request = request
				r, err := Run(t.Context(), quick, events, c.o)
				if err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d < c.want-time.Millisecond || d > c.want+2*time.Millisecond {
					t.Errorf("took %v, want %v", d, c.want)
				}
				if r.Fetches < c.fetches-2 || r.Fetches > c.fetches+2 {
					t.Errorf("%d fetches, want %d", r.Fetches, c.fetches)
				}
			})
		})
	}
}

func TestWarmupIsNotMeasured(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		slowAtFirst := target(func(ctx context.Context, _ fetch.Request) error {
			if time.Since(began) < 300*time.Millisecond {
				return sleep(ctx, 5*time.Millisecond)
			}
			return nil
		})
		var told time.Duration
		var lives []Live
		r, err := Run(t.Context(), slowAtFirst, steady(100, 10*time.Millisecond, "a"), Options{
			Request: request, Warmup: 500 * time.Millisecond, Steady: func() { told = time.Since(began) },
			Interval: 100 * time.Millisecond, Live: func(l Live) { lives = append(lives, l) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Latency.Max > 100 || r.Latency.Count != 50 || r.Fetches != 100 || told != 500*time.Millisecond {
			t.Errorf("%+v, steady after %v", r, told)
		}
		var n int64
		for _, l := range lives {
			n += l.Fetches
		}
		if n != 100 || !lives[len(lives)-1].Last || lives[0].Last || len(lives) < 9 || lives[0].Latency.P50 < 4900 || lives[len(lives)-2].Latency.P50 > 100 {
			t.Errorf("%d fetches in %d lives: %+v", n, len(lives), lives)
		}
	})
}

func TestOutcomes(t *testing.T) {
	failed := errors.New("down")
	answers := target(func(_ context.Context, req fetch.Request) error {
		switch req.Offset % 4 {
		case 1:
			return &fetch.EndOfTierError{}
		case 2:
			return fmt.Errorf("wrapped: %w", failed)
		case 3:
			return &fetch.OutOfRangeError{}
		}
		return nil
	})
	r, err := Run(t.Context(), answers, steady(100, 0, "a", "b", "c"), Options{Request: request, Full: true})
	if err != nil || r.Fetches != 25 || r.EndOfTier != 50 || r.Errors != 25 || !errors.Is(r.FirstError, failed) {
		t.Errorf("%+v: %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hangs := target(func(ctx context.Context, _ fetch.Request) error { cancel(); <-ctx.Done(); return ctx.Err() })
	if r, err := Run(ctx, hangs, steady(5, time.Hour, "a"), Options{Request: request}); err != nil || !r.CutShort || r.Errors != 0 {
		t.Errorf("%+v: %v", r, err)
	}
	unknown := errors.New("no such partition")
	for name, o := range map[string]Options{
		"no request": {}, "refused": {Request: func(Event) (fetch.Request, error) { return fetch.Request{}, unknown }},
		"two paces": {Request: request, Rate: 1, Full: true}, "negative": {Request: request, Speed: -1},
	} {
		if _, err := Run(t.Context(), answers, steady(1, 0, "a"), o); err == nil || name == "refused" && !errors.Is(err, unknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Run(t.Context(), answers, nil, Options{Request: request}); err == nil {
		t.Error("a run of nothing")
	}
}

func world(n int, size int64) (w World) {
	for i := range n {
		w = append(w, Extent{Partition: segment.Partition{Topic: "t", Number: int32(i)}, First: 1000, End: 1000 + size/100, Bytes: size})
	}
	return w
}

func TestWorkloads(t *testing.T) {
	for _, w := range Workloads() {
		for _, n := range []int{1, 40} {
			for _, size := range []int64{1, 3000, 64 << 20} {
				x := world(n, size)
				x[0].End++ // one offset at least
				for i := range x {
					x[i].End = max(x[i].End, x[i].First+1)
				}
				events, err := w.Events(x, 700, 7)
				if err != nil {
					t.Fatal(err)
				}
				again, _ := w.Events(x, 700, 7)
				if len(events) > 700 || !reflect.DeepEqual(events, again) {
					t.Errorf("%s: %d events, or others with the same seed", w.Name, len(events))
				}
				for i, e := range events {
					ext := x[e.Partition]
					if e.Offset < ext.First || e.Offset >= ext.End || e.MaxBytes < 1 || e.Consumer == "" || i > 0 && e.At < events[i-1].At {
						t.Fatalf("%s: event %d: %+v of %+v", w.Name, i, e, ext)
					}
				}
			}
		}
		if _, err := w.Events(nil, 10, 1); err == nil {
			t.Errorf("%s of nothing", w.Name)
		}
	}
	if _, err := FindWorkload("nothing"); err == nil || !strings.Contains(err.Error(), "catchup") {
		t.Errorf("%v", err)
	}
}

// In a world that is large enough, a cache trace is replayed access by access.
func TestCacheTracesAreExact(t *testing.T) {
	const chunk = 1 << 20
	for _, name := range policy.Names() {
		w, err := FindWorkload("trace-" + name)
		if err != nil {
			t.Fatal(err)
		}
		x := make(World, 133)
		for i := range x {
			x[i] = Extent{Partition: segment.Partition{Topic: "t", Number: int32(i)}, End: 2_000_000, Bytes: 2_000_000 * chunk}
		}
		const n = 60_000
		events, err := w.Events(x, n, 3)
		if err != nil {
			t.Fatal(err)
		}
		trace, err := policy.Make(name, policy.Options{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for a := range trace.Accesses {
			if i == len(events) {
				break
			}
			e := events[i]
			if e.Partition != a.Chunk.Partition || e.Offset != int64(a.Chunk.Position) || e.MaxBytes != chunk || a.Cursor >= 0 && e.Consumer != fmt.Sprintf("cursor-%d", a.Cursor) {
				t.Fatalf("%s: event %d is %+v, the access %+v", name, i, e, a)
			}
			i++
		}
		if i != len(events) || i < 50_000 {
			t.Errorf("%s: %d of %d events", name, i, len(events))
		}
	}
}

func TestProfiler(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	p, err := NewProfiler(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Look(), p.Stop()); err != nil { // not started: nothing
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	hold, held := make(chan struct{}), make(chan struct{})
	go pprof.Do(t.Context(), pprof.Labels("segtier", "fetch"), func(context.Context) {
		mu.Lock()
		close(held)
		<-hold
		mu.Unlock()
	})
	<-held
	if err := p.Look(); err != nil {
		t.Fatal(err)
	}
	close(hold)
	mu.Lock()
	mu.Unlock() //nolint:staticcheck // only waited for
	if err := errors.Join(p.Stop(), p.Stop()); err != nil {
		t.Fatal(err)
	}
	for _, name := range Profiles() {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil || fi.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewProfiler(filepath.Join(dir, "cpu.pprof")); err == nil {
		t.Error("a file is taken for a directory")
	}
}
