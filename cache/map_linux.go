//go:build linux

package cache

import "syscall"

// offHeap: chunks lie in arenas, except under the race detector, which does not
// see memory that is not Go's.
const offHeap = !raceDetector

func mapMemory(n int) ([]byte, error) {
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// wantHugePages asks the system for pages of 2 MiB: each of the small ones that is
// touched for the first time is a fault, and those took longer than all else that a fill
// does. Where the system grants none all is as it was.
func wantHugePages(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) } // advice

func unmapMemory(b []byte) { _ = syscall.Munmap(b) } // of what was mapped: cannot fail

// releaseMemory lets the system have the memory until it is written to again.
func releaseMemory(b []byte) { _ = syscall.Madvise(b, syscall.MADV_DONTNEED) } // advice
