package cache

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// Bounds of the default budget, in bytes.
const (
	leastDefault   = 16 << 20  // however little there is
	unknownDefault = 256 << 20 // where the system does not say what there is
)

// DefaultMemoryBytes returns the budget that Options leaves unset: a quarter of
// what this process may use, which is the limit of its control group (version 1
// or 2, and of the groups around it), else the memory of the machine. It is
// 256 MiB where neither is known, and 16 MiB at least.
func DefaultMemoryBytes() int64 {
	limit := memoryLimit(os.DirFS("/"))
	if limit == 0 {
		return unknownDefault
	}
	return max(limit/4, leastDefault)
}

// memoryLimit returns how many bytes a process may use, 0 if that is unknown.
func memoryLimit(root fs.FS) int64 {
	limit := int64(0)
	lower := func(n int64) {
		if n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	if b, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		lower(memTotal(b))
	}
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		// hierarchy:controllers:path
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var mount, file string
		switch {
		case parts[0] == "0" && parts[1] == "":
			mount, file = "sys/fs/cgroup", "memory.max"
		case hasController(parts[1], "memory"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// The group's own limit and those of all around it. A container may see the path
		// of the host, of which only the root is there: that is its own group then.
		for dir := path.Join("/", parts[2]); ; dir = path.Dir(dir) {
			if b, err := fs.ReadFile(root, path.Join(mount, dir, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil { // not "max"
					lower(n)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// memTotal returns the bytes of the machine's memory by /proc/meminfo, 0 if it
// does not say.
func memTotal(meminfo []byte) int64 {
	for line := range strings.SplitSeq(string(meminfo), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil && n > 0 && n < 1<<50 {
				return n << 10
			}
		}
	}
	return 0
}

// SetMemoryBytes changes the budget, 0 is DefaultMemoryBytes again. What nobody
// leases is evicted at once; what is leased beyond the new budget goes as it is
// released, and until then nothing more is granted. Who waits for more than the
// new budget fails with ErrTooLarge.
func (c *Cache) SetMemoryBytes(n int64) error {
	o, err := Options{MemoryBytes: n}.validate()
	if err != nil {
		return err
	}
	g := &c.ledger
	g.mu.Lock()
	defer c.unlock()
	g.mainTarget = int64(float64(g.mainTarget) / float64(max(g.budget, 1)) * float64(o.MemoryBytes))
	g.budget = o.MemoryBytes
	g.budgetNow.Store(g.budget)
	g.bound()
	kept := g.queue[:0]
	for _, w := range g.queue {
		if w.n <= g.budget {
			kept = append(kept, w)
			continue
		}
		w.err = tooLarge(w.n, g.budget)
		g.pressure.Add(-1)
		close(w.ready)
	}
	clear(g.queue[len(kept):])
	g.queue = kept
	g.trim()
	g.serve()
	return nil
}
