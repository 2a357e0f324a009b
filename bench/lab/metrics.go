package main

import (
	"fmt"
	"slices"

	"github.com/segtier/segtier/bench/policy"
)

// What figures are compared with.
const (
	baseManager   = "feature/s3/manager"
	baseRistretto = "ristretto.Get"
	baseBelady    = "Belady's optimum"
)

// targets are the figures that have a reach, in the order of the design.
func targets() []metric {
	timed := func(id, what, unit, base string, o op, limit float64) metric {
		return metric{id: id, what: what, unit: unit, base: base, op: o, limit: limit, timed: true}
	}
	counted := func(id, what, unit, base string, o op, limit float64) metric {
		return metric{id: id, what: what, unit: unit, base: base, op: o, limit: limit}
	}
	return []metric{
		timed("upload_cpu_http", "CPU of an upload over HTTP", "x", baseManager, atMost, .60),
		timed("upload_cpu_tls", "CPU of an upload over TLS", "x", baseManager, atMost, 1.10),
		timed("upload_wall", "time of an upload over HTTP", "x", baseManager, atMost, 1.0),
		counted("upload_alloc_mib", "allocated by an upload of 256 MiB", "MiB", "", atMost, 4),
		counted("upload_rss_growth", "memory with parts of 64 MiB", "x", "parts of 8 MiB", atMost, 1.1),
		timed("lease_cost", "lease and release of a chunk in memory", "x", baseRistretto, atMost, 2.5),
		counted("lease_allocs", "allocations of that", "1", "", atMost, 0),
		timed("lease_scaling", "leases on two goroutines", "x", "one goroutine", atLeast, 1.6),
		timed("fetch_hot_cost", "Fetch of 1 MiB in memory, AppendTo, Release", "x", baseRistretto, atMost, 12),
		counted("fetch_hot_allocs", "allocations of that", "1", "", atMost, 0),
		timed("serve_cpu", "CPU of serving what is in memory", "x", "writing the same memory", atMost, 1.10),
		timed("fill_cpu_readfull", "CPU of a cold verified read", "x", "GetObject + io.ReadFull + CRC-32C", atMost, 1.10),
		timed("fill_cpu_readall", "CPU of a cold verified read", "x", "GetObject + io.ReadAll", atMost, .75),
		counted("gets_sequential", "GETs for 7.5 MiB in sequence", "GET", "", atMost, 1),
		counted("gets_fanout", "GETs for 7.5 MiB to each of 4 followers", "GET", "", atMost, 1),
		counted("amplification_sequential", "bytes fetched", "x", "bytes served once", atMost, 1.02),
		counted("amplification_mixed", "bytes fetched by a mixed crowd", "x", "bytes served once", atMost, 1.30),
		counted("duplicate_bytes", "bytes fetched twice while in memory", "B", "", atMost, 0),
		timed("catchup_rate", "one consumer catching up", "x", "min(link, connections × rate)", atLeast, .90),
		timed("first_bytes", "median time to the first MiB of a cold run", "x", "GET of 1 MiB", atMost, 1.10),
		counted("cold_segment_gets", "most GETs of a fetch from a cold segment", "GET", "", atMost, 2),
		counted("time_lookup_gets", "most GETs of a cold lookup by time", "GET", "", atMost, 2),
		timed("demand_p99", "p99 of 1 MiB from a heavy-tailed store", "x", "GET of 1 MiB", atMost, .70),
		counted("demand_extra_gets", "GETs more than one for each of those", "x", "one GET each", atMost, .05),
		timed("tail_p99_with_backfills", "p99 at the tail beside 8 backfills", "x", "alone", atMost, 1.5),
		counted("hit_ratio_known", "least share of the optimum, traces A to D", "x", baseBelady, atLeast, .95),
		counted("hit_ratio_half_known", "the same, half of the cursors known", "x", baseBelady, atLeast, .70),
		counted("resident_memory", "high water with 1,000 streams", "x", "budget + 64 MiB", atMost, 1.10),
		counted("throttled_success", "reads that succeed with 20 % of 503", "x", "all reads", atLeast, 1),
		counted("throttled_gets", "GETs with 20 % of 503", "x", "GETs without", atMost, 1.3),
		timed("offset_lookup", "chunk of an offset in 1 GiB", "x", "sort.Search", atMost, 1.0),
		timed("segment_lookup", "segment of an offset among a million", "x", "map and sort.Search", atMost, 1.5),
		counted("segment_memory", "memory of a segment's metadata", "B", "", atMost, 200),
		timed("restart_first_hit", "first hit after a restart with a warm disk tier", "x", "reading the journal", atMost, 1.5),
		counted("wrong_bytes_after_kill", "wrong bytes from the disk tier after kill -9", "B", "", atMost, 0),
	}
}

// peersOf are who else does a work.
func peersOf(work string) []string {
	switch work {
	case "upload":
		return []string{"manager", "transfermanager", "minio"}
	case "fill":
		return []string{"manager", "transfermanager", "minio", "getobject-readall", "getobject-readfull", "http-readfull", "caching-bucket", "week"}
	default:
		return nil
	}
}

// policies are the caches that are compared on traces.
func policies() []string {
	return []string{"belady", segtier, "segtier-half", "lru", "s3fifo", "ristretto", "otter"}
}

// Sizes that grow.
func growingStreams() []int { return []int{1, 10, 100, 1000} }

func growingSegments() []int { return []int{1_000, 10_000, 100_000, 1_000_000} }

func growingSizes() []int64 { return []int64{1, 16, 256, 1024} } // MiB

// extras are figures beside the targets.
func extras() []metric {
	all := []metric{
		{id: "content_check", what: "bit flips on the way that the read path let pass", unit: "B", op: atMost},
		{id: "fill_cpu_small_batches", what: "CPU of a cold verified read, batches of 100 B", unit: "x", base: "GetObject + io.ReadFull + CRC-32C", op: atMost, limit: 1.30, timed: true},
		{id: "offset_lookup_allocs", what: "allocations of a lookup in 1 GiB", unit: "1", op: atMost},
		{id: "segment_lookup_allocs", what: "allocations of a lookup among a million", unit: "1", op: atMost},
		{id: "workload_catchup", what: "one consumer, calm store", unit: "MiB/s"},
		{id: "workload_fanout", what: "CPU of 4 followers", unit: "x", base: "week"},
		{id: "workload_backfills_2", what: "p99 at the tail beside 2 backfills", unit: "x", base: "alone"},
		{id: "workload_random_p99", what: "64 KiB anywhere", unit: "ms"},
		{id: "workload_random_amplification", what: "bytes fetched", unit: "x", base: "bytes served once"},
		{id: "workload_seek_p99", what: "256 KiB, jumping", unit: "ms"},
		{id: "workload_seek_amplification", what: "bytes fetched", unit: "x", base: "bytes served once"},
		{id: "workload_loop_hits", what: "chunks from memory, loop of 1.5 times the budget", unit: "1"},
		{id: "workload_zipf_hits", what: "chunks from memory, old segments", unit: "1"},
		{id: "workload_streams", what: "1,000 streams in 256 MiB", unit: "MiB/s"},
		{id: "workload_slow_consumer", what: "time of 16 fast streams beside a slow one", unit: "x", base: "without it", timed: true},
		{id: "workload_lookups_gets", what: "GETs of a lookup by time, 512 over 128 partitions, 32 at once", unit: "GET"},
		{id: "workload_lookups_p99", what: "p99 of those", unit: "ms"},
		{id: "workload_upload_one", what: "upload of one segment", unit: "MiB/s"},
		{id: "workload_upload_64", what: "upload of 64 segments at a time", unit: "MiB/s"},
	}
	for _, n := range growingStreams()[1:] {
		all = append(all, metric{id: fmt.Sprintf("growth_streams_%d", n), what: "CPU of a MiB", unit: "x", base: "one after the other", op: atMost, limit: 1.10, timed: true})
	}
	for _, n := range growingSegments()[1:] {
		all = append(all, metric{id: fmt.Sprintf("growth_segments_%d", n), what: "CPU of a lookup", unit: "x", base: "1000 segments", timed: true})
	}
	for _, n := range growingSizes()[1:] {
		all = append(all, metric{id: fmt.Sprintf("growth_segment_%dMiB", n), what: "CPU of a MiB", unit: "x", base: "segments of 1 MiB", op: atMost, limit: 1.10, timed: true})
	}
	for _, t := range tunings() {
		all = append(all, t.metrics()...)
	}
	for _, work := range []string{"upload", "fill"} {
		for _, p := range peersOf(work) {
			all = append(all, metric{id: "peer_" + work + "_" + p, what: "our CPU", unit: "x", base: p, timed: true})
		}
	}
	for _, t := range policy.Names() {
		for _, p := range policies() {
			all = append(all, metric{id: "policy_" + t + "_" + p, what: "hit ratio", unit: "1"})
		}
	}
	return all
}

// metricOf finds a metric.
func metricOf(id string) (metric, error) {
	for _, all := range [][]metric{targets(), extras()} {
		if i := slices.IndexFunc(all, func(m metric) bool { return m.id == id }); i >= 0 {
			return all[i], nil
		}
	}
	return metric{}, fmt.Errorf("there is no metric %q", id)
}
