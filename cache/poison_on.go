//go:build segtier_poison

package cache

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

// With this tag freed memory is overwritten, so that who still reads it sees
// nonsense and not yesterday's bytes, and a lease that the garbage collector
// finds unreleased is reported with where it was taken.
const (
	poison     = true
	poisonByte = 0xDB
)

// lifeline is collected with the Lease that holds it.
type lifeline struct{ line *line }

type line struct{ told *leak }

// leak is what is told of a lease; the line points to it and not the other way.
type leak struct {
	over  atomic.Bool
	c     *Cache
	key   Key
	stack [16]uintptr
}

func (lifeline) begin(e *entry) lifeline {
	told := &leak{c: e.c, key: e.key}
	runtime.Callers(3, told.stack[:])
	l := &line{told}
	runtime.AddCleanup(l, func(told *leak) {
		if !told.over.Load() {
			told.c.leaks.Add(1)
			report(told)
		}
	}, told)
	return lifeline{l}
}

func (l lifeline) end() {
	if l.line != nil {
		l.line.told.over.Store(true)
	}
}

func report(l *leak) {
	b := fmt.Appendf(nil, "segtier: a lease of chunk %d of %x was never released; it was taken by\n", l.key.Chunk, l.key.Object)
	frames := runtime.CallersFrames(l.stack[:])
	for {
		f, more := frames.Next()
		if f.Function != "" {
			b = fmt.Appendf(b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			break
		}
	}
	_, _ = os.Stderr.Write(b)
}
