// Package objstore is the seam to object stores: what segtier needs of one, as
// law, and the errors it answers with.
//
// # Law
//
// Every implementation keeps these rules, and storetest.Acceptance holds it to
// them.
//
//  1. Keys. A key is a relative slash path as [ValidateKey] accepts it, and
//     every method refuses others. The store adds its own prefix; it never
//     appears in a key. A key and the directory of another (a and a/b) need not
//     both exist: a store may answer ErrConflict.
//  2. Visibility. An object appears in one atomic step, whole. A failed or
//     crashed Upload leaves the whole object or none under the key, and at worst
//     invisible parts or temporary files.
//  3. Durability. When Upload returns nil, the object survives a power loss of
//     the store's machine, as far as the store promises anything at all.
//  4. Read after write. What Upload or Delete has returned from is what every
//     later Get, Stat and List sees, from any process. (List may lag; nothing
//     but garbage collection reads listings.)
//  5. Immutability. Upload never overwrites. If the key exists with the same
//     bytes it succeeds and says Existed; with other bytes it is ErrConflict.
//  6. Proof. Every part's checksum is verified by the store, or read back and
//     compared by the implementation, before Upload returns nil. A sum that
//     differs is ErrCorrupt and no object appears.
//  7. One call is one attempt, except that an ambiguous outcome of a write (a
//     lost answer) is resolved by looking before Upload returns. Retrying is
//     endpoint's.
//  8. Get returns exactly the bytes of [off, off+n) or an error, at the latest
//     from the body: a body that ends early returns io.ErrUnexpectedEOF, never
//     io.EOF. A range that is empty, or ends beyond the object's end, is
//     ErrRange. With IfMatch set, another identity is ErrChanged. Closing the
//     body aborts the transfer and releases what it held; the caller always
//     closes it.
//  9. Absent is ErrNotExist for Get and Stat, and success for Delete. A prefix
//     of keys is no object.
//  10. Every error is an *[Error] that wraps one of the sentinels where one
//     fits, or the cause (that of a read from a body may be bare). When ctx
//     ends, calls and reads of bodies return promptly, with an error in which
//     errors.Is finds ctx.Err(); an Upload or Delete that has taken effect by
//     then may succeed.
//  11. All methods may be called concurrently. Close is idempotent; calls after
//     it return ErrClosed, and nothing that the store started outlives it.
//  12. List yields keys in ascending order of their bytes, each once, and only
//     those that begin with prefix (which may end inside an element) and are
//     greater than after.
//  13. An Upload takes Slots for exactly the part bytes it sends and gives all of
//     them back before it returns. Confirmed is called once for each part before a
//     successful Upload returns, and the evidence holds each part, in order.
//  14. An [UploadLister] shows no upload that finished or was aborted. One that
//     is aborted while in progress fails; aborting an absent one is success.
//  15. What a store writes to find out what it can do has keys for which [IsProbe]
//     is true. A killed process leaves it behind: List and Uploads show it if they
//     are asked for [ProbePrefix], and not otherwise; Stat, Delete and Abort take it.
//
// # Buffers
//
// An implementation reads UploadRequest.Body only until Upload returns, and
// never writes to memory that it was given.
package objstore
