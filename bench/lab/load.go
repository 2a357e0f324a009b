package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Other load disturbs a round if others use more than this of a processor, or the
// hypervisor takes more than that.
const (
	othersShare = 0.15
	stealShare  = 0.02
	tick        = 10 * time.Millisecond // of /proc/stat
)

// loadWatch tells load of others from our own.
type loadWatch struct {
	pids []int // of our processes that live on
}

// busy is what the machine's processors did so far.
type busy struct {
	at           time.Time
	total, steal time.Duration // user and system, of everybody; steal
	ours         time.Duration // of this process, those it waited for, and those that live on
	ok           bool          // /proc says
}

func (w loadWatch) now() busy {
	b := busy{at: time.Now()}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return b
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	f := strings.Fields(line)
	if len(f) < 9 {
		return b
	}
	// user, nice, system; what interrupts do is nobody's.
	b.total, b.steal, b.ok = ticks(f[1])+ticks(f[2])+ticks(f[3]), ticks(f[8]), true
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			b.ours += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	for _, pid := range w.pids {
		b.ours += cpuOf(pid)
	}
	return b
}

func ticks(s string) time.Duration {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * tick
}

// cpuOf returns the CPU that a process has used; 0 if it is gone.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name, in brackets, may hold anything.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0
	}
	return ticks(f[11]) + ticks(f[12])
}

// watch begins to look; what it returns tells whether nobody else was there.
func (w loadWatch) watch() func() bool {
	before := w.now()
	return func() bool {
		after := w.now()
		if !before.ok || !after.ok {
			return true // nobody can say
		}
		return quiet(before, after)
	}
}

// quiet reports whether others used little enough between two moments.
func quiet(before, after busy) bool {
	wall := after.at.Sub(before.at)
	others := (after.total - before.total) - (after.ours - before.ours)
	steal := after.steal - before.steal
	// Two ticks may be counted to the wrong side.
	return others <= time.Duration(float64(wall)*othersShare)+2*tick &&
		steal <= time.Duration(float64(wall)*stealShare)+2*tick
}
