//go:build unix

package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/segtier/segtier/metadata"
)

// TestGuardCatchesFaults: reading mapped memory where the file has ended does
// not end the process.
func TestGuardCatchesFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := syscall.Mmap(int(f.Fd()), 0, 1<<16, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mem) }()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var sum byte
	err = guard(func() error {
		sum += mem[1<<15]
		return nil
	})
	if !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("got %v, %d", err, sum)
	}
}
