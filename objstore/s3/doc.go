// Package s3 is an object store in a bucket of S3, or of a service that speaks
// its protocol. It alone imports the AWS SDK.
//
// # Uploading
//
// No server, and no client that we know, proves by itself that an object is what
// was to be written: services differ in what they verify, SDKs compare nothing
// that is answered, and a lost answer looks like a failure. So every step here
// ends in evidence or in an error:
//
//	probe     once per Store: does the service refuse wrong bytes? create only if absent?
//	HEAD      is it there already? Same bytes: success. Others: objstore.ErrConflict
//	list      parts that an earlier try left, accepted only if their sums are ours
//	send      parts in parallel, each with the CRC32C that the scan computed
//	compare   the echo of each with what was sent
//	complete  with all sums and ETags, the size, and If-None-Match: *
//	HEAD      size, sum and token of what is there now
//
// An object of one part is one PutObject between the two HEADs. Parts below 5 MiB,
// or more than 10,000 of them, are put together; a sum put together from theirs
// (CRC32C is linear) confirms each of them.
//
// Parts are scheduled by feature/s3/manager, in upload.go alone, over a client of
// ours that does all of the above: docs/decisions/0006-s3-manager.md. Bodies are
// read in place: an upload allocates the same for parts of 8 and of 64 MiB, less
// than 4 MiB for 256 MiB. Over plain HTTP the payload is not hashed for the
// signature, which binds it all the same: it covers the checksum's header.
//
// # When something goes wrong
//
// One call is one attempt; package endpoint repeats. A part that fails for a
// reason that may pass (throttled, reset, 5xx) stops the sending of further
// parts, but those on their way are let finish: the next attempt finds them. Any
// other error cancels them. The first error is the one that is reported.
//
// A PutObject or Complete that does not simply succeed (no answer, 5xx, 404, 409,
// 412, an error within a 200) is resolved by HEAD before anything else: the
// object is ours if its size, its sum and its token are. Nothing is aborted
// before that; if HEAD fails too, nothing is aborted at all.
//
//	the upload ended with         its parts
//	what may pass                 stay for the next attempt
//	conflict, corrupt, a body     are aborted
//	that cannot be read
//	the caller leaving, Close     Options.OnCancel, on a context of their own
//	the outcome unknown           stay
//	success                       other uploads of the same object are aborted
//
// Nothing is written down about an upload in progress: a process that was killed
// finds its parts by listing, and sends at most one part per worker again.
// Uploads of one key take turns within a Store. An upload that somebody else
// aborts fails; the next attempt begins a new one.
//
// # Evidence
//
// A part is confirmed by an echo of its sum (objstore.Echoed), a listing before
// the object is made (Listed), the object's attributes after (Attributed), or by
// reading it back (ReadBack). Options.Evidence is the least that will do. An echo, a
// listing or an attribute counts only where the probe saw wrong bytes refused: a
// service that repeats what it is told proves nothing, and every object on it is
// read back. If what is read back is wrong, the object is deleted again, so for a
// moment such a service shows an object that never gets a receipt.
//
// # Probing
//
// Before its first upload a Store writes a few bytes under
// <prefix>/.segtier-probe/, with a right and a wrong checksum, by PutObject and in
// parts, and deletes them: ten small requests. A service that lacks what every
// store must have is refused with an *[AbilityError]: read after write, stored
// bytes that are those that were sent, ranged reads, the checksum headers.
// What else it lacks is made up for; see [Abilities]. Reading never probes. What a
// process leaves that is killed meanwhile, a collection of orphans finds and deletes.
//
// # Errors
//
// What no repetition cures wraps objstore.ErrRefused, with what to do about it:
// credentials, a denied action (named as IAM names it), bucket, region, clock,
// http or https. Errors keep nothing of the SDK's, which hold signatures, and
// nothing here prints credentials: see [Options.Format].
//
// # Not handled
//
// Where If-None-Match is not honoured, two processes that write different bytes
// under one key can overwrite each other; keys of segtier are unique, so they do
// not. Versions of a bucket with versioning stay behind delete markers. SSE-C,
// directory buckets (their listings have no order) and requester-pays buckets
// are not supported. Unfinished uploads that nobody takes up again cost money until
// they are aborted: give the bucket a lifecycle rule
// (AbortIncompleteMultipartUpload) of some days.
package s3
