package main

import (
	"errors"
	"fmt"

	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// The exit statuses; the package comment lists them for users.
const (
	statusDone      = 0
	statusFailed    = 1
	statusUsage     = 2
	statusDamage    = 3
	statusNotInTier = 4
)

// statusError is an error that knows the exit status.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// errTold ends a command whose messages were written already.
var errTold = errors.New("told")

func usagef(format string, args ...any) error {
	return &statusError{statusUsage, fmt.Errorf(format, args...)}
}

func notInTierf(format string, args ...any) error {
	return &statusError{statusNotInTier, fmt.Errorf(format, args...)}
}

// statusOf maps an error to the exit status.
func (a *app) statusOf(err error) int {
	var s *statusError
	switch {
	case errors.As(err, &s):
		return s.status
	case !a.accepted:
		return statusUsage
	case errors.Is(err, fetch.ErrEndOfTier), errors.Is(err, fetch.ErrOutOfRange), errors.Is(err, fetch.ErrSkipped):
		return statusNotInTier
	}
	return statusFailed
}

// ownStore is what to do where store and metadata do not belong together.
const ownStore = "name the store that was copied to with --store or SEGTIER_STORE, or the metadata of this one with --meta or SEGTIER_META"

// nextStep says what to do about an error that does not say so itself.
func nextStep(err error) string {
	var below *fetch.OutOfRangeError
	var owner *transfer.OwnerError
	switch {
	case errors.As(err, &below):
		return fmt.Sprintf("the tier begins at offset %d; 'earliest' stands for it", below.LogStart)
	case errors.Is(err, fetch.ErrCorruption):
		return "run 'segtier verify' for all that is damaged, and bring those objects back from a copy of the store"
	case errors.Is(err, transfer.ErrCorruptSegment):
		return "bring the file back from another replica of the partition; what was copied before it stays readable"
	case errors.Is(err, transfer.ErrEmpty), errors.Is(err, segment.ErrEmptySegment):
		return "a closed segment is never empty: the directory may be damaged, or be of a broker that is still starting"
	case errors.Is(err, transfer.ErrSourceChanged):
		return "copy again once the broker has closed the segment"
	case errors.Is(err, metadata.ErrLocked):
		return "wait for that process, or read a snapshot of the file: --meta file:FILE.snapshot-TIME"
	case errors.Is(err, metadata.ErrFenced):
		return "copy from the broker that leads the partition now; its leader epoch is greater"
	case errors.Is(err, metadata.ErrCorrupt):
		return "restore the metadata file from a backup; the objects in the store are untouched"
	case errors.Is(err, audit.ErrTooMany):
		return "look at what was found, without --apply; if all of it may go, allow for more with --max-fraction"
	case errors.Is(err, audit.ErrRebuilding):
		return "run 'segtier rebuild --apply' with that metadata until it ends"
	case errors.As(err, &owner):
		return ownStore
	case errors.Is(err, audit.ErrNotEmpty):
		return "name a metadata file that does not exist yet with --meta"
	case errors.Is(err, objstore.ErrFull):
		return "make room in the store, then run the same command again; nothing was lost"
	case errors.Is(err, objstore.ErrReadOnly):
		return "check the permissions of the store, or name another one with --store"
	case errors.Is(err, fetch.ErrUnavailable), errors.Is(err, metadata.ErrUnavailable), errors.Is(err, objstore.ErrThrottled):
		return "try again later"
	}
	return ""
}
