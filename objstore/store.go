package objstore

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/segtier/segtier/checksum"
)

// Store is an object store. The law it obeys is in the package comment.
type Store interface {
	// Get opens the bytes [off, off+n) of an object; n > 0.
	Get(ctx context.Context, key string, off, n int64, opts GetOptions) (Info, io.ReadCloser, error)

	// Stat returns what the store knows of an object.
	Stat(ctx context.Context, key string) (Info, error)

	// Upload creates an object, all of it or nothing, and returns what was
	// confirmed.
	Upload(ctx context.Context, req UploadRequest) (Evidence, error)

	// Delete removes objects; those that are absent already are fine. On an
	// error some may have been deleted.
	Delete(ctx context.Context, keys ...string) error

	// List yields the objects whose keys begin with prefix and are greater than
	// after, in ascending order of keys. After an error it ends. Only garbage
	// collection and audit list; no read depends on it.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]

	// Close releases what the store holds in this process.
	Close() error
}

// UploadLister is what a Store implements too when uploads can be left
// unfinished on it.
type UploadLister interface {
	// Uploads yields the unfinished uploads whose keys begin with prefix.
	Uploads(ctx context.Context, prefix string) iter.Seq2[Pending, error]

	// Abort discards an unfinished upload; absent is success.
	Abort(ctx context.Context, p Pending) error
}

// Pending is an upload that was begun and neither finished nor aborted.
type Pending struct {
	Key     string
	ID      string // the store's name for it
	Started time.Time
}

// Info is what a store says of an object.
type Info struct {
	Key      string
	Size     int64     // of the whole object, in bytes
	Identity string    // opaque; changes when the object is replaced (S3: ETag or version id)
	Modified time.Time // by the store's clock
	Now      time.Time // the store's clock when it answered; zero if it does not say
	Token    string    // the write token given to Upload, "" if the store cannot say

	// CRC32C of the whole object, if the store says.
	CRC32C    uint32
	HasCRC32C bool
}

// GetOptions are the rare wishes of a Get.
type GetOptions struct {
	IfMatch string // Identity the object must have; "" is any
}

// Slots bounds requests and bytes in flight across callers. Acquire waits for a
// slot for a request that carries n bytes and returns the function that gives
// it back, to be called once. A nil Slots is unbounded.
type Slots func(ctx context.Context, n int64) (release func(), err error)

// UploadRequest describes an object to create.
type UploadRequest struct {
	Key  string
	Body io.ReaderAt // [0, Size); read concurrently, and again for retries
	Size int64       // bytes, > 0

	// PartSize is the length in bytes of every part but the last, which may be
	// shorter; > 0. PartSums are the sums of the parts in order; their lengths
	// add up to Size. They are known before the first byte is sent.
	PartSize int64
	PartSums []checksum.Sum

	// Token tells this write from any other to the same key. The same copy
	// always gives the same token, so that a retry recognises its own work.
	Token string

	// Slots is taken once for each request that carries part bytes, for as many
	// bytes as it carries.
	Slots Slots

	// Confirmed, if not nil, is called for each part as soon as it is
	// confirmed, from several goroutines, never under a lock. Parts found left
	// by an earlier attempt, and all parts of an object that existed, are
	// confirmed too.
	Confirmed func(PartEvidence)

	// Retried, if not nil, is called by whoever is about to send again what
	// failed: package endpoint for the whole upload, or a store for one of its
	// requests. It may be called from several goroutines, never under a lock.
	Retried func(cause error)
}

// Level says how a checksum was confirmed. Greater is stronger.
type Level uint8

const (
	// Unconfirmed: nothing is known. It never leads to a receipt.
	Unconfirmed Level = iota
	// Echoed: the store answered with the same sum, which it verifies (probed).
	Echoed
	// Listed: the store lists the part with this sum.
	Listed
	// Attributed: the finished object's attributes list the part with this sum.
	Attributed
	// ReadBack: the bytes were read back after they were durable, and summed.
	ReadBack
)

// String returns the level's name in lower case.
func (l Level) String() string {
	switch l {
	case Unconfirmed:
		return "unconfirmed"
	case Echoed:
		return "echoed"
	case Listed:
		return "listed"
	case Attributed:
		return "attributed"
	case ReadBack:
		return "read back"
	}
	return "unknown"
}

// PartEvidence is the proof for one part.
type PartEvidence struct {
	Part  int          // from 0
	Sum   checksum.Sum // as the store holds it
	Level Level

	// Resumed says that this call did not send the part's bytes: an earlier one had
	// left them there.
	Resumed bool
}

// Evidence is the proof for an object: every part, in order. What Upload
// returns is checked again by its caller against the sums it asked for.
type Evidence struct {
	Parts    []PartEvidence
	Size     int64  // of the object as the store says after it became visible
	Identity string // as in Info
	Existed  bool   // the object was there before, with the same bytes
}
