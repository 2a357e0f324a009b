// Package bench holds benchmarks of whole jobs, through the same calls that a
// host makes. Benchmarks of single parts stand beside the part.
//
//	BenchmarkCopy             one 16 MiB segment, scan to FINISHED, directory store    B/s of log
//	BenchmarkFetchSequential  the same segment from first to last offset               B/s of log
//	    cache=cold            every byte from the store, verified
//	    cache=hot             every byte from memory
//	BenchmarkOffsetForTime    a time lookup in memory                                  ns/op
//
// Run them with `make bench`; compare two versions with benchstat over at least
// six runs each, interleaved.
package bench
