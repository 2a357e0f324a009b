// Package policy compares cache policies on traces of log traffic: which share
// of the accesses each finds in a cache of so many chunks of equal weight.
//
// # Traces
//
// A chunk is (partition, position); a segment is 256 chunks. An access is a hit
// or a miss, and a miss inserts. The capacity is 2,048 chunks, of A2 2,560.
//
//	A   32 partitions, 4 consumers each at lags 0, 8, 16, 40 chunks behind the tail;
//	    4,000 ticks. In each tick, partition by partition, consumer by consumer in the
//	    order of the lags, the consumer with lag l reads position 1,000,000 + tick − l
//	    if tick ≥ l.
//	A2  A at capacity 2,560
//	B   A with lags 0, 8, 16, 80
//	C   A and, from tick 500 on, after the tails of each tick, 2 backfill readers on
//	    partitions of their own, 64 consecutive chunks each per tick from position 0
//	D   as C with 8 backfill readers and 3,000 ticks
//	E   Zipf, s = 1.01, v = 1, over 50,000 chunks, 600,000 accesses; no cursors
//	F   two readers loop over one partition of 3,072 chunks, half a loop apart, in
//	    turn, 40 rounds
//	G   300,000 accesses of E, then A with 3,000 ticks
//
// Real consumers are not that regular. The jittered traces (A-jitter, B-jitter,
// C-jitter, D-jitter) have the same readers, but each tail consumer joins at a tick of
// its own, stalls now and then for 1 to 60 ticks, and catches up in bursts of 2
// to 8 chunks a tick until it is at its lag again; backfills read 16 to 112 chunks a tick.
//
// # Cursors
//
// Each consumer and each backfill reader is one. A policy that knows cursors is
// told of the known ones before their first read, with their start, and sees
// whose each read is. Half known: cursors are numbered partition by partition in
// the order above, backfills last, and only the even ones, from 0, are known;
// reads of the others have no cursor.
//
// # Policies
//
// Belady is the optimum that may bypass: a chunk that is never needed again, or
// later than all that is there, is not inserted. LRU and S3FIFO are written here, the latter after
// the paper (Yang et al., SOSP 2023): a small queue of a tenth, a ghost queue as
// long as main, two bits of frequency. Others bring their own (Policy).
package policy
