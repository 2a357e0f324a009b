package house

import (
	"bytes"
	"cmp"
	"flag"
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/exported.txt anew")

const goldenExported = "testdata/exported.txt"

// TestExportedNames compares every name that a host can use with the golden
// list, so that a growing surface shows in review. Names only: what they mean is
// in their comments.
func TestExportedNames(t *testing.T) {
	tr := sourceTree(t)
	var b bytes.Buffer
	for _, p := range tr.packages {
		if !p.importable() {
			continue
		}
		b.WriteString(p.dir + "\n")
		for _, name := range exportedNames(p) {
			b.WriteString("\t" + name + "\n")
		}
	}
	if *update {
		if err := os.WriteFile(goldenExported, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(goldenExported)
	if err != nil {
		t.Fatal(err)
	}
	have, golden := withPackage(b.String()), withPackage(string(want))
	for _, name := range have {
		if !slices.Contains(golden, name) {
			t.Errorf("new exported name: %s", name)
		}
	}
	for _, name := range golden {
		if !slices.Contains(have, name) {
			t.Errorf("exported name is gone: %s", name)
		}
	}
	if t.Failed() {
		t.Log("if that is meant, add a line to \"Exported names\" in DESIGN.md that says why, and run: make exported")
	}
}

// withPackage turns the list into lines that stand alone.
func withPackage(list string) []string {
	var out []string
	pkg := ""
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, "\t"); ok {
			out = append(out, pkg+": "+name)
		} else {
			pkg = line
		}
	}
	return out
}

// exportedNames lists the exported declarations of p, sorted.
func exportedNames(p *pkg) []string {
	var names []string
	for _, f := range p.shipped() {
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() {
					continue
				}
				if d.Recv == nil {
					names = append(names, "func "+d.Name.Name)
				} else if recv := receiver(d); ast.IsExported(recv) {
					names = append(names, "method "+recv+"."+d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					names = append(names, exportedSpec(d.Tok, spec)...)
				}
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		// By name, so that a type and its methods stand together.
		_, x, _ := strings.Cut(a, " ")
		_, y, _ := strings.Cut(b, " ")
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	})
	return slices.Compact(names) // one name may have a file for each platform
}

func exportedSpec(tok token.Token, spec ast.Spec) []string {
	var names []string
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() {
				names = append(names, tok.String()+" "+n.Name)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return nil
		}
		names = append(names, "type "+s.Name.Name)
		switch typ := s.Type.(type) {
		case *ast.StructType:
			names = append(names, members("field", s.Name.Name, typ.Fields)...)
		case *ast.InterfaceType:
			names = append(names, members("method", s.Name.Name, typ.Methods)...)
		}
	}
	return names
}

// members lists the exported fields of a struct or methods of an interface,
// embedded types too.
func members(kind, typ string, list *ast.FieldList) []string {
	var names []string
	for _, field := range list.List {
		for _, n := range field.Names {
			if n.IsExported() {
				names = append(names, kind+" "+typ+"."+n.Name)
			}
		}
		if len(field.Names) == 0 {
			if n := baseName(field.Type); ast.IsExported(n) {
				names = append(names, "embedded "+typ+"."+n)
			}
		}
	}
	return names
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string { return baseName(d.Recv.List[0].Type) }

// baseName strips pointers, package names and type parameters off a type.
func baseName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return baseName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return baseName(e.X)
	case *ast.IndexListExpr:
		return baseName(e.X)
	case *ast.ParenExpr:
		return baseName(e.X)
	}
	return ""
}
