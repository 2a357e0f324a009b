package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
)

// helperVar makes the test binary be the command: it calls main. Its value is
// "main", or the greatest size in bytes of a file that it may write, beyond which
// writes fail as on a full disk.
const helperVar = "SEGTIER_TEST_HELPER"

func helperProcess() {
	if limit, err := strconv.ParseUint(os.Getenv(helperVar), 10, 63); err == nil {
		signal.Ignore(syscall.SIGXFSZ) // the write fails instead
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			panic(err)
		}
	}
	main()
}

// process prepares the command as a process of its own.
func (b *bench) process(mode string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperVar+"="+mode, "SEGTIER_STORE="+b.getenv("SEGTIER_STORE"), "SEGTIER_META="+b.getenv("SEGTIER_META"))
	return cmd
}

// wait runs a prepared command.
func (b *bench) wait(cmd *exec.Cmd) outcome {
	b.t.Helper()
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		b.t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), msg.String()}
}

// soak multiplies the rounds of tests that find more the longer they run.
func soak(n int) int {
	if os.Getenv("SEGTIER_SOAK") != "" {
		return 20 * n
	}
	return n
}

func TestExitStatus(t *testing.T) {
	b := copied(t, source(sensors))
	held := copied(t, source(sensors))
	meta, err := embedded.Open(held.meta, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer meta.Close()
	damaged := copied(t, source(sensors))
	if err := flipBit(filepath.Join(damaged.store, objectOf(t, damaged, "sensor-readings.v2_raw/0", 0)), 99); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		b      *bench
		args   string
		status int
	}{
		{b, "verify", statusDone},
		{b, "offset sensor-readings.v2_raw/0 9999999999999", statusDone},
		{b, "copy /nowhere", statusFailed},
		{held, "ls", statusFailed},
		{held, "copy " + source(payments), statusFailed},
		{damaged, "fetch sensor-readings.v2_raw/0 0", statusFailed},
		{b, "fetch", statusUsage},
		{b, "--store s3://b/p verify", statusUsage},
		{damaged, "verify", statusDamage},
		{b, "fetch sensor-readings.v2_raw/0 100000", statusNotInTier},
	} {
		o := tt.b.wait(tt.b.process("main", strings.Fields(tt.args)...))
		if o.status != tt.status || (o.status != statusDone && o.msg == "") {
			t.Errorf("%s: %+v, want status %d", tt.args, o, tt.status)
		}
		if strings.ContainsAny(o.msg, "\r\x1b") {
			t.Errorf("%s: a progress bar without a terminal: %q", tt.args, o.msg)
		}
	}
}

// Ctrl-C ends a copy with status 1 and one message; the next copy goes on.
func TestCtrlC(t *testing.T) {
	b := newBench(t)
	args := []string{"copy", "--json"}
	for range 20 {
		// Far more output than a pipe holds: it cannot end before it is read.
		args = append(args, allSources(t)...)
	}
	cmd := b.process("main", args...)
	var msg bytes.Buffer
	cmd.Stderr = &msg
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, msg.String())
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the status is looked at below
	o := outcome{cmd.ProcessState.ExitCode(), first, msg.String()}
	if o.status != statusFailed {
		t.Errorf("%+v", o)
	}
	o.oneError(t, "interrupted")
	b.done("verify")
	b.done(append([]string{"copy"}, allSources(t)...)...)
	b.allEqual()
}

// allEqual checks that every segment of every partition is readable and equal
// to its source, and that nothing else is there.
func (b *bench) allEqual() {
	b.t.Helper()
	n := 0
	for _, dir := range allSources(b.t) {
		o := oracleOf(b.t, dir)
		n += len(o.bases)
		equalsLog(b.t, b, o)
	}
	for _, s := range decode[segmentLine](b.t, b.done("ls", "--all", "--json")) {
		if s.State != metadata.CopySegmentFinished.String() {
			b.t.Errorf("left behind: %+v", s)
		}
		n--
	}
	if n != 0 {
		b.t.Errorf("%d segments are missing", n)
	}
	b.done("verify")
}

// Killed again and again in the middle of copying, at no chosen moment: what is
// readable is right at any time, and a copy that is left alone completes it.
func TestKilledInMidCopy(t *testing.T) {
	sources := allSources(t)
	for round := range soak(2) {
		b := newBench(t)
		for kill := 1; kill <= 6; kill++ {
			cmd := b.process("main", append([]string{"copy"}, sources...)...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for n := 0; n < kill*7+round && lines.Scan(); n++ {
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, out); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			b.done("verify")
		}
		b.done(append([]string{"copy"}, sources...)...)
		b.allEqual()
	}
}

// A full disk: one error that says so, nothing visible that is not whole, and
// the next copy completes it.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	// The log of this partition has 2.8 MB; metadata and the small segments fit.
	o := b.wait(b.process(fmt.Sprint(1<<20), "copy", source(sensors), source(wide)))
	if o.status != statusFailed {
		t.Fatalf("%+v", o)
	}
	o.oneError(t, "events.wide-segment_1", "file too large")
	if segs := decode[segmentLine](t, b.done("ls", "--json")); len(segs) != 5 {
		t.Errorf("%d segments are readable, want the 5 that fit", len(segs))
	}
	b.done("verify")
	// Metadata does not fit either.
	small := newBench(t)
	o = small.wait(small.process("4096", "copy", source(sensors)))
	if o.status != statusFailed {
		t.Errorf("%+v", o)
	}
	o.oneError(t, small.meta)
	small.done("copy", source(sensors))
	equalsLog(t, small, oracleOf(t, source(sensors)))

	b.done(append([]string{"copy"}, allSources(t)...)...)
	b.allEqual()
}

// A store that may not be written to. Root may, so the command runs as nobody
// then.
func TestReadOnlyStore(t *testing.T) {
	dir, err := os.MkdirTemp("", "segtier-test-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	b := &bench{t: t, dir: dir, store: filepath.Join(dir, "store"), meta: filepath.Join(dir, "db", "metadata.db")}
	src := copyTree(t, source(sensors), filepath.Join(dir, sensors))
	for _, path := range []string{b.store, filepath.Dir(b.meta)} {
		if err := os.Mkdir(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, b.store: 0o555, filepath.Dir(b.meta): 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(b.store, 0o755) //nolint:errcheck // so that it can be removed
	cmd := b.process("main", "copy", src)
	if os.Geteuid() == 0 {
		exe, err := os.ReadFile(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = filepath.Join(dir, "segtier")
		if err := os.WriteFile(cmd.Path, exe, 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); cmd.ProcessState == nil {
		// Some containers know no other user than their root.
		t.Logf("root, and cannot be another user: %v", err)
		return
	}
	o := outcome{cmd.ProcessState.ExitCode(), out.String(), msg.String()}
	if o.status != statusFailed {
		t.Fatalf("%+v", o)
	}
	o.oneError(t, "read-only", "next: check the permissions")
	if entries, err := os.ReadDir(b.store); err != nil || len(entries) > 0 {
		t.Errorf("the store holds %v, %v", entries, err)
	}
}
