//go:build unix

package segment_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// TestPipesAreNotOpened: a pipe in place of a file is refused; opening it would
// wait for a writer that never comes.
func TestPipesAreNotOpened(t *testing.T) {
	for _, name := range []string{".log", ".index", ".timeindex", ".txnindex", "leader-epoch-checkpoint", "partition.metadata"} {
		log, path := writeDir(t, 1, testseg.Options{})
		start := log.Segments[1].Info().StartOffset
		file := filepath.Join(path, name)
		if name[0] == '.' {
			file = filepath.Join(path, base(start)+name)
		}
		_ = os.Remove(file) // may not be there
		if err := syscall.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := segment.OpenDir(path, start); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
