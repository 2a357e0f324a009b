package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// pinned tells the program that it has been started again on its CPUs.
const pinned = "SEGTIER_WEATHER_PINNED"

// pin has the whole process run on these CPUs. Threads that are there already
// would stay where they are, so the program starts itself again: the CPUs of a
// thread are kept by exec and by the threads that it makes.
func pin(cpus string) error {
	if os.Getenv(pinned) == cpus {
		return nil
	}
	var set unix.CPUSet
	for text := range strings.SplitSeq(cpus, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n >= runtime.NumCPU() && n > 1023 {
			return fmt.Errorf("%q is no CPU", text)
		}
		set.Set(n)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	return syscall.Exec(program, os.Args, append(os.Environ(), pinned+"="+cpus))
}
