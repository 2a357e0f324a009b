package objstore

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// One sentinel for each decision that a caller can take.
var (
	// ErrNotExist: no such object. For an object that metadata calls FINISHED,
	// read metadata again; if it still says so, the object is lost.
	ErrNotExist = errors.New("object does not exist")
	// ErrConflict: the key holds other bytes. Never overwritten; a copy takes a
	// new segment id.
	ErrConflict = errors.New("object exists with other content")
	// ErrThrottled: the store asks for fewer requests. Retry later; Error may
	// say when.
	ErrThrottled = errors.New("store throttles requests")
	// ErrChanged: the object is not the one it was (IfMatch).
	ErrChanged = errors.New("object was replaced")
	// ErrRange: the range does not lie within the object.
	ErrRange = errors.New("range outside the object")
	// ErrCorrupt: bytes differ from their checksum, on the way or at rest.
	ErrCorrupt = errors.New("data is corrupt")
	// ErrBadAnswer: the store's answer is none to what it was asked: another range,
	// another length, an encoded body. Asked again it may do better.
	ErrBadAnswer = errors.New("the answer does not fit the request")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrReadOnly: the store cannot be written with these credentials or on
	// this medium.
	ErrReadOnly = errors.New("store is read-only")
	// ErrRefused: the store refuses what it is asked for, and will until somebody
	// acts: credentials, rights, bucket, region, clock, endpoint, or an ability
	// that the store lacks. The error says which.
	ErrRefused = errors.New("store refuses the request")
	// ErrFull: the store has no space or quota left.
	ErrFull = errors.New("no space left in the store")
)

// Error says which operation failed, on which object and range, and why.
type Error struct {
	Op         string        // "get", "stat", "upload", "delete", "list", "open"
	Key        string        // "" if it concerns the store itself
	Off, Len   int64         // the range in bytes; Len 0 if it concerns the whole object
	RetryAfter time.Duration // what the store asked for, 0 if nothing
	Err        error
}

// Error names operation, object and range.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " %s", e.Key)
	}
	if e.Len != 0 {
		fmt.Fprintf(&b, " bytes [%d,%d)", e.Off, e.Off+e.Len)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ProbePrefix is what the keys of a store's probes begin with. No segment's key does.
const ProbePrefix = ".segtier-probe/"

// IsProbe reports whether key is one that a probe of objstore/s3 writes to:
// ProbePrefix, 26 letters and digits at random, and "right" or "wrong".
func IsProbe(key string) bool {
	id, ok := strings.CutPrefix(key, ProbePrefix)
	if !ok {
		return false
	}
	id, name, ok := strings.Cut(id, "/")
	if !ok || len(id) != 26 || name != "right" && name != "wrong" {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// ValidateKey reports why key is no key: it must be a relative slash path of at
// most 1,024 bytes of printable ASCII, without empty, "." or ".." elements.
func ValidateKey(key string) error {
	if key == "" || len(key) > 1024 {
		return fmt.Errorf("object key of %d bytes, allowed are 1 to 1024", len(key))
	}
	for elem := range strings.SplitSeq(key, "/") {
		if elem == "" || elem == "." || elem == ".." {
			return fmt.Errorf("object key %q: element %q is not allowed", key, elem)
		}
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' || key[i] == '\\' {
			return fmt.Errorf("object key %q: character %q is not allowed", key, key[i])
		}
	}
	return nil
}
