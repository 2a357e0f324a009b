// Package bench holds benchmarks of whole jobs, through the same calls that a
// host makes. Benchmarks of single parts stand beside the part.
//
//	BenchmarkCopy             one 16 MiB segment, scan to FINISHED, directory store    B/s of log
//	BenchmarkFetchSequential  the same segment from first to last offset               B/s of log
//	    cache=cold            every byte from the store, verified
//	    cache=hot             every byte from memory
//	BenchmarkFetch            1 MiB from generated segments, no store between          B/s, GET/op
//	    pattern=seq|random    chunk=256KiB|1MiB|4MiB  hit=0|100 (per cent in memory)
//	BenchmarkFetchFollowers   the same MiB to several consumers at once                B/s, GET/op
//	BenchmarkOffsetForTime    a time lookup in memory                                  ns/op
//
// Run them with `make bench`; `make bench-compare REF=main` runs two versions in
// turns and compares them with benchstat. What they say is how versions compare,
// on one machine; how we compare with others, and whether we reach what we set
// out to, is for bench/lab.
package bench
