package house

import (
	"bytes"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// link is an inline Markdown link: [text](target).
var link = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)

func TestLinksResolve(t *testing.T) {
	tr := sourceTree(t)
	for _, f := range tr.files {
		if path.Ext(f) != ".md" {
			continue
		}
		text := readFile(t, f)
		for _, m := range link.FindAllStringSubmatch(withoutCode(text), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := f
			if target != "" {
				file = path.Join(path.Dir(f), target)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", f, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(readFile(t, file)), anchor) {
				t.Errorf("%s links to %s; no heading of %s gives that anchor", f, m[1], file)
			}
		}
	}
}

// Paths in backquotes are checked too: `docs/errors.md`, `fetch/reader.go`.
func TestNamedFilesExist(t *testing.T) {
	tr := sourceTree(t)
	named := regexp.MustCompile("`((?:[a-z0-9_-]+/)*[A-Za-z0-9_-]+\\.(?:go|md|yml))`")
	for _, f := range tr.files {
		if path.Ext(f) != ".md" || f == "CHANGELOG.md" {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(readFile(t, f), -1) {
			name := m[1]
			if !slices.ContainsFunc(tr.files, func(have string) bool {
				return have == name || have == path.Join(path.Dir(f), name) || path.Base(have) == name
			}) {
				t.Errorf("%s names %s, which does not exist", f, name)
			}
		}
	}
}

// The code in README is compiled and run: its first Go block is part of an
// example, whose checks for errors it may leave out.
func TestReadmeShowsTheExample(t *testing.T) {
	tr := sourceTree(t)
	if !slices.Contains(tr.files, "segtier.go") {
		t.Fatal("segtier.go is missing")
	}
	readme := readFile(t, "README.md")
	_, block, ok := strings.Cut(readme, "```go\n")
	if !ok {
		t.Fatal("README.md shows no Go code")
	}
	block, _, _ = strings.Cut(block, "```")
	want := withoutChecks(block)
	if n := strings.Count(want, "\n"); n < 10 || n > 35 {
		t.Errorf("the example in README.md has %d lines; about 20 show enough", n)
	}
	for _, f := range tr.files {
		if (f == "example_test.go" || strings.HasPrefix(f, "examples/")) && path.Ext(f) == ".go" {
			if strings.Contains(withoutChecks(readFile(t, f)), want) {
				return
			}
		}
	}
	t.Errorf("no example has the Go code that README.md shows; put it, as it is, into example_test.go:\n%s", block)
}

// What an error means to a caller, and which of Kafka's codes it becomes, is in
// docs/errors.md for every error that a caller can ask for.
func TestErrorsAreExplained(t *testing.T) {
	tr := sourceTree(t)
	doc := readFile(t, "docs/errors.md")
	exported := map[string]bool{}
	for _, p := range tr.packages {
		if !p.importable() || p.forTests() {
			continue
		}
		name := path.Base(p.dir)
		if p.dir == "." {
			name = path.Base(module)
		}
		for _, n := range exportedNames(p) {
			kind, n, _ := strings.Cut(n, " ")
			exported[name+"."+n] = true
			isError := kind == "var" && strings.HasPrefix(n, "Err") || kind == "type" && strings.HasSuffix(n, "Error")
			if isError && !strings.Contains(doc, "`"+name+"."+n+"`") {
				t.Errorf("docs/errors.md does not mention `%s.%s`", name, n)
			}
		}
	}
	for _, m := range regexp.MustCompile("`([a-z]+\\.(?:Err[A-Za-z]+|[A-Z][A-Za-z]*Error|Error))`").FindAllStringSubmatch(doc, -1) {
		if !exported[m[1]] {
			t.Errorf("docs/errors.md mentions %s, which is not exported", m[1])
		}
	}
}

// Every package that a host can import is on the map in DESIGN.md.
func TestDesignShowsEveryPackage(t *testing.T) {
	tr := sourceTree(t)
	design := readFile(t, "DESIGN.md")
	for _, p := range tr.packages {
		if p.dir != "." && p.importable() && !strings.Contains(design, "`"+p.dir+"`") {
			t.Errorf("DESIGN.md does not mention `%s`", p.dir)
		}
	}
}

// A file that names a folder of one machine, or the host of a package registry,
// works only where it was written.
func TestNoPlaceOfOneMachine(t *testing.T) {
	tr := sourceTree(t)
	// Put together here, so that this file does not find itself.
	place := regexp.MustCompile(`/(wo` + `rk|ro` + `ot|ho` + `me|Us` + `ers|tm` + `p)/[\w.]+|` +
		`\b(proxy\.golang|sum\.golang|pypi|crates|npmjs|repo1\.maven|repo\.maven\.apache|deb\.debian)\.` + `org\b`)
	for _, f := range tr.files {
		text := []byte(readFile(t, f))
		if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 || f == "LICENSE" || strings.HasSuffix(f, "go.sum") {
			continue
		}
		for _, at := range place.FindAllIndex(text, -1) {
			t.Errorf("%s:%d names %q", f, 1+bytes.Count(text[:at[0]], []byte("\n")), text[at[0]:at[1]])
		}
	}
}

// TestCommentsAreFinished finds what was left for later: it belongs into an
// issue, or is done now.
func TestCommentsAreFinished(t *testing.T) {
	tr := sourceTree(t)
	left := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	for _, p := range tr.packages {
		for _, f := range p.files {
			for _, group := range f.ast.Comments {
				if left.MatchString(group.Text()) {
					t.Errorf("%s: a comment leaves something for later: %s", tr.pos(group.Pos()), firstLine(group))
				}
			}
		}
	}
}

func firstLine(g *ast.CommentGroup) string {
	line, _, _ := strings.Cut(g.Text(), "\n")
	return line
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// withoutChecks takes the indentation off every line, so that code is the same
// wherever it stands, and leaves out what only passes an error on.
func withoutChecks(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	code = strings.ReplaceAll(b.String(), "if err != nil {\nreturn err\n}\n", "")
	return strings.Trim(code, "\n") + "\n"
}

// withoutCode takes fenced blocks and code spans out of Markdown.
func withoutCode(s string) string {
	s = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(s, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(s, "")
}

// anchors returns the anchors of the headings, as code hosts make them.
func anchors(s string) []string {
	var out []string
	for line := range strings.Lines(regexp.MustCompile("(?s)```.*?```").ReplaceAllString(s, "")) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title)))
	}
	return out
}

// A test that is named as the guard of an invariant is there.
func TestNamedTestsExist(t *testing.T) {
	tr := sourceTree(t)
	var tests strings.Builder
	for _, f := range tr.files {
		if strings.HasSuffix(f, "_test.go") {
			tests.WriteString(readFile(t, f))
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]+)`")
	for _, f := range tr.files {
		if path.Ext(f) != ".md" {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(readFile(t, f), -1) {
			if !strings.Contains(tests.String(), "func "+m[1]+"(") {
				t.Errorf("%s names the test %s, which does not exist", f, m[1])
			}
		}
	}
}
