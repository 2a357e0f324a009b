package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/checksum"
)

// What this program is when the lab starts it again.
const (
	roleRunner  = "runner"  // our side of each comparison
	roleSink    = "sink"    // who is served
	roleWeather = "weather" // the store
)

// runRole is main of the processes that the lab starts. They end when their
// standard input does, so that none outlives the lab.
func runRole(role string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch role {
	case roleRunner:
		return job.Serve(ctx, os.Stdin, os.Stdout, subject.Works())
	case roleSink:
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(ln.Addr())
		go untilEnd(cancel)
		return job.ServeSink(ctx, ln, os.Stdout)
	case roleWeather:
		// A payload's SHA-256, which only some clients send, is not compared: that
		// would cost them the server's time.
		s, err := weather.New(weather.Options{NoPayloadHash: true, KeepBytes: 1 << 30})
		if err != nil {
			return err
		}
		at, err := s.Start(ctx)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(at); err != nil {
			return err
		}
		go untilEnd(cancel)
		<-ctx.Done()
		return s.Close()
	default:
		return fmt.Errorf("there is no role %q", role)
	}
}

func untilEnd(then func()) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	then()
}

// helper is a process that lives as long as the lab.
type helper struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Reader
}

func startHelper(ctx context.Context, role string) (*helper, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, "-role", role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &helper{cmd: cmd, in: in, lines: bufio.NewReaderSize(out, 1<<16)}, nil
}

// firstLine returns what the helper says when it is ready.
func (h *helper) firstLine() (string, error) {
	s, err := h.lines.ReadString('\n')
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s did not start: %w", strings.Join(h.cmd.Args[1:], " "), err), h.stop())
	}
	return strings.TrimSpace(s), nil
}

func (h *helper) stop() error {
	_ = h.in.Close()
	return h.cmd.Wait()
}

// sink is what the process that is served says it got.
type sink struct {
	addr string
	read sync.WaitGroup
	end  func() error // of the process

	mu      sync.Mutex
	got     map[string]job.Received // by label; guarded by mu
	changed chan struct{}           // guarded by mu
}

func startSink(ctx context.Context) (*sink, *helper, error) {
	h, err := startHelper(ctx, roleSink)
	if err != nil {
		return nil, nil, err
	}
	addr, err := h.firstLine()
	if err != nil {
		return nil, nil, err
	}
	return newSink(addr, h.lines, h.stop), h, nil
}

// newSink reads lines until they end. end makes them end.
func newSink(addr string, lines io.Reader, end func() error) *sink {
	s := &sink{addr: addr, end: end, got: map[string]job.Received{}, changed: make(chan struct{})}
	s.read.Go(func() {
		dec := json.NewDecoder(lines)
		for {
			var r job.Received
			if dec.Decode(&r) != nil {
				return
			}
			s.mu.Lock()
			s.got[r.Label] = r
			close(s.changed)
			s.changed = make(chan struct{})
			s.mu.Unlock()
		}
	})
	return s
}

// take returns what came with a label.
func (s *sink) take(ctx context.Context, label string) (job.Received, error) {
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		r, ok := s.got[label]
		changed := s.changed
		delete(s.got, label)
		s.mu.Unlock()
		if ok {
			return r, nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return r, fmt.Errorf("nothing came to the sink as %s", label)
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	}
}

// served says whether what came with a label is what should have come.
func (s *sink) served(ctx context.Context, label string, want checksum.Sum) error {
	got, err := s.take(ctx, label)
	if err != nil {
		return err
	}
	if got.Error != "" || got.Bytes != want.Len || got.CRC32C != want.CRC32C {
		return void{fmt.Sprintf("%s served %d bytes that sum to %08x, not %d that sum to %08x %s",
			label, got.Bytes, got.CRC32C, want.Len, want.CRC32C, got.Error)}
	}
	return nil
}

func (s *sink) stop() error {
	err := s.end()
	s.read.Wait()
	return err
}

// runner is a program that does jobs, a process each.
type runner struct {
	path string
	args []string
}

// do starts the program for one job and waits for its end.
func (r runner) do(ctx context.Context, j job.Job) (job.Result, error) {
	var res job.Result
	in, err := json.Marshal(j)
	if err != nil {
		return res, err
	}
	cmd := exec.CommandContext(ctx, r.path, r.args...)
	cmd.Stdin = strings.NewReader(string(in) + "\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return res, fmt.Errorf("%s/%s: %w: %s", j.Subject, j.Work, errors.Join(err, context.Cause(ctx)), lastOf(stderr.String()))
	}
	if err := json.Unmarshal(out, &res); err != nil {
		return res, fmt.Errorf("%s/%s answered %q: %w", j.Subject, j.Work, out, err)
	}
	return res, nil
}

// lastOf returns the end of a long text.
func lastOf(s string) string {
	const most = 500
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = "…" + s[len(s)-most:]
	}
	return s
}

// build makes the runner of a module below this one and asks what it can do. It
// returns why there is none as missing.
func build(ctx context.Context, work, module string) (r runner, works []string, missing string) {
	root := exec.CommandContext(ctx, "go", "list", "-f", "{{.Module.Dir}}", "github.com/segtier/segtier/bench/job")
	dir, err := root.Output()
	if err != nil {
		return r, nil, "the sources are needed: run the lab in a checkout, as go run ./bench/lab"
	}
	r.path = filepath.Join(work, strings.ReplaceAll(module, "/", "-"))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", r.path, ".")
	cmd.Dir = filepath.Join(strings.TrimSpace(string(dir)), filepath.FromSlash(module))
	if out, err := cmd.CombinedOutput(); err != nil {
		return r, nil, fmt.Sprintf("%s does not build: %v: %s", module, err, lastOf(string(out)))
	}
	out, err := exec.CommandContext(ctx, r.path, "-list").Output()
	if err != nil {
		return r, nil, fmt.Sprintf("%s does not run: %v", module, err)
	}
	return r, strings.Fields(string(out)), ""
}
