// Package subject is segtier as the lab's subject: the works that a runner of
// ours does, through the calls that a host makes. Every byte that a Fetch
// returns goes to the sink, over TCP, or is compared on the spot where the order of
// reads is no sequence.
//
//	fill, fanout, serve      a partition front to back, by one or many, cold or hot
//	latency, tail, cold      how long one fetch takes, in weather
//	mix                      random, seeks, loops, Zipf, many streams
//	lookup                   OffsetForTime, counted in GETs
//	upload                   transfer.Upload of a segment, or of many at a time
//	lease, fetchhot, …       single steps in memory, beside what they are compared with
//	policy                   a cache trace through Reader.Fetch
//
// Everything is at its default but for the budget of memory, which each job names, and for
// what it sets in Param (Limits).
package subject

import "github.com/segtier/segtier/bench/job"

// Works returns what this package can do.
func Works() map[string]job.Work {
	return map[string]job.Work{
		"segtier/fill":    fill,
		"segtier/fanout":  fanout,
		"segtier/serve":   serve,
		"bare/serve":      serveBare,
		"segtier/upload":  upload,
		"segtier/latency": latency,
		"segtier/tail":    tail,
		"segtier/mix":     mix,
		"segtier/cold":    cold,
		"segtier/lookup":  lookup,
		"segtier/policy":  tracePolicy,

		"segtier/lease":         leaseHot,
		"ristretto/lease":       ristrettoGet,
		"segtier/fetchhot":      fetchHot,
		"segtier/offsetlookup":  offsetLookup,
		"bare/offsetlookup":     offsetSearch,
		"segtier/segmentlookup": segmentLookup,
		"bare/segmentlookup":    segmentMap,
		"segtier/segmentmemory": segmentMemory,
		"segtier/restart":       missing("the disk tier does not exist yet"),
		"segtier/kill":          missing("the disk tier does not exist yet"),
	}
}
