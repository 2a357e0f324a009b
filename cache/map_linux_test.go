package cache

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// Large slabs ask for huge pages, small ones do not: of those there are many sizes, and
// each would have a page that is mostly empty.
func TestLargeSlabsAskForHugePages(t *testing.T) {
	arenas(t)
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("this system has no huge pages")
	}
	var s slabs
	defer s.close()
	for size, want := range map[int]bool{64 << 10: false, hugeSlab - 1<<17: false, hugeSlab: true, 4 * hugeSlab: true} {
		b := s.alloc(size)
		flags := flagsOf(t, b.buf)
		if got := slices.Contains(flags, "hg"); got != want {
			t.Errorf("a slab of %d bytes asks for huge pages: %v, want %v (%v)", size, got, want, flags)
		}
		s.free(b, 0)
	}
}

// flagsOf returns what the system knows of the mapping that b is in.
func flagsOf(t *testing.T, b []byte) []string {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	var at uint64
	if _, err := fmt.Sscanf(fmt.Sprintf("%p", &b[0]), "0x%x", &at); err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			return strings.Fields(flags)
		}
	}
	t.Fatal("the mapping of a slab is not to be found")
	return nil
}
