package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOperationsPage runs each command line of docs/operations.md, section by
// section, in a place where what the section is about has happened.
func TestOperationsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	checkpoints, err := filepath.Abs(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	from, err := filepath.Abs(partitionsDir)
	if err != nil {
		t.Fatal(err)
	}
	copyOf := func(names ...string) *bench {
		b := newBench(t)
		for _, n := range names {
			b.done("copy", filepath.Join(from, n))
		}
		return b
	}
	prepare := map[string]func() *bench{
		"Looking regularly":  func() *bench { return copyOf(payments) },
		"Findings of verify": func() *bench { return copyOf(payments) },
		"Orphans": func() *bench {
			b := copyOf(payments)
			b.old(b.end(0), 1e15)
			return b
		},
		"Lost metadata": func() *bench {
			b := copyOf(payments, sensors)
			file, err := os.ReadFile(checkpoints)
			if err == nil {
				err = os.WriteFile(filepath.Join(b.dir, "log-start-offset-checkpoint"), file, 0o666)
			}
			if err == nil {
				err = os.Remove(b.meta)
			}
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		"Metadata that is an older copy": func() *bench {
			b := copyOf(payments)
			older, err := os.ReadFile(b.meta)
			if err != nil {
				t.Fatal(err)
			}
			b.done("copy", filepath.Join(from, sensors))
			if err := os.WriteFile(b.meta, older, 0o600); err != nil {
				t.Fatal(err)
			}
			return b
		},
	}
	ran := 0
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		lines := strings.Split(body, "\n")
		var b *bench
		for i, line := range lines {
			cmd, ok := strings.CutPrefix(strings.TrimSpace(line), "$ segtier ")
			if !ok {
				continue
			}
			if b == nil {
				if prepare[title] == nil {
					t.Fatalf("section %q has commands and nothing to run them on", title)
				}
				b = prepare[title]()
				t.Chdir(b.dir)
			}
			want := statusDone
			if i+1 < len(lines) && strings.TrimSpace(lines[i+1]) == "# status 1" {
				want = statusFailed
			}
			args := strings.Fields(strings.ReplaceAll(cmd, "orders/0", "payments.tx_commit-abort/0"))
			b.want(want, args...)
			ran++
		}
		delete(prepare, title)
	}
	if ran < 18 || len(prepare) > 0 {
		t.Errorf("%d commands were run, %d sections were not met", ran, len(prepare))
	}
}
