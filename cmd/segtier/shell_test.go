package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Every shell gets a script, and bash takes its own.
func TestCompletionScripts(t *testing.T) {
	b := newBench(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		script := b.done("completion", shell)
		if len(script) < 1000 || !strings.Contains(script, "segtier") {
			t.Errorf("%s: %d bytes", shell, len(script))
		}
		if path, err := exec.LookPath(shell); err == nil && (shell == "bash" || shell == "zsh") {
			cmd := exec.CommandContext(t.Context(), path, "-n")
			cmd.Stdin = strings.NewReader(script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", shell, err, out)
			}
		}
	}
}

// Partitions, formats and directories are completed; without metadata nothing
// is, silently.
func TestCompletion(t *testing.T) {
	b := newBench(t)
	if o := b.want(statusDone, "__complete", "ls", ""); !strings.HasPrefix(o.out, ":") {
		t.Errorf("%+v", o)
	}
	b.done("copy", source(payments), source(sensors))
	for _, args := range []string{"ls", "fetch", "offset", "explain", "verify", "expire", "rm"} {
		o := b.done("__complete", args, "")
		if !strings.Contains(o, "payments.tx_commit-abort/0\nsensor-readings.v2_raw/0\n") {
			t.Errorf("%s: %s", args, o)
		}
	}
	if o := b.done("__complete", "fetch", "x/0", "1", "--format", ""); !strings.HasPrefix(o, "table\nraw\njson\n") {
		t.Error(o)
	}
	if o := b.done("__complete", "copy", ""); !strings.HasPrefix(o, ":16") {
		t.Error(o)
	}
}

func TestVersion(t *testing.T) {
	b := newBench(t)
	text := b.done("version")
	if !strings.HasPrefix(text, "segtier ") || b.done("--version") != text {
		t.Error(text)
	}
	if v := decode[version](t, b.done("version", "--json")); len(v) != 1 || !strings.HasPrefix(v[0].Go, "go1.") {
		t.Errorf("%+v", v)
	}
}

// Every command explains itself, and says nothing to stderr.
func TestHelp(t *testing.T) {
	b := newBench(t)
	for _, cmd := range []string{"demo", "copy", "ls", "fetch", "offset", "explain", "verify", "expire", "rm", "gc", "rebuild", "replay", "version", "completion"} {
		o := b.want(statusDone, cmd, "--help")
		if !strings.Contains(o.out, "Usage:") || o.msg != "" {
			t.Errorf("%s: %+v", cmd, o)
		}
	}
}

// Progress is for terminals only.
func TestProgress(t *testing.T) {
	var buf bytes.Buffer
	if isTerminal(&buf) {
		t.Error("a buffer is a terminal")
	}
	if f, err := os.Open(os.DevNull); err != nil || isTerminal(f) {
		t.Errorf("%s is a terminal, %v", os.DevNull, err)
	}
	silent := newProgress(&buf, false, 100, "copying")
	silent.begin("copying x", 50)
	silent.add(10)
	silent.end()
	silent.clear()
	if buf.Len() > 0 {
		t.Errorf("without a terminal: %q", buf.String())
	}
	bar := newProgress(&buf, true, 100, "copying")
	bar.begin("copying orders/0 at 7", 50)
	bar.add(40)
	bar.add(40) // a part that was counted twice
	if got := bar.base + bar.item; got != 50 {
		t.Errorf("the bar stands at %d, beyond its item", got)
	}
	bar.end()
	bar.begin("copying orders/0 at 9", 50)
	bar.add(50)
	bar.end()
	bar.clear()
	if !strings.Contains(buf.String(), "copying orders/0 at 7") || bar.base != 100 {
		t.Errorf("%d, %q", bar.base, buf.String())
	}
}

func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		sizeText(0): "0 B", sizeText(1023): "1023 B", sizeText(1536): "1.5 KiB", sizeText(1 << 20): "1.0 MiB",
		sizeText(3 << 40): "3.0 TiB", sizeText(5 << 50): "5120.0 TiB",
		plural(1, "batch"): "1 batch", plural(2, "batch"): "2 batches", plural(0, "segment"): "0 segments", plural(3, "directory"): "3 directories",
		timeText(-1): "-", timeText(1709254800001): "2024-03-01T01:00:00.001Z",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
