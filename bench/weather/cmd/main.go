// Command cmd is the weather server: a small S3 with content that nobody stores
// and faults by schedule. See package weather.
//
//	go run ./bench/weather/cmd -http 127.0.0.1:9000 -admin 127.0.0.1:9001 -schedule s3
//
// It prints its addresses, and ends with a signal.
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
	"runtime"
	"strings"
	"syscall"

	"github.com/segtier/segtier/bench/weather"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		_, _ = fmt.Fprintln(os.Stderr, "weather:", strings.TrimPrefix(err.Error(), "weather: "))
		os.Exit(2)
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, "weather:", strings.TrimPrefix(err.Error(), "weather: "))
		os.Exit(1)
	}
}

// usageError is a wrong command line.
type usageError struct{ error }

func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	var (
		o        weather.Options
		schedule string
		child    bool
		procs    int
		cpus     string
	)
	flags := flag.NewFlagSet("weather", flag.ContinueOnError)
	flags.StringVar(&o.HTTP, "http", "", "`address` for HTTP; none is none, empty a free port of 127.0.0.1")
	flags.StringVar(&o.HTTPS, "https", "", "`address` for HTTPS, likewise")
	flags.StringVar(&o.Admin, "admin", "", "`address` for /_weather/ alone, likewise")
	flags.StringVar(&schedule, "schedule", "calm", "the weather: JSON, @FILE, or one of "+strings.Join(weather.Presets(), ", "))
	flags.StringVar(&o.Dir, "dir", "", "serve the files of `DIR`, too")
	flags.Int64Var(&o.KeepBytes, "keep", 0, "how many `bytes` of what is written are kept; 0 is 256 MiB, -1 none")
	flags.BoolVar(&o.NoPayloadHash, "no-payload-hash", false, "do not verify x-amz-content-sha256")
	flags.IntVar(&procs, "procs", 0, "GOMAXPROCS; 0 is one for each CPU")
	flags.StringVar(&cpus, "cpus", "", "run on these `CPUs` alone: 1 or 0,2 (Linux)")
	flags.BoolVar(&child, "child", false, "print addresses as JSON; end when standard input does")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Errorf("%q: only flags are understood", flags.Arg(0))}
	}
	var err error
	if o.Schedule, err = weather.ParseSchedule(schedule); err != nil {
		return usageError{err}
	}
	if cpus != "" {
		if err := pin(cpus); err != nil {
			return usageError{fmt.Errorf("-cpus %s: %w", cpus, err)}
		}
	}
	if procs > 0 {
		runtime.GOMAXPROCS(procs)
	}
	s, err := weather.New(o)
	if err != nil {
		return usageError{err}
	}
	at, err := s.Start(ctx)
	if err != nil {
		return err
	}
	if !child {
		_, err = fmt.Fprintf(stdout, "http   %s\nhttps  %s\nadmin  %s/_weather/stats\n\n%s", at.HTTP, at.HTTPS, at.Admin, at.CA)
		<-ctx.Done()
		return errors.Join(err, s.Close())
	}
	if err := json.NewEncoder(stdout).Encode(at); err != nil {
		return errors.Join(err, s.Close())
	}
	ended := make(chan struct{})
	go func() { // joined by the end of the process: a read cannot be interrupted
		_, _ = io.Copy(io.Discard, stdin)
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return s.Close()
}
