package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/segtier/segtier"

// root is the module's root, seen from this package.
const root = "../.."

// tree is the source of the module, read once for all tests.
type tree struct {
	files    []string // every file that is or would be tracked, slash paths from root, sorted
	packages []*pkg   // of this module, sorted by dir
	fset     *token.FileSet
}

// pkg is one folder with Go files.
type pkg struct {
	dir   string // from root, "." for the root package
	files []*source
}

// source is one parsed Go file.
type source struct {
	path string // from root
	text []byte
	ast  *ast.File
	test bool // named _test.go
}

var load = sync.OnceValues(func() (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	files, err := listFiles()
	if err != nil {
		return nil, err
	}
	t.files = files

	var others []string // folders that are modules of their own
	for _, f := range files {
		if path.Base(f) == "go.mod" && f != "go.mod" {
			others = append(others, path.Dir(f)+"/")
		}
	}
	byDir := map[string]*pkg{}
	for _, f := range files {
		if !strings.HasSuffix(f, ".go") || slices.ContainsFunc(others, func(dir string) bool { return strings.HasPrefix(f, dir) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(t.fset, f, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p := byDir[path.Dir(f)]
		if p == nil {
			p = &pkg{dir: path.Dir(f)}
			byDir[p.dir] = p
			t.packages = append(t.packages, p)
		}
		p.files = append(p.files, &source{path: f, text: text, ast: parsed, test: strings.HasSuffix(f, "_test.go")})
	}
	sort.Slice(t.packages, func(i, j int) bool { return t.packages[i].dir < t.packages[j].dir })
	return t, nil
})

// sourceTree returns the parsed tree.
func sourceTree(t *testing.T) *tree {
	t.Helper()
	tr, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.packages) < 5 {
		t.Fatalf("only %d packages found: is the test run from its own folder?", len(tr.packages))
	}
	return tr
}

// listFiles walks the module. Git, where it is there, says what is ignored; a
// file that could be added is judged before it is. The walk is made in any case:
// the go command takes a test's result from its cache unless a folder that the
// test has read, itself, has changed.
func listFiles() ([]string, error) {
	listed := gitFiles()
	var files []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() && (rel == ".git" || rel == "bin" || rel == "segtier-data" || d.Name() == "target") {
			return fs.SkipDir
		}
		if d.Type().IsRegular() && (listed == nil || listed[rel]) {
			files = append(files, rel)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// gitFiles returns the files that are tracked or could be; nil if git cannot
// say, as in a downloaded archive.
func gitFiles() map[string]bool {
	cmd := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := cmd.Output()
	if err != nil || len(out) == 0 {
		return nil
	}
	files := map[string]bool{}
	for f := range strings.SplitSeq(string(out), "\x00") {
		files[f] = true
	}
	return files
}

// pos prints where something is.
func (t *tree) pos(p token.Pos) string {
	at := t.fset.Position(p)
	return at.Filename + ":" + strconv.Itoa(at.Line)
}

// shipped returns the files that users link: all but tests.
func (p *pkg) shipped() []*source {
	var out []*source
	for _, f := range p.files {
		if !f.test {
			out = append(out, f)
		}
	}
	return out
}

// program reports whether the package is a program or belongs to one, where the
// rules for libraries do not hold.
func (p *pkg) program() bool {
	for _, dir := range []string{"cmd", "examples", "bench", "testdata", "tools"} {
		if p.dir == dir || strings.HasPrefix(p.dir, dir+"/") {
			return true
		}
	}
	return false
}

// forTests reports whether the package exists to test others.
func (p *pkg) forTests() bool {
	switch p.dir {
	case "internal/bubble", "internal/gateway", "internal/house", "internal/testseg":
		return true
	}
	return strings.HasSuffix(p.dir, "test")
}

// importable reports whether programs outside the module can import it.
func (p *pkg) importable() bool {
	return !p.program() && p.dir != "internal" && !strings.HasPrefix(p.dir, "internal/") && len(p.shipped()) > 0
}

// imports returns the paths that f imports.
func (f *source) imports() []string {
	var out []string
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// importName returns the name under which f uses the package, "" if it does not
// import it.
func (f *source) importName(importPath string) string {
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// mentions calls found for each use of a name of importPath in n.
func (f *source) mentions(n ast.Node, importPath, name string, found func(ast.Node)) {
	local := f.importName(importPath)
	if local == "" {
		return
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
				found(n)
			}
		}
		return true
	})
}

// exceptions is a list of places where a rule does not hold, each with its
// reason, that notices which of them were needed.
type exceptions struct {
	reasons map[string]string
	used    map[string]bool
}

func except(reasons map[string]string) *exceptions {
	return &exceptions{reasons: reasons, used: map[string]bool{}}
}

// allow reports whether key is excepted.
func (e *exceptions) allow(key string) bool {
	_, ok := e.reasons[key]
	e.used[key] = e.used[key] || ok
	return ok
}

// done fails for exceptions that were not needed or have no reason.
func (e *exceptions) done(t *testing.T) {
	t.Helper()
	for key, reason := range e.reasons {
		if !e.used[key] {
			t.Errorf("the exception for %s is not needed any more: delete it", key)
		}
		if len(reason) < 10 {
			t.Errorf("the exception for %s has no reason", key)
		}
	}
}
