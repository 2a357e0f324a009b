package object

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt: the bytes are not what segtier writes. For an object whose
	// record says FINISHED, read metadata again; if it still names this object,
	// its bytes were damaged after the copy.
	ErrCorrupt = errors.New("malformed")
	// ErrVersion: written by a newer segtier. Upgrade the reader.
	ErrVersion = errors.New("unknown version, written by a newer segtier")
)

// FormatError says which structure cannot be read and why. It wraps ErrCorrupt
// or ErrVersion, and a *checksum.MismatchError where a sum differs.
type FormatError struct {
	What string // "location", "trailer", "chunk table", "header", …
	Err  error
}

// Error names the structure and the reason.
func (e *FormatError) Error() string { return fmt.Sprintf("object %s: %v", e.What, e.Err) }

// Unwrap returns the reason.
func (e *FormatError) Unwrap() error { return e.Err }

// corrupt is a FormatError that wraps ErrCorrupt; format may hold one more %w.
func corrupt(what, format string, args ...any) error {
	return &FormatError{What: what, Err: fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))}
}

// newer is a FormatError that wraps ErrVersion.
func newer(what, field string, got, known int) error {
	return &FormatError{What: what, Err: fmt.Errorf("%s %d, known is %d: %w", field, got, known, ErrVersion)}
}
