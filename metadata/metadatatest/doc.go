// Package metadatatest holds what tests of metadata stores, and of programs on
// top of them, need: the law as a suite, a store in memory, and faults.
//
//	Suite, Contract   the law of metadata.Store as tests; every store passes it
//	NewMem            a store in memory that keeps the law
//	Inject            a store that fails, loses answers, hangs, is still loading, stale or
//	                  incomplete, as a Plan or a Script says
//	Effects           a crash after any single event, to be enumerated (storetest.Effects)
//
// A store of your own is held to the law by one line:
//
//	func TestLaw(t *testing.T) { metadatatest.Contract(t, open) }
//
// # Proof
//
// Nothing here makes receipts up: to publish FINISHED, the suite uploads a
// small segment into a store in memory with package transfer, as everybody must.
//
// # Faults
//
// They sit at the seam, are a function of the call, and never sleep. A crash is
// a [Faulty] store whose Effects were told to stop: to restart, use the store
// under it with a new Faulty.
package metadatatest
