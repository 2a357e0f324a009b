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
// # Delete
//
// [Deleter.Delete] takes segments from whatever state they are in to their end,
// [Deleter.DeletePartition] a whole partition, through Kafka's states of that:
//
//	the prefix is ours         the owner marker, else nothing happens
//	DELETE_STARTED is durable  of all; readers are told to skip
//	abort their uploads        a writer that does not know yet is stopped
//	the delay                  readers end what they have begun
//	abort, owner               once more: the moment before the first byte counts
//	the object                 if it is known to be the segment's
//	is it gone?                a store may delete later than it says
//	DELETE_FINISHED            only now
//
// What an interruption leaves after any of these is in metadata, and
// [Deleter.Resume] goes on with it, whoever began it. Everything may be done twice,
// also by two processes at once.
//
// The delay is waited for in full by whoever deletes, from the moment at which it
// has seen DELETE_STARTED. Times in records are never compared with a clock, so no
// clock that jumps, here or where the record was written, can make it shorter; a
// process that goes on with what another has begun waits anew. What is assumed: the
// timer of the process does not run fast, and a reader elsewhere learns of
// DELETE_STARTED and ends what it reads within the delay. One that does not finds
// no object, reads metadata again and ends with fetch.SkippedError as well.
//
// A segment that was FINISHED had a receipt, and keys are never overwritten, so
// what is under its key is deleted, damaged or not. Of one that never was, nobody
// has proven anything: its key is emptied if the store's token or the header in
// the object says that it is this segment; another object stays, and so does the
// record, with a [ForeignObjectError]. Leader epochs do not matter here: a record
// in DELETE_STARTED never comes back, so it may be brought to its end by anybody
// whom the store lets write. An upload that is completed even so, behind the look
// whether the object is gone, leaves an object whose id has ended: the collector's.
//
// A segment that is deleted by itself leaves a hole: offsets that the tier does not
// have, above the log start. A reader is told to skip them only while they are being
// deleted, and afterwards if the host says that its log does not have them either
// (fetch.Request.LocalLogStart): as long as they may be somewhere, nobody loses them.
// A copy of the same range fills the hole, under a new id. [Expirer.Expire] makes no
// hole above the log start, except by what it lists at the code that decides.
//
// # Expire
//
// [Expirer.Expire] decides as Kafka's leader does: by time, size, log start, and
// leader epochs that are no more (Cause), within the history alone; what it does
// otherwise is listed at the code that decides. The log start moves first, in
// metadata and in the host, and only then anything is deleted: so a crash leaves
// segments below the log start, which the next run finds. If anything is not
// known that the decision needs, nothing happens.
//
// [Copier.Copy] refuses what ends below the log start in metadata, so that a
// directory which still has it is not copied and expired for ever.
//
// # Not handled here
//
// A STARTED record of a writer that is not known to be older, of a range that
// nothing expires, is left alone: only its partition's collector can know that its
// writer is dead.
package lifecycle
