package weather

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Command is the path of the server's command.
const Command = "github.com/segtier/segtier/bench/weather/cmd"

// Build builds the server's command into the file out. It needs the go command,
// and a working directory within this module.
func Build(ctx context.Context, out string) error {
	b, err := exec.CommandContext(ctx, "go", "build", "-o", out, Command).CombinedOutput()
	if err != nil {
		return fmt.Errorf("weather: building %s: %w\n%s", Command, err, b)
	}
	return nil
}

// Process is a server in a process of its own.
type Process struct {
	Addresses

	cmd   *exec.Cmd
	stdin io.Closer
	admin http.Client
	close func() error
}

// StartProcess starts the command that Build made, with these flags, and waits
// until it listens. It ends with Close, with this process, or with ctx.
func StartProcess(ctx context.Context, binary string, flags ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, binary, append([]string{"-child"}, flags...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("weather: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("weather: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("weather: %w", err)
	}
	p := &Process{cmd: cmd, stdin: stdin}
	p.admin.Transport = &http.Transport{}
	p.close = sync.OnceValue(p.end)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.Addresses)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("weather: the server did not say where it listens: %w", err), p.Close())
	}
	return p, nil
}

// Pid returns the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Stats returns what the server has counted.
func (p *Process) Stats(ctx context.Context) (Stats, error) {
	var st Stats
	return st, p.ask(ctx, http.MethodGet, "stats", "", &st)
}

// Reset is Server.Reset.
func (p *Process) Reset(ctx context.Context, objects bool) error {
	return p.ask(ctx, http.MethodPost, fmt.Sprintf("reset?objects=%t", objects), "", nil)
}

// SetSchedule is Server.SetSchedule.
func (p *Process) SetSchedule(ctx context.Context, s Schedule) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return p.ask(ctx, http.MethodPost, "schedule", string(b), nil)
}

func (p *Process) ask(ctx context.Context, method, what, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.Admin+adminPrefix+what, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := p.admin.Do(req)
	if err != nil {
		return fmt.Errorf("weather: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("weather: %s: %w", what, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("weather: %s: %s: %s", what, resp.Status, strings.TrimSpace(string(b)))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}

// Close ends the process and waits for it. It may be called more than once.
func (p *Process) Close() error { return p.close() }

func (p *Process) end() error {
	p.admin.CloseIdleConnections()
	_ = p.stdin.Close() // which ends the child
	timer := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("weather: the server ended with: %w", err)
	}
	return nil
}
