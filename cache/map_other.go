//go:build !linux

package cache

import "errors"

const offHeap = false

func mapMemory(int) ([]byte, error) {
	return nil, errors.New("cache: arenas are for Linux")
}

func unmapMemory([]byte)   {}
func releaseMemory([]byte) {}
func wantHugePages([]byte) {}
