// Package job is how the lab talks to the programs that it compares: a job is a
// line of JSON on the standard input of a process that does nothing else, and
// its result a line on the standard output.
//
//	lab ──job──► runner (ours or a peer's) ──GET, PUT──► weather server
//	    ◄─result─       │ served bytes, over TCP
//	                    └──────────────► sink ──length, CRC-32C──► lab
//
// All runners measure with the same code: what the process's CPU did between
// Meter.Start and Meter.Stop (getrusage), what it allocated, and how far its
// resident memory rose. One process does one job, so no pool that another job
// has warmed and no garbage that it left are part of a figure.
//
// Nobody believes a runner's own word about bytes. What was read is written to
// the sink, a process of its own, which sums it; what was written is read back
// by the lab. A row whose sums are not the expected ones is void.
package job
