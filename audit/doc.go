// Package audit compares what metadata says with what the store holds.
//
// [Verify] reads every byte of every readable segment and checks it against
// the sums recorded at copy time, the batches' own CRCs and the metadata record.
// It changes nothing. Each damage is a [Finding] with a stable reason code, the
// object and the range:
//
//	OWNER_MISSING      the prefix has no owner marker, although metadata has segments in it
//	OBJECT_MISSING     metadata says FINISHED, the store has no such object
//	OBJECT_SIZE        the object is longer or shorter than recorded
//	OBJECT_CORRUPT     bytes differ from their recorded sum, or a batch from its CRC
//	RECORD_MISMATCH    the object's header is not the metadata record
//	LOCATION_INVALID   the record's custom metadata does not locate an object
//
// A prefix that belongs to another metadata store and has nothing of what is
// looked for is no finding but an error (*transfer.OwnerError): it is the wrong
// store.
//
// A segment that stops being FINISHED while it is verified is no finding: it
// was deleted, and metadata is read again before anything is called damage. A
// store that cannot be read is an error, not a finding.
//
// # Not handled here yet
//
// Orphans (objects that no record names), sampling, and rebuilding metadata
// from objects.
package audit
