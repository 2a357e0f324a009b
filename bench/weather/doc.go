// Package weather is a small S3 that measures those who talk to it: a server
// with content that nobody has to store, whose latencies, rates and faults are a
// seeded schedule, and which counts what it is asked.
//
//	client ── HTTP or HTTPS ──► limits ► first byte ► faults ► rates ──► content
//	                                     (Schedule: seed, object, start, attempt)
//	lab ───── admin port ─────► /_weather/stats  reset  schedule
//
// # Content
//
// A virtual object is a pure function of its name. The name is a key of package
// object ([object.Key]); its topic id says how large segments, batches and
// chunks are, its segment id which segment of which partition it is. Every byte
// range is made when it is asked for, at memory speed: all batches of a topic are
// one block of bytes in which offset, timestamps and CRC are patched, and
// because CRC-32C is linear, the sums of batches, chunks and the whole object
// come out of a few table lookups for each batch. So the object is what
// transfer.Upload would have made of such a log (with empty index files): it
// parses, its batches verify, and a full read confirms it. [Spec] gives the
// metadata that belongs to it, and [Verifier] compares what a reader was given,
// byte by byte.
//
// Beside virtual objects there are the files of a directory (Options.Dir), and
// what clients have written: whole while it is within Options.KeepBytes, and
// beyond that its sums and its last bytes alone (a sink).
//
// # Weather
//
// [Schedule] decides about each request from a hash of its seed, the object, the
// start of the range and how often this client has asked for that before. Two
// clients that ask the same meet the same weather, at whatever time and in
// whatever order. Clients are told apart by the access key of their signature,
// which is not otherwise looked at.
//
// # Guarantees
//
//   - Writes are verified as AWS does: checksums of parts and objects, in headers
//     or trailers; composite sums; parts 1 to n, ascending; x-amz-mp-object-size;
//     If-None-Match. What is refused has no effect.
//   - A fault happens as scheduled or not at all, and is counted by its kind.
//   - What is counted is exact once the client has its answer.
//
// # Not handled
//
// Signatures are not verified. Buckets exist as soon as they are named. There are
// no versions, no ACLs, no encryption. Listings show what was written, never
// virtual objects, of which there is no end. ETags are not MD5.
package weather
