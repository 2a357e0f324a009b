package metadata_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgramsOutsideCannotPublishFinished compiles programs of another module,
// offline, that try to make a segment readable without a receipt. What they do in
// testdata/outside either does not compile or is refused.
func TestProgramsOutsideCannotPublishFinished(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"literal", "receipt", "minting", "refused"} {
		// Under another name, so that tools do not take them for ours.
		content, err := os.ReadFile(filepath.Join("testdata", "outside", program+".go.txt"))
		if err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(program, "main.go"), content)
	}
	const module = "github.com/segtier/segtier"
	mod := fmt.Sprintf("module outside\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, root)
	write("go.mod", []byte(mod))
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	write("go.sum", sum)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for program, reason := range map[string]string{
		"literal": "unexported field seg",
		"receipt": "unexported field facts",
		"minting": "use of internal package " + module + "/internal/mint not allowed",
	} {
		out, err := run("build", "-o", os.DevNull, "./"+program)
		if err == nil || !strings.Contains(out, reason) {
			t.Errorf("%s: want it not to compile (%s), got %v:\n%s", program, reason, err, out)
		}
	}
	out, err := run("run", "./refused", filepath.Join(dir, "m.db"))
	if err != nil || strings.TrimSpace(out) != "done" {
		t.Errorf("refused: %v:\n%s", err, out)
	}
}
