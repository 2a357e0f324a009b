// Package lifecycle drives segments through their states. It is the only
// package that does: transfer knows nothing of states, metadata nothing of
// stores.
//
// # Copy
//
// [Copier.Copy] moves one closed segment to the object store:
//
//	scan the source once       transfer.Scan: every sum, every batch, the indexes
//	claim the prefix           the owner marker names our metadata store
//	STARTED is durable         with the plan's fingerprint; older leaders are fenced from here on
//	retire older leaders       what they have announced of the range: DELETE_STARTED
//	upload                     transfer.Upload: parts, confirmed sums, tail read back ─► receipt
//	wait for the turn          lower segments of the partition go first
//	FINISHED is durable        only a receipt opens this door
//
// What a crash leaves, after any single effect, and what the next Copy of the
// same range by the same writer does about it:
//
//	after                what is there                 the next Copy
//	owner marker         a marker with our name        finds it and goes on
//	STARTED              a record, no object           finds the record, uploads under its id
//	some parts           a record, nothing visible     uploads again; the store may keep parts
//	object complete      a record, the whole object    finds the same bytes: success, goes on
//	FINISHED             everything                    returns it as existing
//
// Other bytes under the id's own key (objstore.ErrConflict) are neither
// overwritten nor deleted: the id goes to DELETE_STARTED, and the next Copy takes a
// new one.
//
// If the source is not the one that was scanned for a STARTED record (another
// fingerprint), the old id is deleted and a new one taken: a key belongs to one
// id and one content for ever.
//
// # Order
//
// Copies of one partition are begun in offset order and may overlap. FINISHED is
// written lowest first among those that were begun, and never past one that failed
// in this process, until that one is copied or [Copier.Forget] says that the log
// start has passed it. What may be deleted locally is for
// metadata.View.CoveredUpTo to say, from the log start on.
//
// # Two leaders
//
// A leader that was deposed and does not know it yet may copy the same range. On
// a store that compares (metadata/embedded), whatever the order of their steps, a
// range becomes readable once in each history of leader epochs:
//
//   - STARTED of the newer leader fences the older one: all that it writes from
//     then on is metadata.ErrFenced. What it had announced goes to DELETE_STARTED,
//     by the newer leader; its object is left to the collector, because its upload
//     may still be under way.
//   - If the older leader was FINISHED before, the newer one gets
//     metadata.ErrDuplicate for its STARTED and returns the copy that is there.
//   - Of two with one leader epoch the one that comes second to FINISHED gets
//     ErrDuplicate, deletes its own id and object, and returns the other copy.
//
// # Not handled here yet
//
// Deleting, expiring and collecting. A STARTED record of a writer that is not
// known to be older is left alone: only its partition's collector can know that
// its writer is dead.
package lifecycle
