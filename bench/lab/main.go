// Command lab measures segtier beside what a user would pick instead: in one run,
// on the same bytes, client and server in processes of their own.
//
//	go run ./bench/lab                     everything; an hour or more on two cores
//	go run ./bench/lab --only 'fill|gets'  the figures whose names match
//	go run ./bench/lab --quick             one shortened round of everything, under a minute
//	go run ./bench/lab --json              a line of JSON for each figure
//	go run ./bench/lab --sweep             the settings at which each peer runs best
//
// docs/benchmarks.md says how it measures and what the figures mean.
//
// # Method
//
// The store is package weather, the client package subject (ours) or the modules
// bench/peers and bench/peers/caching, and what is served goes to a sink, each a
// process of its own. A client does one job and ends. Its CPU is what getrusage says
// between two moments. Rounds are A B B A; a figure is the median of the rounds' ratios, and
// figures out of a clock within 5 % of each other are equal. A round in which others
// used the processors is marked and run again, as often as there are rounds.
//
// A row counts only if the bytes of both sides were the expected ones: the sink
// sums what is served, and what was written is read back. Before anything else the
// lab reads through a store that flips bits: where verification is missing from
// the read path no row counts, and the exit status is 1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"github.com/segtier/segtier/bench/subject"
)

// options are the flags.
type options struct {
	json, markdown, quick, sweep, list, verbose bool
	only                                        *regexp.Regexp
	rounds                                      int
}

// parse reads the arguments. role is what the lab started this process for.
func parse(args []string, stderr io.Writer) (o options, role string, err error) {
	fs := flag.NewFlagSet("lab", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&role, "role", "", "what the lab starts itself again for: runner, sink or weather")
	fs.BoolVar(&o.json, "json", false, "print a line of JSON for each figure")
	fs.BoolVar(&o.markdown, "markdown", false, "print the table of docs/benchmarks.md")
	fs.BoolVar(&o.quick, "quick", false, "one shortened round of everything; meets nothing")
	fs.BoolVar(&o.sweep, "sweep", false, "try the settings of each peer, print them, and end")
	fs.BoolVar(&o.list, "list", false, "print the names of all figures and end")
	fs.BoolVar(&o.verbose, "v", false, "say on stderr what is being done")
	fs.IntVar(&o.rounds, "rounds", 5, "rounds of A B B A")
	only := fs.String("only", "", "only figures whose names match this regular expression")
	if err := fs.Parse(args); err != nil {
		return o, role, err
	}
	fail := func(err error) (options, string, error) {
		_, _ = fmt.Fprintln(stderr, "lab:", err)
		return o, role, err
	}
	switch {
	case fs.NArg() > 0:
		return fail(fmt.Errorf("unexpected argument %q", fs.Arg(0)))
	case o.rounds < 1:
		return fail(fmt.Errorf("--rounds %d: at least 1", o.rounds))
	case o.json && o.markdown:
		return fail(errors.New("--json and --markdown are two forms of one output: choose one"))
	}
	if *only != "" {
		if o.only, err = regexp.Compile(*only); err != nil {
			return fail(fmt.Errorf("--only: %w", err))
		}
		if !slices.ContainsFunc(slices.Concat(targets(), extras()), func(m metric) bool { return o.only.MatchString(m.id) }) {
			return fail(fmt.Errorf("--only %s: no figure has such a name; --list shows them", *only))
		}
	}
	return o, role, nil
}

func main() {
	o, role, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	} else if err != nil {
		os.Exit(2)
	}
	if role != "" {
		err = runRole(role)
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o, os.Stdout, os.Stderr)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// run starts what is needed, runs the experiments and ends what it started.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	if o.list {
		for _, e := range experiments() {
			for _, id := range e.ids {
				if o.only == nil || o.only.MatchString(id) {
					_, _ = fmt.Fprintln(stdout, id)
				}
			}
		}
		return nil
	}
	work, err := os.MkdirTemp("", "segtier-lab-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	l, stop, err := open(ctx, work, o, stdout, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if o.sweep {
		return l.sweepAll(stdout)
	}
	if err := l.all(experiments()); err != nil {
		return err
	}
	if l.failed {
		return errors.New("some rows are void: bytes were not what they should be")
	}
	return nil
}

// open starts the processes that live as long as the lab, and builds the others.
func open(ctx context.Context, work string, o options, stdout, stderr io.Writer) (l *lab, stop func() error, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	l = &lab{
		ctx: ctx, work: work, quick: o.quick, log: io.Discard,
		plan:   plan{rounds: o.rounds, extra: o.rounds, short: o.quick},
		ours:   runner{path: exe, args: []string{"-role", roleRunner}},
		peers:  map[string]doer{},
		upload: map[int64]subject.Segment{}, settings: map[string]settings{}, hits: map[string]float64{}, missing: map[string]string{},
	}
	if o.verbose || !o.quick {
		l.log = stderr
	}
	if o.quick {
		l.plan.rounds, l.plan.extra = 1, 0
	}
	if o.only != nil {
		l.only = o.only.MatchString
	}
	switch {
	case o.json:
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false) // for "<="
		l.print = jsonPrinter{enc}
	case o.markdown:
		l.print = newMarkdown(stdout)
	default:
		l.print = newTable(stdout)
	}
	for _, module := range []string{peersModule, cachingModule} {
		_, _ = fmt.Fprintf(l.log, "building %s\n", module)
		r, works, missing := build(ctx, work, module)
		l.missing[module] = missing
		for _, name := range works {
			l.peers[name] = r
		}
	}

	server, err := startHelper(ctx, roleWeather)
	if err != nil {
		return nil, nil, err
	}
	text, err := server.firstLine()
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal([]byte(text), &l.at); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("weather server said %q: %w", text, err), server.stop())
	}
	served, sinkProcess, err := startSink(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, server.stop())
	}
	l.sink, l.check = served.addr, both{served, l.at.HTTP + "/" + bucket}
	l.watch.pids = []int{server.cmd.Process.Pid, sinkProcess.cmd.Process.Pid}
	l.caFile = filepath.Join(work, "ca.pem")
	stop = func() error { return errors.Join(served.stop(), server.stop()) }
	if err := os.WriteFile(l.caFile, []byte(l.at.CA), 0o600); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return l, stop, nil
}

// sweepAll prints the sweeps of all peers.
func (l *lab) sweepAll(out io.Writer) error {
	for _, work := range []string{"upload", "fill"} {
		for _, who := range peersOf(work) {
			if why := l.lacks(who, work); why != "" {
				_, _ = fmt.Fprintf(out, "sweep of %s/%s: %s\n", who, work, why)
				continue
			}
			if l.only != nil && !l.only("peer_"+work+"_"+who) {
				continue
			}
			all, err := l.sweep(work, who)
			if err != nil {
				return err
			}
			best, _ := choose(all)
			if err := printSweep(out, work, who, all, best); err != nil {
				return err
			}
		}
	}
	return nil
}
