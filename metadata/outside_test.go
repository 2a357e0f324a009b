package metadata_test

import (
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
	if err := os.CopyFS(dir, os.DirFS("testdata/outside")); err != nil {
		t.Fatal(err)
	}
	const module = "github.com/segtier/segtier"
	mod := fmt.Sprintf("module outside\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, root)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600); err != nil {
		t.Fatal(err)
	}
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
