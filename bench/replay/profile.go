package replay

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
)

// Profiles are the names of the files that a Profiler writes.
func Profiles() []string {
	return []string{"cpu.pprof", "heap.pprof", "allocs.pprof", "block.pprof", "mutex.pprof", "goroutine.pprof"}
}

// Profiler writes profiles of a steady state into a directory: CPU, block and
// mutex between Start and Stop, goroutines and heap as they were at the last Look,
// and allocations since the process began. There can be one in a process.
type Profiler struct {
	dir string

	mu              sync.Mutex
	cpu             *os.File // nil: not started; guarded by mu
	goroutine, heap []byte   // guarded by mu
	mutexBefore     int      // the fraction to go back to; guarded by mu
}

const (
	// One in so many contended mutexes, and one blocking of so many nanoseconds, is
	// sampled: dear enough to see, and too rare to be felt.
	mutexFraction = 10
	blockRate     = 10_000
)

// NewProfiler makes the directory.
func NewProfiler(dir string) (*Profiler, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	return &Profiler{dir: dir}, nil
}

// Start begins.
func (p *Profiler) Start() error {
	f, err := os.Create(filepath.Join(p.dir, "cpu.pprof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cpu = f
	p.mutexBefore = runtime.SetMutexProfileFraction(mutexFraction)
	runtime.SetBlockProfileRate(blockRate)
	return nil
}

// Look keeps what goroutines do and what the heap holds at the moment, if Start was
// called.
func (p *Profiler) Look() error {
	p.mu.Lock()
	started := p.cpu != nil
	p.mu.Unlock()
	if !started {
		return nil
	}
	goroutine, err := profile("goroutine")
	if err != nil {
		return err
	}
	heap, err := profile("heap")
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.goroutine, p.heap = goroutine, heap
	return nil
}

func profile(name string) ([]byte, error) {
	var b bytes.Buffer
	if err := pprof.Lookup(name).WriteTo(&b, 0); err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// Stop ends the profiles and writes them. It does nothing if Start was not
// called, and starts or looks no more.
func (p *Profiler) Stop() error {
	p.mu.Lock()
	f, goroutine, heap, before := p.cpu, p.goroutine, p.heap, p.mutexBefore
	p.cpu = nil
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	pprof.StopCPUProfile()
	err := f.Close()
	files := map[string][]byte{"goroutine": goroutine, "heap": heap}
	for _, name := range []string{"allocs", "block", "mutex", "goroutine", "heap"} {
		b := files[name]
		if b == nil {
			var failed error
			if b, failed = profile(name); failed != nil {
				err = errors.Join(err, failed)
				continue
			}
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(p.dir, name+".pprof"), b, 0o666))
	}
	runtime.SetMutexProfileFraction(before)
	runtime.SetBlockProfileRate(0)
	return err
}
