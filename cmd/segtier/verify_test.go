package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/segtier/segtier/audit"
)

// Each level finds what it reads, says so in the exit status, and names its
// reasons.
func TestVerifyLevels(t *testing.T) {
	base := copied(t, source(payments))
	kinds := damages()
	for _, tt := range []struct {
		damage, level, reason string
	}{
		{"deleted", "full", "OBJECT_MISSING"},
		{"deleted", "sample", "OBJECT_MISSING"},
		{"deleted", "head", "OBJECT_MISSING"},
		{"deleted", "metadata", ""},
		{"grown", "head", "OBJECT_SIZE"},
		{"flipped bit in the tail", "sample", "OBJECT_CORRUPT"},
		{"flipped bit in the tail", "head", ""},
		{"flipped bit in the first batch", "sample", "OBJECT_CORRUPT"},
	} {
		b := newBench(t)
		copyTree(t, base.dir, b.dir)
		kinds[tt.damage](t, filepath.Join(b.store, filepath.FromSlash(objectOf(t, b, "payments.tx_commit-abort/0", 2))))
		args := []string{"verify", "--json", "--level", tt.level, "--sample", "1", "--rate", "1GiB", "--parallel", "2"}
		if tt.reason == "" {
			if out := b.done(args...); out != "" {
				t.Errorf("%s, %s: %s", tt.damage, tt.level, out)
			}
			continue
		}
		found := decode[findingLine](t, b.want(statusDamage, args...).out)
		if len(found) != 1 || found[0].Reason != tt.reason || found[0].Severity != "damage" {
			t.Errorf("%s, %s: %+v", tt.damage, tt.level, found)
		}
	}
}

// An interrupted verification goes on where its cursor says and has the whole
// verdict at the end, damage before the cursor included.
func TestVerifyCursor(t *testing.T) {
	b := copied(t, source(payments))
	damages()["deleted"](t, filepath.Join(b.store, filepath.FromSlash(objectOf(t, b, "payments.tx_commit-abort/0", 0))))
	file := filepath.Join(b.dir, "cursor.json")

	ctx, cancel := context.WithCancel(t.Context())
	a := &app{stdout: stopAt{cancel}, stderr: &bytes.Buffer{}, getenv: b.getenv}
	if status := a.run(ctx, []string{"verify", "--cursor", file, "--parallel", "1"}); status == statusDone {
		t.Fatalf("it was not interrupted")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var at audit.Cursor
	if err := json.Unmarshal(text, &at); err != nil || at.Report.Damaged != 1 || at.Report.Segments >= 12 {
		t.Fatalf("%s: %v", text, err)
	}
	b.want(statusFailed, "verify", "--cursor", file, "--level", "head").oneError(t, "another verification")
	o := b.want(statusDamage, "verify", "--cursor", file)
	if o.out != "" || !strings.Contains(o.msg, "12 segments verified") || !strings.Contains(o.msg, "1 damaged") {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the cursor of a complete verification is still there: %v", err)
	}
	for _, junk := range []string{"", "x", `{"level":7}`, `{"unknown":1}`, strings.Repeat(" ", maxCursor+1)} {
		if err := os.WriteFile(file, []byte(junk), 0o666); err != nil {
			t.Fatal(err)
		}
		b.want(statusFailed, "verify", "--cursor", file).oneError(t, file, "remove it")
	}
}

// stopAt interrupts when the first line is written.
type stopAt struct{ stop func() }

func (s stopAt) Write(p []byte) (int, error) { s.stop(); return len(p), nil }

func TestVerifyUsage(t *testing.T) {
	b := copied(t, source(payments))
	for _, args := range [][]string{{"--level", "half"}, {"--sample", "0"}, {"--sample", "2"}, {"--parallel", "-1"}, {"--rate", "fast"}} {
		b.want(statusUsage, append([]string{"verify"}, args...)...)
	}
}
