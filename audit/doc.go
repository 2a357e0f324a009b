// Package audit compares what metadata says with what the store holds: Verify looks
// for damage, Orphans for what nobody needs, Rebuild makes metadata from objects.
// All of them act on the world only through the metadata store, the endpoint and
// what their options bring.
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
// # Orphans
//
// [Orphans] lists everything under the prefix. An object named by a record that has
// not ended is none, whatever it holds.
//
//	ORPHAN_ENDED      its id is in DELETE_SEGMENT_FINISHED: proven
//	                  or is not known, in a partition in DELETE_PARTITION_FINISHED: proven
//	ORPHAN_UNKNOWN    no record knows its id, and nothing readable is lost with it
//	ORPHAN_NEEDED     no record knows its id, and it has offsets that no readable segment has
//	ORPHAN_MISPLACED  its id, or its topic's, belongs to another key
//	FOREIGN_OBJECT    its key is not one of ours
//	UPLOAD_ENDED      unfinished, and its id is not being copied any more: proven
//	UPLOAD_UNKNOWN    unfinished, and no record knows its id
//	RECORD_ABANDONED  COPY_SEGMENT_STARTED, and its writer is dead
//	RECORD_COMPLETE   the same, but its object is whole and has offsets that nothing else has
//	RECORD_DELETING   DELETE_SEGMENT_STARTED, and nobody goes on with it
//	FOREIGN_SEGMENT   a record in one of those states of another storage plugin
//	PROBE_LEFT        of a process that was killed while it found out what the store can do
//
// Without Apply nothing is changed. With it goes what is proven, and probes that are
// an hour old at least; what is not known only with Unknown too. ORPHAN_NEEDED,
// ORPHAN_MISPLACED, RECORD_COMPLETE and FOREIGN_OBJECT always stay.
//
// Why nothing readable goes:
//
//   - What is proof is final: no event leads out of DELETE_SEGMENT_FINISHED and
//     DELETE_PARTITION_FINISHED, and an id is never used again. So it is right in an
//     older copy of the metadata too.
//   - STARTED is durable before the first byte, and the View is taken after the
//     object was listed: a copy that has just begun is never unknown.
//   - A record in STARTED is ended by an event that is decided on STARTED: if it was
//     FINISHED at that moment, the event is refused. Its writer is dead if a newer
//     leader has written, which fences it, or if nobody else can write at all
//     (Exclusive).
//   - Each thing is looked at again when its turn comes: the object's identity, size
//     and age, and then metadata; of what no record knows, also whose the prefix is.
//   - An object that no record knows, or whose record never left STARTED, stays if
//     it has an offset at or above the log start that no FINISHED segment has in its
//     leader epochs: metadata may have lost that it was readable.
//
// Ages are by the store's clock, the one that it answers with; that of a record
// compares it with the clock of the writer. A store that does not say what time it is
// has nothing deleted, unless no age is asked for.
//
// Nothing at all is deleted if metadata is not ready, unavailable, incomplete in any
// partition, or without any segment; if the prefix is another's or nobody's, or is
// being rebuilt; if more would go than MaxFraction; and if metadata looks like an
// older copy ([ErrSuspect]): because an object is ORPHAN_NEEDED, or one that a copier
// made is not known although it is younger than the time for which metadata remembers
// what has ended, or newer than metadata's newest event.
//
// # Rebuild
//
// [Rebuild] makes metadata from the headers of the objects, which are their STARTED
// records, in an empty metadata store. A segment becomes readable through
// transfer.Confirm alone, the full read that gives a receipt.
//
//	REBUILT           readable
//	LEFT_DAMAGED      its bytes are not what its own sums say
//	LEFT_CONFLICT     several have this range and history, and other bytes: a person decides
//	LEFT_DUPLICATE    another has this range, history and content
//	LEFT_DELETED      it ends below the log start, or below where the newest history begins
//	LEFT_BELOW_GAP    no object has the offsets behind it: deleted, or one was lost
//	LEFT_BY_METADATA  metadata would not have it
//
// Ids, offsets, leader epochs, sizes and timestamps of the data are what they were.
// What no object says is lost: when FINISHED was written and under which leader
// epoch (the record has STARTED's time, and the greatest epoch of the partition), the
// log start, what was being deleted, segments of other plugins.
//
// An object whose copy died before FINISHED has the same header as one that was
// FINISHED. It is whole, and making it readable harms nothing, but it is told as a
// candidate: no copy of the partition was begun after it was complete.
//
// Every object that can be understood gets a record, those that are left one in
// STARTED, with the object's location where a copy has its plan's fingerprint: so each
// id is accounted for, no copy goes on with one, and a later collection ends what is
// readable otherwise and keeps the rest (RECORD_COMPLETE).
//
//	marker segtier-rebuild.json    says that a rebuild is under way, and whose
//	the old owner's marker goes    deletes segtier.json
//	the new owner's comes          creates it, for our metadata
//	partition by partition         STARTED of all its objects, then a full read and FINISHED of each
//	marker goes                    the metadata is whole
//
// A crash after any step is gone on with by the next Rebuild of the same metadata,
// which finds the first marker. While it is there, nothing is collected.
//
// # Not handled
//
// Nothing is repaired: bytes come back from a copy of the store or of the log. What a
// bucket with versions keeps behind delete markers is not seen.
package audit
