// Package storetest holds what tests of stores, and of programs on top of
// stores, need: an acceptance suite, a store in memory, and faults.
//
//	Acceptance   the law of package objstore as tests; every store passes it
//	NewMem       a store in memory that keeps the law
//	Inject       a store on which calls fail, hang, are cut, flipped or lied about, as a Plan says
//	Effects      a crash after any single effect, to be enumerated
//	Log          a store that writes down its calls, for golden files
//
// A store of your own is held to the law by one line:
//
//	func TestLaw(t *testing.T) { storetest.Acceptance(t, open) }
//
// # Faults
//
// Faults are deterministic: a [Plan] is a function of the call, [Rules] makes
// one from a list, [Random] one from a seed. They sit at the seam between a
// program and its store, so every store has them, and what they do to a body
// happens in the body: bytes before the cut arrive. A schedule of [Random]
// spends more than half of its faults inside a body or after a commit, since
// that is where programs break.
//
// Nothing here sleeps. A fault that takes time waits for a gate or for its
// context, so that tests run under testing/synctest or drive the clock
// themselves.
//
// # Not handled
//
// Faults below the seam (of a disk, of a network) belong to the tests of the
// store that has the disk or the network.
package storetest
