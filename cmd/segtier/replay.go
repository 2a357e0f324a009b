package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/bench/replay"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/segment"
)

func (a *app) replayCommand() *cobra.Command {
	o := replayOptions{memory: 256 << 20}
	var b strings.Builder
	for _, w := range replay.Workloads() {
		if !strings.HasPrefix(w.Name, "trace-") {
			fmt.Fprintf(&b, "  %-12s %s\n", w.Name, w.About)
		}
	}
	cmd := &cobra.Command{
		Use:   "replay [TRACE]",
		Short: "Drive consumer traffic, recorded or made up, and measure it",
		Long: `replay fetches what the consumers in a trace file fetched, in the same order and
at the same times, and tells how long that took. TRACE "-" is standard input; the
format is in docs/trace-format.md, and a host records one with an event hook
('segtier demo --record FILE' does). In place of a trace, --workload makes up
traffic for what is in the tier:

` + b.String() + `  trace-A …    the cache traces A, A2, B to G, and A-jitter to D-jitter

A workload is a list of fetches, --events at most; many read a small tier many times
over. Without --duration a trace or a workload is gone through once; with it,
it begins again when it has ended.

Fetches are due at their times (--speed 10: ten times as fast), or at a fixed
rate (--rate); with --speed max each consumer goes on as soon as it can. Latency
counts from when a fetch was due, service time from when it began. Nothing is
measured, and nothing profiled, before --warmup is over.

--profile writes CPU, heap, allocs, block, mutex and goroutine profiles; CPU and
goroutines carry a label of what they do: segtier=fetch, fill, tail, verify, serve.

--weather reads the virtual segments of a weather server (see bench/weather) in
place of a store; its URL may say how many: ?partitions=40&segments=16&segment-bytes=268435456&batch-bytes=16384.`,
		Example: `  segtier replay consumers.trace --speed 10
  segtier replay --workload random --rate 2000 --duration 30s --pprof 127.0.0.1:6060
  segtier replay --workload fanout --speed max --profile profiles --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.speedGiven, o.rateGiven = cmd.Flags().Changed("speed"), cmd.Flags().Changed("rate")
			o.warmupGiven = cmd.Flags().Changed("warmup")
			if len(args) == 1 {
				o.trace = args[0]
			}
			return a.replay(cmd.Context(), &o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.workload, "workload", "", "make up traffic of this `NAME`")
	flags.StringVar(&o.speed, "speed", "1", "`times` as fast as recorded, or max")
	flags.Float64Var(&o.rate, "rate", 0, "`fetches` a second, whatever their times")
	flags.DurationVar(&o.duration, "duration", 0, "end after so long; what is shorter begins again")
	flags.DurationVar(&o.warmup, "warmup", 0, "measure nothing before (default a tenth, at most 2s)")
	flags.IntVar(&o.events, "events", 0, "greatest number of `fetches` of a workload (0: as many as it has)")
	flags.Uint64Var(&o.seed, "seed", 1, "of a workload")
	flags.Var(&o.memory, "memory", "greatest number of bytes of segment data in memory")
	flags.BoolVar(&o.verify, "verify", false, "check the CRC of every batch that is returned")
	flags.StringVar(&o.pprof, "pprof", "", "serve net/http/pprof on `ADDRESS` while it runs")
	flags.StringVar(&o.profile, "profile", "", "write profiles of the steady state to `DIR`")
	flags.StringVar(&o.weather, "weather", "", "`URL` of a weather server to read from")
	var names []string
	for _, w := range replay.Workloads() {
		names = append(names, w.Name)
	}
	a.completeFlag(cmd, "workload", names...)
	return cmd
}

type replayOptions struct {
	trace, workload, speed, pprof, profile, weather string

	rate             float64
	duration, warmup time.Duration
	events           int
	seed             uint64
	memory           byteSize
	verify           bool

	speedGiven, rateGiven, warmupGiven bool
}

// run returns the options of the run.
func (o *replayOptions) run() (replay.Options, error) {
	var r replay.Options
	fail := func(format string, args ...any) (replay.Options, error) { return r, usagef(format, args...) }
	switch {
	case (o.trace == "") == (o.workload == ""):
		return fail("name a trace file, or a workload with --workload")
	case o.speedGiven && o.rateGiven:
		return fail("--speed and --rate exclude each other")
	case o.rateGiven && !(o.rate > 0 && o.rate <= 1e7):
		return fail("--rate %v: write a number of fetches a second above 0", o.rate)
	case o.duration < 0 || o.warmup < 0:
		return fail("--duration and --warmup: write a time, for example 30s")
	case o.events < 0:
		return fail("--events %d: write 1 or more", o.events)
	case o.events > 0 && o.workload == "":
		return fail("--events is for a workload")
	case o.memory <= 0:
		return fail("--memory: write 1 or more")
	}
	r.Rate, r.Duration, r.Warmup, r.Verify = o.rate, o.duration, o.warmup, o.verify
	switch {
	case o.rateGiven:
	case o.speed == "max":
		r.Full = true
	default:
		speed, err := strconv.ParseFloat(o.speed, 64)
		if err != nil || !(speed > 0 && speed <= 1e6) {
			return fail("--speed %q: write a number above 0, or max", o.speed)
		}
		r.Speed = speed
	}
	if o.pprof != "" {
		if _, _, err := net.SplitHostPort(o.pprof); err != nil {
			return fail("--pprof %q: write host:port, for example 127.0.0.1:6060", o.pprof)
		}
	}
	return r, nil
}

func (a *app) replay(ctx context.Context, o *replayOptions) (err error) {
	run, err := o.run()
	if err != nil {
		return err
	}
	var events []replay.Event
	var work replay.Workload
	if o.workload != "" {
		if work, err = replay.FindWorkload(o.workload); err != nil {
			return usagef("--workload: %w", err)
		}
	} else if events, err = readTrace(o.trace); err != nil {
		return err
	}
	a.tune = func(t *segtier.Options) {
		t.MemoryBytes, t.ProfileLabels = int64(o.memory), o.profile != "" || o.pprof != ""
	}
	tier, err := a.openReplayed(ctx, o.weather)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	if o.workload != "" {
		if events, err = tier.workload(work, o); err != nil {
			return err
		}
	}
	run.Request = tier.requests()
	if !o.warmupGiven {
		run.Warmup = warmup(events, &run)
	}
	run.Labels = o.profile != "" || o.pprof != ""
	if run.Labels {
		run.Serve = io.Discard
	}
	stop, err := a.servePprof(ctx, o.pprof)
	if err != nil {
		return err
	}
	defer stop()
	return a.drive(ctx, tier, events, run, o.profile)
}

// readTrace reads a trace file. One that cannot be read, or is no trace, is wrong
// usage.
func readTrace(name string) ([]replay.Event, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usagef("trace: %w", err)
		}
		defer f.Close()
		in = f
	}
	events, err := replay.Read(bufio.NewReaderSize(in, 1<<20))
	if err != nil {
		return nil, usagef("trace %s: %w", name, err)
	}
	return events, nil
}

// warmup is what is not measured if nothing else is said: a tenth of what is
// known to come, at most two seconds.
func warmup(events []replay.Event, run *replay.Options) time.Duration {
	length := run.Duration
	if length == 0 {
		switch {
		case run.Full:
			return 0
		case run.Rate > 0:
			length = time.Duration(float64(len(events)) / run.Rate * float64(time.Second))
		default:
			length = time.Duration(float64(events[len(events)-1].At) / run.Speed)
		}
	}
	return min(length/10, 2*time.Second)
}

// workload makes the events of a workload for what the tier holds.
func (o *opened) workload(w replay.Workload, opts *replayOptions) ([]replay.Event, error) {
	known, err := o.Partitions()
	if err != nil {
		return nil, err
	}
	var world replay.World
	for _, p := range known {
		view, err := o.View(p)
		if err != nil {
			return nil, err
		}
		x := replay.Extent{Partition: p}
		first, ok := view.Earliest(nil)
		if !ok {
			continue
		}
		x.First, x.End = first.StartOffset, view.CopiedUpTo(nil)+1
		for seg := range view.All() {
			if seg.EndOffset < x.End && readable(seg) {
				x.Bytes += seg.SizeBytes
			}
		}
		world = append(world, x)
	}
	sortWorld(world)
	events, err := w.Events(world, opts.events, opts.seed)
	if err != nil {
		return nil, notInTierf("%w", err)
	}
	return events, nil
}

// requests returns what makes a request of an event.
func (o *opened) requests() func(replay.Event) (fetch.Request, error) {
	type key struct {
		topic  string
		id     segment.UUID
		number int32
	}
	found := make(map[key]fetch.Request)
	return func(e replay.Event) (fetch.Request, error) {
		k := key{e.Topic, e.TopicID, e.Partition}
		req, ok := found[k]
		if !ok {
			known, err := o.Partitions()
			if err != nil {
				return req, err
			}
			// The topic of this id, if it is here; else the one of this name.
			p := segment.Partition{Topic: e.Topic, TopicID: e.TopicID, Number: e.Partition}
			if !contains(known, p) {
				if p, err = resolve(known, partitionArg{topic: e.Topic, number: e.Partition}); err != nil {
					return req, err
				}
			}
			if req, err = o.requestOf(p, 0); err != nil {
				return req, err
			}
			found[k] = req
		}
		req.Offset, req.MaxBytes = e.Offset, e.MaxBytes
		if e.Committed {
			req.Isolation = fetch.ReadCommitted
		}
		return req, nil
	}
}

// servePprof serves profiles until stop is called.
func (a *app) servePprof(ctx context.Context, address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--pprof: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) }) // ends with http.ErrServerClosed
	a.messagef("profiles at http://%s/debug/pprof/", l.Addr())
	return func() {
		_ = server.Close() // nobody is waited for
		done.Wait()
	}, nil
}

// drive runs and reports.
func (a *app) drive(ctx context.Context, tier *opened, events []replay.Event, run replay.Options, profile string) error {
	var profiler *replay.Profiler
	var failed error // of the profiler; written by Run's goroutine, read behind it
	profiled := false
	if profile != "" {
		var err error
		if profiler, err = replay.NewProfiler(profile); err != nil {
			return fmt.Errorf("--profile: %w", err)
		}
		run.Steady = func() {
			profiled = true
			failed = errors.Join(failed, profiler.Start(), profiler.Look())
		}
	}
	run.Live = func(l replay.Live) {
		if profiler != nil && !l.Last { // behind the end nobody fetches
			failed = errors.Join(failed, profiler.Look())
		}
		a.showLive(l)
	}
	before := tier.Stats()
	report, err := replay.Run(ctx, tier, events, run)
	a.clearLive()
	if profiler != nil {
		failed = errors.Join(failed, profiler.Stop())
	}
	if err != nil {
		return err
	}
	if err := a.showReport(report, before, tier.Stats()); err != nil {
		return err
	}
	switch {
	case failed != nil:
		return fmt.Errorf("--profile: %w", failed)
	case report.CutShort:
		return fmt.Errorf("replay was cut short: %w", context.Cause(ctx))
	case report.Errors > 0:
		return fmt.Errorf("%d of %d fetches failed, the first with: %w", report.Errors, report.Errors+report.Fetches+report.EndOfTier, report.FirstError)
	case profiler != nil && !profiled:
		return fmt.Errorf("--profile: the run ended within its warm-up of %v, and nothing was profiled; give it a --duration or a shorter --warmup", run.Warmup)
	}
	return nil
}

// showLive shows what is going on, on a terminal.
func (a *app) showLive(l replay.Live) {
	if !a.terminal || l.Over <= 0 {
		return
	}
	seconds := l.Over.Seconds()
	_, _ = fmt.Fprintf(a.stderr, "\r\x1b[K%s  %.0f fetches/s  %s/s  p50 %s  p99 %s  max %s  errors %d", // of a terminal
		l.Elapsed.Round(time.Second), float64(l.Fetches)/seconds, sizeText(int64(float64(l.Bytes)/seconds)),
		microsText(l.Latency.P50), microsText(l.Latency.P99), microsText(l.Latency.Max), l.Errors)
}

func (a *app) clearLive() {
	if a.terminal {
		_, _ = fmt.Fprint(a.stderr, "\r\x1b[K") // of a terminal
	}
}

// replayLine is a report as --json shows it.
type replayLine struct {
	*replay.Report

	Gets         int64 `json:"gets"`         // of the store
	FetchedBytes int64 `json:"fetchedBytes"` // from the store, of data
}

// showReport writes the report to stdout.
func (a *app) showReport(r *replay.Report, before, after segtier.Stats) error {
	line := replayLine{
		Report: r, Gets: after.Endpoint.Gets - before.Endpoint.Gets, FetchedBytes: after.Fetch.DataBytes - before.Fetch.DataBytes,
	}
	if a.json {
		return jsonLines(a.stdout).Encode(line)
	}
	rate := func(n int64) float64 { return float64(n) / max(r.Seconds, 1e-9) }
	var b strings.Builder
	fmt.Fprintf(&b, "%d fetches by %s in %.2f s: %.0f/s, %s, %s/s\n",
		r.Fetches, plural(r.Consumers, "consumer"), r.Seconds, rate(r.Fetches), sizeText(r.Bytes), sizeText(int64(rate(r.Bytes))))
	if r.EndOfTier > 0 {
		fmt.Fprintf(&b, "%d ended where the tier does\n", r.EndOfTier)
	}
	fmt.Fprintf(&b, "%d GETs, %s fetched", line.Gets, sizeText(line.FetchedBytes))
	if r.Bytes > 0 {
		fmt.Fprintf(&b, ", %.2f of what was served", float64(line.FetchedBytes)/float64(r.Bytes))
	}
	b.WriteString("\n\n             p50       p90       p99     p99.9       max\n")
	for _, row := range []struct {
		name string
		q    replay.Quantiles
	}{{"latency", r.Latency}, {"service", r.Service}, {"start delay", r.StartDelay}} {
		fmt.Fprintf(&b, "%-11s", row.name)
		for _, v := range []float64{row.q.P50, row.q.P90, row.q.P99, row.q.P999, row.q.Max} {
			fmt.Fprintf(&b, " %9s", microsText(v))
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

// microsText is a time of so many microseconds.
func microsText(micros float64) string {
	switch {
	case micros < 1000:
		return fmt.Sprintf("%.0fµs", micros)
	case micros < 1e6:
		return fmt.Sprintf("%.1fms", micros/1e3)
	}
	return fmt.Sprintf("%.2fs", micros/1e6)
}
