package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestOperationsNamesEveryReason: each code that verify, gc and rebuild have for what
// they find has a row in the page that says what to do, and in the design of the
// package.
func TestOperationsNamesEveryReason(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	design, err := os.ReadFile("../../audit/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../audit/*.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := ""
	for line := range strings.Lines(string(page)) {
		if code, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "| "), " |"); ok {
			rows += code + "\n"
		}
	}
	n := 0
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
				return true
			}
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			n++
			if !strings.Contains(rows, "`"+code+"`") {
				t.Errorf("docs/operations.md has no row for %s", code)
			}
			if !strings.Contains(string(design), "//	"+code+" ") {
				t.Errorf("the package comment of audit has no line for %s", code)
			}
			return true
		})
	}
	if n < 25 {
		t.Errorf("only %d reasons were found", n)
	}
}

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
		"Removing a topic":   func() *bench { return copyOf(payments) },
		"Holes": func() *bench {
			b := copyOf(payments)
			segs := decode[segmentLine](t, b.done("ls", "--json"))
			b.done("rm", segs[1].SegmentID.String(), "--apply", "--delete-delay", "0s")
			return b
		},
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
			if title == "Holes" && strings.HasPrefix(cmd, "verify") {
				want = statusDamage
			}
			if i+1 < len(lines) && strings.TrimSpace(lines[i+1]) == "# status 1" {
				want = statusFailed
			}
			args := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(cmd, "orders/0", "payments.tx_commit-abort/0"), " orders", " payments.tx_commit-abort"))
			b.want(want, args...)
			ran++
		}
		delete(prepare, title)
	}
	if ran < 23 || len(prepare) > 0 {
		t.Errorf("%d commands were run, %d sections were not met", ran, len(prepare))
	}
}
