// Package explore runs the shipped Copier, Deleter, Expirer, Orphans and Reader
// against each other, one step at a time, in every order and with everything that
// can go wrong between two steps. It has no code of its own but tests.
//
// # Problem
//
// The invariants of the tier hold at every moment, whoever else is at work and
// wherever a process ends. Neither a test of one component nor a stress test under
// load shows that: the one never meets the others, the other meets the moments that
// the machine likes.
//
// # How
//
//	leader 1 ─┐                         ┌─ object store: late deletes, stale listings,
//	leader 2 ─┤   seams: each call      │  lost answers, an upload that is a lie
//	retention ┼─► stops here, and ─────►┤
//	collector ┤   goes on when it       └─ metadata: lost answers, not ready
//	readers  ─┘   is chosen                 ▲
//	                  ▲                     │ after each step: every invariant
//	              scheduler ────────────────┘
//
// Each actor is a process: the shipped code with an endpoint of its own, in a bubble
// of testing/synctest, so that the scheduler knows when everybody has come to a
// halt, and time passes only when it says so. An actor halts before each call on
// the store or on metadata, within an upload also before it becomes visible. The
// scheduler chooses who goes on and what becomes of the call; it may also end an
// actor for good, whose successor then starts from the beginning, or let the store
// get round to what it has put off. Between two halts there is at most one effect.
//
// What was chosen is the schedule, a list of numbers. The same schedule is the same
// run, to the byte: random bytes come from a fixed seed, the clock is the bubble's.
// A failure prints it, and SEGTIER_SCHEDULE runs it again.
//
// An actor is a function of what its calls return. So two runs in which each actor
// has seen the same answers and the world is the same now go on alike, and only the
// first is followed: that is what makes it possible to be exhaustive. Each run that
// is repeated up to a choice checks that it came to the same state, so that an
// actor which is no such function is found out.
//
// Where a scenario has too many states for that, it is walked at random, with the
// seeds printed.
//
// # What is checked
//
// After each step, by what is really in the store and in metadata (check_test.go
// says how): a readable segment has its object, with the right bytes; one for each
// range and history; STARTED before the first byte; FINISHED in offset order;
// DELETE_STARTED before a delete, the log start before that, DELETE_FINISHED when
// the object is gone; nothing is deleted by whoever does not know. Every read has
// one of its typed ends, and the one that was true at some moment of it. When all
// have ended, their successors bring everything to the same state, and once more
// change nothing.
//
// For each guard there is a test that takes it out, by a seam that defeats it, and
// sees that a schedule is found in which one of these checks fails.
//
// # Not handled
//
// A step is a call, not a byte of it: what happens inside of an upload to a real
// server is objstore/s3's to test. The metadata store compares and fences, as
// metadata/embedded does.
package explore
