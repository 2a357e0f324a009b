// Package segtier moves closed log segments of a Kafka-like broker to an object
// store and serves them back by offset or by time.
//
// A [Tier] is the wiring: an object store (objstore), a metadata store
// (metadata), a cache, a reader and a copier behind four jobs:
//
//	copy     a closed segment goes up; it becomes readable when its bytes are proven durable
//	fetch    whole record batches from an offset on, verified, leased from memory
//	time     the earliest offset at or after a time
//	verify   every byte in the store against the sums taken at copy time
//
// The package imports no backend, so that a host links only what it names:
// objstore/dir and metadata/embedded are the embedded default.
//
// # Guarantees
//
//   - A segment is readable if and only if its bytes are durable and its metadata
//     says COPY_SEGMENT_FINISHED, which needs a receipt that only a confirmed
//     transfer makes.
//   - Every byte served was checked against a checksum taken when it was copied.
//   - Metadata alone decides what is readable; no read depends on a listing.
//   - What a crash leaves is found and finished by copying again. Bytes that
//     nobody refers to may remain; bytes that somebody refers to are never deleted
//     nor overwritten.
//
// # Where to read on
//
// lifecycle.Copier.Copy and fetch.Reader.Fetch are the two paths, readable top
// to bottom; DESIGN.md has the map, docs/format.md every stored byte and
// docs/errors.md what each error means to a host.
package segtier
