package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/bench/replay"
	"github.com/segtier/segtier/bench/weather"
)

// reported is a line of replay --json.
type reported struct {
	replay.Report

	Gets         int64 `json:"gets"`
	FetchedBytes int64 `json:"fetchedBytes"`
}

func TestTraceOfTheDemoReplays(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "demo.trace")
	work := filepath.Join(dir, "demo")
	b := newBench(t)
	b.done("demo", "--dir", work, "--record", trace)
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events, err := replay.Read(f)
	if err != nil || len(events) < 5 {
		t.Fatalf("%d events: %v", len(events), err)
	}
	b.store, b.meta = filepath.Join(work, "store"), filepath.Join(work, "metadata.db")
	for _, pace := range [][]string{nil, {"--speed", "max", "--verify"}, {"--rate", "1000"}, {"--speed", "50", "--duration", "200ms"}} {
		line := decode[reported](t, b.done(append([]string{"replay", trace, "--json"}, pace...)...))
		r := line[0]
		if len(line) != 1 || r.Errors != 0 || r.CutShort || r.Bytes == 0 || r.Gets == 0 || r.Latency.Count == 0 {
			t.Errorf("%v: %+v", pace, line)
		}
		if all := r.Fetches + r.EndOfTier; len(pace) < 4 && all != int64(len(events)) || len(pace) == 4 && all < int64(len(events)) {
			t.Errorf("%v: %d fetches and %d ends of %d events", pace, r.Fetches, r.EndOfTier, len(events))
		}
	}
	// For people, and from standard input's name.
	o := b.want(statusDone, "replay", trace)
	for _, want := range []string{"fetches by", "p99.9", "latency", "service", "start delay", "GETs"} {
		if !strings.Contains(o.out, want) {
			t.Errorf("%q is not in\n%s", want, o.out)
		}
	}
	if strings.Contains(o.msg, "\r") {
		t.Errorf("live figures without a terminal: %q", o.msg)
	}
	// On a tier that lacks the partitions.
	other := copied(t, source(sensors))
	other.want(statusNotInTier, "replay", trace)
}

func TestWorkloadsReplay(t *testing.T) {
	b := copied(t, source(payments), source(wide))
	for _, w := range replay.Workloads() {
		r := decode[reported](t, b.done("replay", "--workload", w.Name, "--events", "300", "--speed", "max", "--json"))[0]
		if r.Fetches == 0 || r.Errors != 0 || r.Fetches+r.EndOfTier > 300 {
			t.Errorf("%s: %+v", w.Name, r)
		}
	}
	newEmpty := newBench(t)
	newEmpty.want(statusFailed, "replay", "--workload", "catchup")
}

func TestReplayUsage(t *testing.T) {
	b := copied(t, source(sensors))
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.trace")
	if err := os.WriteFile(bad, []byte("{\"format\":\"segtier-trace\",\"version\":1}\n{\"atMicros\":0}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "name a trace file"},
		{bad, bad + ": line 2: no "},
		{source(sensors) + "/partition.metadata", "line 1: a trace begins with"},
		{filepath.Join(dir, "nothing"), "no such file"},
		{dir, "is a directory"},
		{bad + " --workload random", "name a trace file, or"},
		{"--workload rush-hour", `no workload "rush-hour"`},
		{"--workload random --speed fast", `--speed "fast"`},
		{"--workload random --speed 0", `--speed "0"`},
		{"--workload random --speed NaN", `--speed "NaN"`},
		{"--workload random --rate 0", "--rate 0"},
		{"--workload random --rate -5", "--rate -5"},
		{"--workload random --rate 5 --speed 2", "exclude each other"},
		{"--workload random --duration -1s", "--duration"},
		{"--workload random --duration soon", "invalid"},
		{"--workload random --events -1", "--events -1"},
		{"--workload random --memory 0", "--memory"},
		{"--workload random --pprof 6060", "--pprof"},
		{"--workload random --weather ftp://x", "--weather"},
		{"--workload random --weather http://x?rain=1", `"rain" is not known`},
		{"--workload random --weather http://x?segments=0", "segments"},
		{"--workload random --weather http://x?batch-bytes=3", "--weather"},
		{"--workload random --weather http://x --store file:y", "takes the place of"},
		{"a b", "at most 1 arg"},
	} {
		o := b.want(statusUsage, append([]string{"replay"}, strings.Fields(c.args)...)...)
		if !strings.Contains(o.msg, c.want) {
			t.Errorf("%s: %q is not in %s", c.args, c.want, o.msg)
		}
		if o.out != "" {
			t.Errorf("%s: stdout %s", c.args, o.out)
		}
	}
}

// weatherServer is one in this process.
func weatherServer(t *testing.T, o weather.Options) (*weather.Server, string) {
	t.Helper()
	s, err := weather.New(o)
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, at.HTTP
}

// Every profile can be read, and says what was done.
func TestProfilesOfAReplay(t *testing.T) {
	// Answers that take a while: whenever the goroutines are looked at, some wait.
	_, url := weatherServer(t, weather.Options{Schedule: weather.Schedule{FirstByte: weather.Latency{Median: weather.Duration(200 * time.Millisecond)}}})
	dir := filepath.Join(t.TempDir(), "profiles")
	b := newBench(t)
	out := b.done("replay", "--workload", "zipf", "--speed", "max", "--events", "1000", "--warmup", "100ms", "--memory", "32MiB", "--verify",
		"--weather", url+"?partitions=2&segments=2&segment-bytes=67108864&batch-bytes=4096", "--profile", dir, "--json")
	if r := decode[reported](t, out)[0]; r.Errors != 0 || r.Fetches == 0 {
		t.Errorf("%+v", r)
	}
	labels := regexp.MustCompile(`segtier: `)
	for _, name := range replay.Profiles() {
		file := filepath.Join(dir, name)
		for _, view := range []string{"-top", "-tags"} {
			cmd := exec.CommandContext(t.Context(), "go", "tool", "pprof", view, file)
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s %s: %v: %s", view, name, err, text)
			}
			// A thousand MiB take the CPU's time, however long that takes: hundreds of
			// samples of fill, dozens of verify. What a moment shows of the goroutines
			// is some activity or other.
			want := map[string][]string{"cpu.pprof": {"fill", "verify"}, "goroutine.pprof": {""}}[name]
			for _, what := range want {
				if view == "-tags" && (!labels.Match(text) || !bytes.Contains(text, []byte(what))) {
					t.Errorf("%s: nothing is labelled %s:\n%s", name, what, text)
				}
			}
		}
	}
	// Too short to be profiled: that is told.
	o := b.want(statusFailed, "replay", "--workload", "catchup", "--events", "5", "--speed", "max", "--warmup", "1h",
		"--weather", url+"?partitions=1&segments=1&segment-bytes=1048576", "--profile", dir)
	if !strings.Contains(o.msg, "shorter --warmup") {
		t.Error(o.msg)
	}
}

// Errors of fetches are told, and the status says so.
func TestReplayInBadWeather(t *testing.T) {
	_, url := weatherServer(t, weather.Options{Schedule: weather.Schedule{Faults: []weather.Fault{{Kind: weather.Refuse, Share: 1}}}})
	b := newBench(t)
	o := b.want(statusFailed, "replay", "--workload", "catchup", "--events", "3", "--speed", "max", "--json", "--weather", url+"?partitions=1&segments=1&segment-bytes=4194304")
	if r := decode[reported](t, o.out)[0]; r.Errors != 3 || !strings.Contains(o.msg, "3 of 3 fetches failed") || !strings.Contains(o.msg, "AccessDenied") {
		t.Errorf("%+v: %s", r, o.msg)
	}
}

// While it runs, profiles are served; an interrupt ends it with what was
// measured so far.
func TestReplayServesPprof(t *testing.T) {
	b := copied(t, source(sensors))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	got := make(chan error, 1)
	go func() {
		defer cancel()
		text := make([]byte, 200)
		n, err := out.Read(text)
		go func() { _, _ = io.Copy(io.Discard, out) }()
		url := strings.TrimSpace(strings.TrimPrefix(string(text[:n]), "profiles at "))
		if err == nil {
			err = getOK(ctx, url+"goroutine?debug=1")
		}
		got <- err
	}()
	var stdout bytes.Buffer
	status := run(ctx, []string{"replay", "--workload", "random", "--rate", "100", "--duration", "1h", "--pprof", "127.0.0.1:0"}, &stdout, in, b.getenv)
	in.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if status != statusFailed || !strings.Contains(stdout.String(), "latency") {
		t.Errorf("status %d: %s", status, stdout.String())
	}
}

func getOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // where it hangs
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Contains(b, []byte("goroutine profile"))) {
		err = errors.New(resp.Status)
	}
	return err
}
