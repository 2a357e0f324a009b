// Package audit compares what metadata says with what the store holds.
//
// # Verify
//
// [Verify] compares each readable segment with its object, as deep as its level
// says, and the records of a partition with each other. It changes nothing. Each
// damage is a [Finding] with a stable reason code, the object and the range:
//
//	OWNER_MISSING        the prefix has no owner marker, although metadata has segments in it
//	OBJECT_MISSING       metadata says FINISHED, the store has no such object
//	OBJECT_SIZE          the object is longer or shorter than recorded
//	OBJECT_CORRUPT       bytes differ from their recorded sum, or a batch from its CRC
//	INDEX_MISMATCH       an index or the chunk table is as it was copied, and not of this log
//	RECORD_MISMATCH      the object's header is not the metadata record
//	RECORD_SIZE          the record's size does not fit its own object
//	LOCATION_INVALID     the record's custom metadata does not locate an object
//	OFFSET_GAP           no segment has these offsets, and there are some before and behind
//	METADATA_INCOMPLETE  records of the partition could not be understood
//
// and these are no damage, but worth knowing:
//
//	OFFSET_OVERLAP       two segments have these offsets; the one that was FINISHED last counts
//	LINEAGE_MISMATCH     no reader with the newest history of leader epochs finds the segment
//	FOREIGN_SEGMENT      another storage plugin wrote the segment, and nothing is known of it
//
// Objects are examined several at a time and told in order, so that a [Cursor]
// says where an interrupted verification goes on. Memory is bounded by the number
// of objects under way, some 10 MiB and a tail each, not by how many there are.
//
// A prefix that belongs to another metadata store and has nothing of what is
// looked for is no finding but an error (*transfer.OwnerError): it is the wrong
// store.
//
// A segment that stops being FINISHED while it is verified is no finding: it
// was deleted, and metadata is read again before anything is called damage. A
// store that cannot be read is an error, not a finding; one object that cannot be
// read hides no damage of others.
//
// # Not handled here yet
//
// Orphans (objects that no record names), and rebuilding metadata from objects.
package audit
