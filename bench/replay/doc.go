// Package replay drives consumer traffic against a tier and measures it: traffic
// that was recorded from a host, or made up.
//
//	host ─ fetch.Events ─► Recorder ─► trace file ─► Read ─┐
//	                            Workload, by its name ─────┴─► Run ─► Target.Fetch
//	                                                            │     a goroutine for each consumer
//	                                                            └───► Report: HDR histograms
//
// # Time
//
// Each event is due at a time: its own, divided by a speed, or its number
// divided by a rate. A consumer does one thing at a time, so an event may begin
// late, because the one before took long. Its latency is counted from when it
// was due, not from when it began: what a consumer had to wait for is not left
// out (no coordinated omission). Service time, from when it began, is told
// beside it. At full speed nothing is due, and both are the same.
//
// # Guarantees
//
//   - Every event is either replayed, counted and measured, or the report says that
//     the run was cut short.
//   - The end of the tier is an answer; every other error is counted as one, and the
//     first is in the report.
//   - A trace that cannot be understood is refused before anything is fetched, with its
//     line.
//   - The same workload, world and seed are the same events.
//
// # Not handled
//
// A replayed consumer asks for the offsets in the trace, whatever it was given; where
// traffic is made up, and so batches are not known, who reads in sequence goes on where
// its last read ended.
// Latencies include what Go's timers are late, which on a busy machine is a
// millisecond; Report.StartDelay shows it.
package replay
