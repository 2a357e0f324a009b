package job

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Meter measures this process between Start and Stop.
type Meter struct {
	state meterState
	bytes atomic.Int64

	mu   sync.Mutex
	keys []string // guarded by mu

	began        time.Time
	mem          runtime.MemStats
	user, system float64

	wall               float64
	endUser, endSystem float64
	allocBytes, allocs int64
	peak               int64
}

type meterState int

const (
	idle meterState = iota
	running
	stopped
)

// Start begins. What was set up before does not count: garbage is collected and
// the high water of resident memory is forgotten.
func (m *Meter) Start() {
	runtime.GC()
	resetPeak()
	runtime.ReadMemStats(&m.mem)
	m.user, m.system = cpu()
	m.began = time.Now()
	m.state = running
}

// Count adds to the bytes that were served or sent.
func (m *Meter) Count(n int64) { m.bytes.Add(n) }

// Wrote names an object that was uploaded, for the lab to look at.
func (m *Meter) Wrote(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = append(m.keys, key)
}

// Stop ends; only the first call counts.
func (m *Meter) Stop() {
	if m.state != running {
		return
	}
	m.state = stopped
	m.wall = time.Since(m.began).Seconds()
	user, system := cpu()
	m.endUser, m.endSystem = user-m.user, system-m.system
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	m.allocBytes = int64(after.TotalAlloc - m.mem.TotalAlloc)
	m.allocs = int64(after.Mallocs - m.mem.Mallocs)
	m.peak = peakRSS()
}

// fill writes the measurement into r.
func (m *Meter) fill(r *Result) {
	m.Stop()
	r.Wall, r.User, r.System = m.wall, m.endUser, m.endSystem
	r.AllocBytes, r.Allocs, r.PeakRSS = m.allocBytes, m.allocs, m.peak
	r.Bytes = m.bytes.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.keys)
	r.Keys = m.keys
}
