package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func noenv(string) string { return "" }

func TestDemo(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var out, msg bytes.Buffer
	if status := run(t.Context(), []string{"demo"}, &out, &msg, noenv); status != statusDone {
		t.Fatalf("status %d\n%s\n%s", status, out.String(), msg.String())
	}
	for _, s := range []string{
		"$ segtier copy", "$ segtier ls", "$ segtier fetch", "$ segtier offset", "$ segtier explain", "$ segtier verify",
		"identical", "(exit status 1)", "(exit status 3)", "OBJECT_CORRUPT", "no-op",
	} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("the demo does not show %q:\n%s", s, out.String())
		}
	}
	if msg.Len() > 0 {
		t.Errorf("stderr: %s", msg.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The commands of a demo that was kept work as they are shown.
func TestDemoKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept here")
	var out, msg bytes.Buffer
	if status := run(t.Context(), []string{"demo", "--dir", dir}, &out, &msg, noenv); status != statusDone {
		t.Fatalf("status %d\n%s\n%s", status, out.String(), msg.String())
	}
	b := newBench(t)
	for line := range strings.Lines(out.String()) {
		name, url, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "   $ export ")), "=")
		if !ok || !strings.HasPrefix(line, "   $ export ") {
			continue
		}
		where, err := locate(name, url, "file:///dir", "s3")
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "SEGTIER_STORE":
			b.store = where.path
		case "SEGTIER_META":
			b.meta = where.path
		}
	}
	b.done("verify")
	b.want(statusFailed, "demo", "--dir", dir).oneError(t, "not empty")
}

// The demo judges for itself: each of its checks fails when what it expects is
// not what is there.
func TestDemoFails(t *testing.T) {
	steps := func(d *demo) map[string]func() error {
		return map[string]func() error{
			"copy": d.copy, "copyAgain": d.copyAgain, "list": d.list, "fetchOffset": d.fetchOffset, "compareAll": d.compareAll, "fetchTime": d.fetchTime,
		}
	}
	for name, spoil := range map[string]func(o *oracle){
		"copy":        func(o *oracle) { o.bases = append(o.bases, o.end) },
		"copyAgain":   func(o *oracle) { o.bases = append(o.bases, o.end) },
		"list":        func(o *oracle) { o.bases = append(o.bases, o.end) },
		"fetchOffset": func(o *oracle) { b := &o.batches[len(o.batches)/2]; b.raw = flipped(b.raw) },
		"compareAll":  func(o *oracle) { o.log = flipped(o.log) },
		"fetchTime": func(o *oracle) {
			for i := range o.batches {
				for j := range o.batches[i].offsets {
					o.batches[i].offsets[j]++
				}
			}
		},
	} {
		var out bytes.Buffer
		d := &demo{ctx: t.Context(), a: &app{stdout: &out}, dir: t.TempDir()}
		if err := d.unpack(); err != nil {
			t.Fatal(err)
		}
		if name != "copy" {
			if err := d.copy(); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range d.partitions {
			spoil(o)
		}
		if err := steps(d)[name](); err == nil {
			t.Errorf("step %s found nothing wrong:\n%s", name, out.String())
		}
	}
}

func flipped(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1
	return b
}
