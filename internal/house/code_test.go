package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// maxLines keeps files readable in one sitting, under a name that tells what is
// in them.
const maxLines = 600

// maxMethods keeps interfaces small enough to be implemented by others.
const maxMethods = 7

func TestNoInit(t *testing.T) {
	tr := sourceTree(t)
	for _, p := range tr.packages {
		for _, f := range p.files {
			for _, decl := range f.ast.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					t.Errorf("%s: init runs in every program that links the package; make it a function that somebody calls", tr.pos(fn.Pos()))
				}
			}
		}
	}
}

// Package variables are shared by all users of a process. Allowed without a
// word are error sentinels, proofs that a type implements an interface, and
// compiled regular expressions; the rest is tables, listed here.
func TestNoPackageVariables(t *testing.T) {
	tr := sourceTree(t)
	ok := except(packageVariables)
	for _, p := range tr.packages {
		if p.program() || p.dir == "internal/house" {
			continue
		}
		for _, f := range p.shipped() {
			for _, decl := range f.ast.Decls {
				gen, isGen := decl.(*ast.GenDecl)
				if !isGen || gen.Tok != token.VAR {
					continue
				}
				for _, spec := range gen.Specs {
					checkVariable(t, tr, p, spec.(*ast.ValueSpec), ok)
				}
			}
		}
	}
	ok.done(t)
}

func checkVariable(t *testing.T, tr *tree, p *pkg, spec *ast.ValueSpec, ok *exceptions) {
	t.Helper()
	for i, name := range spec.Names {
		if name.Name == "_" {
			continue
		}
		if i < len(spec.Values) && strings.HasPrefix(strings.ToLower(name.Name), "err") {
			if call, isCall := spec.Values[i].(*ast.CallExpr); isCall {
				if sel, isSel := call.Fun.(*ast.SelectorExpr); isSel && (sel.Sel.Name == "New" || sel.Sel.Name == "Errorf") {
					continue
				}
			}
		}
		if !ok.allow(p.dir + "." + name.Name) {
			t.Errorf("%s: package variable %s: pass it, or make it a constant or a function; a table that nobody writes to goes into packageVariables", tr.pos(name.Pos()), name.Name)
		}
	}
}

// Real time in a test makes it slow on a good day and wrong on a bad one; in
// the library it ignores the context. In a bubble time is not real.
func TestNobodySleeps(t *testing.T) {
	tr := sourceTree(t)
	ok := except(sleepers)
	for _, p := range tr.packages {
		for _, f := range p.files {
			if p.program() && !f.test {
				continue
			}
			bubbles := f.callsOf(bubblePackage, "Test")
			f.mentions(f.ast, "time", "Sleep", func(n ast.Node) {
				for _, b := range bubbles {
					if b.Pos() <= n.Pos() && n.End() <= b.End() {
						return
					}
				}
				if !ok.allow(f.path) {
					t.Errorf("%s: time.Sleep: use testing/synctest, an injected clock, or a timer beside the context", tr.pos(n.Pos()))
				}
			})
		}
	}
	ok.done(t)
}

// bubblePackage is where tests get virtual time from.
const bubblePackage = "github.com/segtier/segtier/internal/bubble"

// A bubble that is not made there ends the test process by chance, under the
// race detector; the package says why.
func TestBubblesAreOfOneMake(t *testing.T) {
	tr := sourceTree(t)
	for _, p := range tr.packages {
		for _, f := range p.files {
			for _, call := range f.callsOf("testing/synctest", "Test") {
				if p.dir != "internal/bubble" {
					t.Errorf("%s: synctest.Test: use internal/bubble", tr.pos(call.Pos()))
				}
			}
		}
	}
}

// callsOf returns the calls of the function name of the package path in f.
func (f *source) callsOf(path, name string) []ast.Node {
	var calls []ast.Node
	local := f.importName(path)
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && local != "" {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
					calls = append(calls, call)
				}
			}
		}
		return true
	})
	return calls
}

// A context made on the spot cannot be cancelled by the caller. What belongs to
// the library itself, not to one caller, has its place in backgrounds.
func TestNoContextOutOfNowhere(t *testing.T) {
	tr := sourceTree(t)
	ok := except(backgrounds)
	for _, p := range tr.packages {
		if p.program() || p.forTests() {
			continue
		}
		for _, f := range p.shipped() {
			for _, name := range []string{"Background", "TODO"} {
				f.mentions(f.ast, "context", name, func(n ast.Node) {
					if !ok.allow(f.path) {
						t.Errorf("%s: context.%s drops the caller's context; pass it on, or give the reason in backgrounds", tr.pos(n.Pos()), name)
					}
				})
			}
		}
	}
	ok.done(t)
}

func TestSkipsHaveReasons(t *testing.T) {
	tr := sourceTree(t)
	for _, p := range tr.packages {
		for _, f := range p.files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "Skip" && sel.Sel.Name != "Skipf" && sel.Sel.Name != "SkipNow" {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "t" && x.Name != "b" && x.Name != "f" && x.Name != "tb" {
					return true
				}
				if len(call.Args) == 0 {
					t.Errorf("%s: a test is skipped without a reason", tr.pos(n.Pos()))
				}
				return true
			})
		}
	}
}

func TestPackagesHaveComments(t *testing.T) {
	tr := sourceTree(t)
	for _, p := range tr.packages {
		if len(p.shipped()) == 0 {
			continue
		}
		doc := 0
		for _, f := range p.shipped() {
			if f.ast.Doc == nil {
				continue
			}
			doc++
			want := "Package " + f.ast.Name.Name + " "
			if f.ast.Name.Name == "main" {
				want = "" // says what the program does
			}
			if text := f.ast.Doc.Text(); !strings.HasPrefix(text, want) {
				t.Errorf("%s: the package comment does not begin with %q", f.path, want)
			}
		}
		if doc != 1 {
			t.Errorf("package %s has %d package comments, want one, in doc.go", p.dir, doc)
		}
	}
}

// Who starts a goroutine joins it, and its tests show that none is left.
func TestGoroutinesAreWatchedByGoleak(t *testing.T) {
	tr := sourceTree(t)
	ok := except(notByGoleak)
	for _, p := range tr.packages {
		if p.program() {
			continue
		}
		var starts token.Pos
		watched := false
		for _, f := range p.files {
			if f.test {
				f.mentions(f.ast, "go.uber.org/goleak", "VerifyTestMain", func(ast.Node) { watched = true })
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					starts = n.Pos()
				case *ast.CallExpr: // sync.WaitGroup.Go and errgroup.Group.Go
					if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
						starts = n.Pos()
					}
				}
				return true
			})
		}
		if starts.IsValid() && !watched && !ok.allow(p.dir) {
			t.Errorf("%s: package %s starts goroutines, and no TestMain of its tests calls goleak.VerifyTestMain", tr.pos(starts), p.dir)
		}
	}
	ok.done(t)
}

func TestFilesAreShort(t *testing.T) {
	tr := sourceTree(t)
	ok := except(longFiles)
	for _, p := range tr.packages {
		for _, f := range p.files {
			if ast.IsGenerated(f.ast) {
				continue
			}
			if n := strings.Count(string(f.text), "\n"); n > maxLines && !ok.allow(f.path) {
				t.Errorf("%s has %d lines, the limit is %d: split it by what a reader looks for", f.path, n, maxLines)
			}
		}
	}
	ok.done(t)
}

func TestInterfacesAreSmall(t *testing.T) {
	tr := sourceTree(t)
	for _, p := range tr.packages {
		for _, f := range p.files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if face, ok := spec.Type.(*ast.InterfaceType); ok && face.Methods.NumFields() > maxMethods {
					t.Errorf("%s: interface %s has %d methods, the limit is %d: what is optional goes into an interface of its own", tr.pos(spec.Pos()), spec.Name.Name, face.Methods.NumFields(), maxMethods)
				}
				return true
			})
		}
	}
}

// make fuzz asks the packages of this module (and testdata) for their targets,
// so it finds all that are built on this platform.
func TestFuzzTargetsAreFound(t *testing.T) {
	tr := sourceTree(t)
	names := map[string]string{}
	for _, p := range tr.packages {
		for _, f := range p.files {
			for _, fn := range fuzzTargets(f) {
				at := tr.pos(fn.Pos())
				if !f.test {
					t.Errorf("%s: %s is in a file that is no test", at, fn.Name.Name)
				}
				if strings.Contains(string(f.text[:f.ast.Package-f.ast.FileStart]), "//go:build") {
					t.Errorf("%s: %s has build constraints, under which make fuzz may miss it", at, fn.Name.Name)
				}
				if p.dir != "testdata" && (strings.Contains("/"+p.dir+"/", "/testdata/") || strings.Contains("/"+p.dir, "/_")) {
					t.Errorf("%s: %s is in a folder that ./... leaves out", at, fn.Name.Name)
				}
				key := p.dir + "." + fn.Name.Name
				if names[key] != "" {
					t.Errorf("%s: %s again, first at %s", at, fn.Name.Name, names[key])
				}
				names[key] = at
			}
		}
	}
	if len(names) == 0 {
		t.Error("no fuzz target found")
	}
}

// Parsers take bytes from disk and network, so each has a fuzz target: a file
// with one in its own package that mentions it.
func TestParsersAreFuzzed(t *testing.T) {
	tr := sourceTree(t)
	ok := except(notFuzzed)
	parser := regexp.MustCompile(`^(Parse|Verify[A-Z]|Decode|Unmarshal)`)
	for _, p := range tr.packages {
		if p.program() || p.dir == "internal/house" {
			continue
		}
		fuzzed := map[string]bool{}
		for _, f := range p.files {
			if f.test && len(fuzzTargets(f)) > 0 {
				ast.Inspect(f.ast, func(n ast.Node) bool {
					if id, isIdent := n.(*ast.Ident); isIdent {
						fuzzed[id.Name] = true
					}
					return true
				})
			}
		}
		for _, f := range p.shipped() {
			for _, decl := range f.ast.Decls {
				fn, isFunc := decl.(*ast.FuncDecl)
				if !isFunc || !fn.Name.IsExported() || !parser.MatchString(fn.Name.Name) || !takesBytes(fn) {
					continue
				}
				if !fuzzed[fn.Name.Name] && !ok.allow(p.dir+"."+fn.Name.Name) {
					t.Errorf("%s: %s has no fuzz target", tr.pos(fn.Pos()), fn.Name.Name)
				}
			}
		}
	}
	ok.done(t)
}

// fuzzTargets returns the fuzz targets of f, by their signature.
func fuzzTargets(f *source) []*ast.FuncDecl {
	var out []*ast.FuncDecl
	local := f.importName("testing")
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || local == "" || len(fn.Type.Params.List) != 1 || !strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		if star, ok := fn.Type.Params.List[0].Type.(*ast.StarExpr); ok && baseName(star.X) == "F" {
			out = append(out, fn)
		}
	}
	return out
}

// takesBytes reports whether the first parameter is []byte or string.
func takesBytes(fn *ast.FuncDecl) bool {
	if len(fn.Type.Params.List) == 0 {
		return false
	}
	switch typ := fn.Type.Params.List[0].Type.(type) {
	case *ast.ArrayType:
		return typ.Len == nil && baseName(typ.Elt) == "byte"
	case *ast.Ident:
		return typ.Name == "string"
	}
	return false
}
