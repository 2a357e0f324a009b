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
//	STARTED is durable         with the plan's fingerprint
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
// If the source is not the one that was scanned for a STARTED record (another
// fingerprint), the old id is deleted and a new one taken: a key belongs to one
// id and one content for ever.
//
// # Order
//
// Copies of one partition may overlap, but FINISHED is written in offset order,
// and never past a segment that failed in this process: what lies below the end
// of the last FINISHED segment may be deleted locally by the host.
//
// # Not handled here yet
//
// Deleting, expiring and collecting. A STARTED record of another writer is left
// alone: only its partition's collector can know that its writer is dead.
package lifecycle
