package segment_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// A hole among the logs is not taken for an end: neither one that shows by its
// index, nor a log that is something else than a file.
func TestDirSeesHoles(t *testing.T) {
	log, path := writeDir(t, 1, testseg.Options{})
	middle := filepath.Join(path, base(log.Segments[1].Info().StartOffset)+".log")
	if err := os.Remove(middle); err != nil {
		t.Fatal(err)
	}
	if got, err := (segment.Dir{Path: path}).Segments(); err == nil || !strings.Contains(err.Error(), "is missing, but its index is there") {
		t.Errorf("Segments without the second log = %v, %v", got, err)
	}
	if err := os.Mkdir(middle, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := (segment.Dir{Path: path}).Segments(); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("Segments with a directory for the second log = %v, %v", got, err)
	}
	// What retention left below the first log is no hole.
	log, path = writeDir(t, 1, testseg.Options{})
	if err := os.Remove(filepath.Join(path, base(log.Segments[0].Info().StartOffset)+".log")); err != nil {
		t.Fatal(err)
	}
	if got, err := (segment.Dir{Path: path}).Segments(); err != nil || len(got) != len(log.Segments)-1 {
		t.Errorf("Segments without the first log = %v, %v", got, err)
	}
}
