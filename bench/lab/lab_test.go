package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/checksum"
)

func TestMain(m *testing.M) {
	// The lab's own requests to the server keep connections.
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}), goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// The figures that have a reach are those of the golden list, in its order.
func TestTargetsAreTheGoldenList(t *testing.T) {
	text, err := os.ReadFile("testdata/ids.txt")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range targets() {
		ids = append(ids, m.id)
		if m.op == "" || m.what == "" || m.unit == "" {
			t.Errorf("%+v lacks something", m)
		}
	}
	if want := strings.Fields(string(text)); !slices.Equal(ids, want) {
		t.Errorf("have %q\nwant %q", ids, want)
	}
}

// Every metric has exactly one experiment.
func TestEveryMetricHasAnExperiment(t *testing.T) {
	n := map[string]int{"content_check": 1} // runs before all others
	for _, e := range experiments() {
		for _, id := range e.ids {
			n[id]++
		}
	}
	for _, m := range slices.Concat(targets(), extras()) {
		if n[m.id] != 1 {
			t.Errorf("%s is in %d experiments", m.id, n[m.id])
		}
		delete(n, m.id)
	}
	for id := range n {
		t.Errorf("%s is no metric", id)
	}
}

// fakeRunner says what a runner would, without doing anything.
type fakeRunner struct{ missing string }

func (f fakeRunner) do(_ context.Context, j job.Job) (job.Result, error) {
	r := job.Result{
		Work: j.Work, Subject: j.Subject, Wall: 1, User: 1, System: 1, Bytes: 64 << 20, AllocBytes: 1 << 20, PeakRSS: 1 << 20,
		Values: map[string]float64{
			"calls": 1e6, "gets": 1, "most": 2, "p50": .03, "p99": .2, "unique": 1 << 20, "reads": 10, "failed": 0, "hitShare": .5,
			"fastWall": 1, "one": 1 << 20, "bytesPerSegment": 150, "ratio": .5, "tailGets": 1, "dataGets": 9, "value": 1,
		},
		Missing: f.missing,
	}
	if j.Work == "upload" {
		for range max(j.Count, 1) {
			r.Keys = append(r.Keys, "key")
		}
	}
	return r, nil
}

// trusting believes everything.
type trusting struct{}

func (trusting) served(context.Context, string, checksum.Sum) error  { return nil }
func (trusting) written(context.Context, string, checksum.Sum) error { return nil }

// fakeServer counts a flip, so that the content check believes that it checked.
func fakeServer(t *testing.T) weather.Addresses {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(weather.Stats{
			Requests: map[string]int64{"GetObject": 8}, BytesOut: 64 << 20, BytesIn: 64 << 20, Faults: map[weather.Kind]int64{weather.Flip: 1},
		})
	})}
	go func() {
		defer close(done)
		_ = server.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	url := "http://" + ln.Addr().String()
	return weather.Addresses{HTTP: url, HTTPS: url, Admin: url}
}

func newLab(t *testing.T, out io.Writer) *lab {
	t.Helper()
	return &lab{
		ctx: t.Context(), work: t.TempDir(), quick: true, plan: plan{rounds: 1, short: true}, log: io.Discard,
		peers: map[string]doer{}, missing: map[string]string{}, upload: map[int64]subject.Segment{}, settings: map[string]settings{}, hits: map[string]float64{},
		print: jsonPrinter{json.NewEncoder(out)},
	}
}

// read parses lines and fails unless each has all the keys.
func read(t *testing.T, out *bytes.Buffer) map[string]map[string]any {
	t.Helper()
	lines := map[string]map[string]any{}
	for text := range strings.Lines(out.String()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for _, key := range []string{"metric", "value", "unit", "reach", "met", "base", "rounds"} {
			if _, ok := l[key]; !ok {
				t.Errorf("%q has no %s", text, key)
			}
		}
		id, _ := l["metric"].(string)
		if lines[id] != nil {
			t.Errorf("%s has two lines", id)
		}
		lines[id] = l
	}
	return lines
}

func everyPeer(l *lab, d doer) {
	for _, e := range []struct {
		work string
		who  []string
	}{
		{"fill", peersOf("fill")},
		{"upload", peersOf("upload")},
		{"fanout", []string{"week"}},
		{"latency", []string{"http-readfull"}},
		{"policy", []string{"ristretto", "otter"}},
	} {
		for _, who := range e.who {
			l.peers[who+"/"+e.work] = d
		}
	}
}

func TestQuickGivesALineForEveryMetric(t *testing.T) {
	var out bytes.Buffer
	l := newLab(t, &out)
	l.at, l.ours, l.check = fakeServer(t), fakeRunner{}, trusting{}
	everyPeer(l, fakeRunner{})
	if err := l.all(experiments()); err != nil || l.failed {
		t.Fatal(err, l.failed)
	}
	lines := read(t, &out)
	for _, m := range slices.Concat(targets(), extras()) {
		switch line := lines[m.id]; {
		case line == nil:
			t.Errorf("%s has no line", m.id)
		case line["value"] == nil:
			t.Errorf("%s has no value: %v", m.id, line["note"])
		case line["met"] != nil:
			t.Errorf("%s: a quick run meets nothing, but met is %v", m.id, line["met"])
		}
	}
}

// What does not exist has a line, too, and is not met; so have the peers that do
// not build.
func TestMissingSubjectsHaveLines(t *testing.T) {
	var out bytes.Buffer
	l := newLab(t, &out)
	l.at, l.ours, l.check = fakeServer(t), fakeRunner{}, trusting{}
	l.missing[peersModule], l.missing[cachingModule] = "does not build", "does not build"
	l.only = func(id string) bool { return strings.HasPrefix(id, "peer_") || id == "gets_fanout" }
	if err := l.all(experiments()); err != nil {
		t.Fatal(err)
	}
	lines := read(t, &out)
	for _, work := range []string{"upload", "fill"} {
		for _, p := range peersOf(work) {
			line := lines["peer_"+work+"_"+p]
			if line == nil || line["value"] != nil || line["met"] != false || !strings.Contains(line["note"].(string), "does not build") {
				t.Errorf("%s: %v", p, line)
			}
		}
	}
	if line := lines["gets_fanout"]; line == nil || line["value"] == nil {
		t.Errorf("ours is not counted without peers: %v", line)
	}

	out.Reset()
	l = newLab(t, &out)
	l.at, l.check = fakeServer(t), trusting{}
	l.ours = workOf(subject.Works())
	l.only = func(id string) bool { return id == "restart_first_hit" || id == "wrong_bytes_after_kill" }
	if err := l.all(experiments()[slices.IndexFunc(experiments(), func(e experiment) bool { return e.ids[0] == "restart_first_hit" }):]); err != nil {
		t.Fatal(err)
	}
	for id, line := range read(t, &out) {
		if line["value"] != nil || line["met"] != false || line["note"] == "" {
			t.Errorf("%s: %v", id, line)
		}
	}
}

// workOf does jobs in this process.
type workOf map[string]job.Work

func (w workOf) do(ctx context.Context, j job.Job) (job.Result, error) {
	return job.Do(ctx, j, w), nil
}

// realLab has a real server and a real sink, in this process.
func realLab(t *testing.T, out io.Writer) *lab {
	t.Helper()
	l := newLab(t, out)
	server, err := weather.New(weather.Options{HTTPS: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if l.at, err = server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- job.ServeSink(ctx, ln, w) }()
	s := newSink(ln.Addr().String(), r, func() error {
		cancel()
		return errors.Join(<-served, w.Close())
	})
	l.sink, l.check = s.addr, both{s, l.at.HTTP + "/" + bucket}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := errors.Join(s.stop(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestContentCheckPassesAVerifyingReader(t *testing.T) {
	var out bytes.Buffer
	l := realLab(t, &out)
	l.ours = workOf(subject.Works())
	if err := contentCheck(l); err != nil || l.failed {
		t.Fatal(err)
	}
	if line := read(t, &out)["content_check"]; line["value"] != 0.0 {
		t.Fatalf("%v", line)
	}
}

// A read path that takes what comes is caught, and every row is void.
func TestContentCheckCatchesAReaderWithoutVerification(t *testing.T) {
	var out bytes.Buffer
	l := realLab(t, &out)
	works := subject.Works()
	works["segtier/fill"] = func(ctx context.Context, j job.Job, m *job.Meter) (map[string]float64, error) {
		var spec weather.Spec
		if err := json.Unmarshal(j.World, &spec); err != nil {
			return nil, err
		}
		w, err := makeWorld(spec)
		if err != nil {
			return nil, err
		}
		conn, err := job.Dial(ctx, j.Sink, j.Label)
		if err != nil {
			return nil, err
		}
		m.Start()
		for _, o := range w.objects {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Server+"/"+j.Bucket+"/"+o.Key, nil)
			if err != nil {
				return nil, err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return nil, err
			}
			if _, err := io.CopyN(conn, resp.Body, o.LogSize); err != nil {
				return nil, err
			}
			_ = resp.Body.Close()
		}
		m.Stop()
		return nil, conn.Finish()
	}
	l.ours = workOf(works)
	l.only = func(id string) bool { return id == "gets_sequential" || id == "content_check" }
	if err := l.all(experiments()); err != nil {
		t.Fatal(err)
	}
	lines := read(t, &out)
	for _, id := range []string{"content_check", "gets_sequential"} {
		if line := lines[id]; line == nil || line["value"] != nil || line["met"] != false || !strings.Contains(line["note"].(string), "void") {
			t.Errorf("%s: %v", id, line)
		}
	}
	if !l.failed {
		t.Error("the lab has not failed")
	}
}

// An object that was written wrongly makes its row void.
func TestWrittenBytesAreReadBack(t *testing.T) {
	l := realLab(t, io.Discard)
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, l.at.HTTP+"/"+bucket+"/a", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(put)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	good := checksum.Sum{Len: 5, CRC32C: checksum.CRC32C([]byte("hello"))}
	res := job.Result{Keys: []string{"a"}}
	if err := l.checkObjects(res, good, 1); err != nil {
		t.Fatal(err)
	}
	var v void
	if err := l.checkObjects(res, checksum.Sum{Len: 5, CRC32C: 1}, 1); !errors.As(err, &v) {
		t.Errorf("another sum: %v", err)
	}
	if err := l.checkObjects(res, good, 2); !errors.As(err, &v) {
		t.Errorf("an object too few: %v", err)
	}
	if err := l.checkObjects(job.Result{Keys: []string{"b"}}, good, 1); !errors.As(err, &v) {
		t.Errorf("no object: %v", err)
	}
}

// An upload sends what it uploads: the store has no such object of its own accord. One that
// finds it there is void.
func TestUploadsSend(t *testing.T) {
	l := realLab(t, io.Discard)
	l.ours = workOf(subject.Works())
	seg, err := l.segment(12 * mib)
	if err != nil {
		t.Fatal(err)
	}
	res, err := l.send(l.at.HTTP, segtier, seg, settings{8 * mib, 2}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.admin(http.MethodPost, "reset", "", nil); err != nil { // of counts alone
		t.Fatal(err)
	}
	var v void
	if err := l.written(res, seg, 1); !errors.As(err, &v) {
		t.Errorf("an upload that sent nothing: %v", err)
	}
	// It has the limits of its job, which refuse less than nothing.
	for _, limit := range []string{"attempts", "uploadProgressTimeout", "stallTimeout"} {
		how := job.Job{PartSize: 8 * mib, Param: map[string]float64{limit: -1}}
		if _, err := l.put(l.at.HTTP, segtier, seg, how, 1); err == nil {
			t.Errorf("%s: -1 is taken", limit)
		}
	}
}

func TestFigureLines(t *testing.T) {
	m, err := metricOf("upload_cpu_http")
	if err != nil {
		t.Fatal(err)
	}
	f := figure{metric: m, value: .5, rounds: 5}
	if l := f.line(); *l.Met != true || *l.Value != .5 || *l.Reach != "<= 0.6" || *l.Base != baseManager {
		t.Errorf("%+v", l)
	}
	f.value = math.NaN()
	if l := f.line(); l.Value != nil || *l.Met {
		t.Errorf("%+v", l)
	}
	f.value, f.quick = .9, true
	if l := f.line(); l.Met != nil {
		t.Errorf("%+v", l)
	}
	if _, err := metricOf("nonsense"); err == nil {
		t.Error("nonsense is a metric")
	}
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"--rounds", "0"}, {"--only", "("}, {"--only", "no_such_figure"}, {"--json", "--markdown"}, {"extra"}, {"--nonsense"}} {
		var stderr bytes.Buffer
		if _, _, err := parse(args, &stderr); err == nil || stderr.Len() == 0 {
			t.Errorf("%q: error %v, said %q", args, err, stderr.String())
		}
	}
	o, _, err := parse([]string{"--only", "^upload", "--rounds", "7", "--quick"}, io.Discard)
	if err != nil || o.rounds != 7 || !o.quick || !o.only.MatchString("upload_wall") || o.only.MatchString("peer_upload") {
		t.Errorf("%+v %v", o, err)
	}
}
