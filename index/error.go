package index

import (
	"errors"
	"fmt"

	"github.com/segtier/segtier/segment"
)

// ErrCorrupt is what every *Error is.
var ErrCorrupt = errors.New("corrupt index")

// Error says that an index file holds what no broker writes, or that it does not
// agree with its log. It is ErrCorrupt. A broker rebuilds an index from the log
// when it starts and the file is gone.
type Error struct {
	Kind   segment.FileKind // which file; segment.Log if the log itself does not fit its place
	Entry  int64            // which entry, from 0; -1 for the file as a whole
	Reason string           // what is wrong with it
}

// Error names the file, the entry and the reason.
func (e *Error) Error() string {
	if e.Entry < 0 {
		return fmt.Sprintf("corrupt %v: %s", e.Kind, e.Reason)
	}
	return fmt.Sprintf("corrupt %v, entry %d: %s", e.Kind, e.Entry, e.Reason)
}

// Unwrap returns ErrCorrupt.
func (e *Error) Unwrap() error { return ErrCorrupt }

func corrupt(kind segment.FileKind, entry int64, format string, args ...any) error {
	return &Error{Kind: kind, Entry: entry, Reason: fmt.Sprintf(format, args...)}
}

// allZero reports whether b holds nothing but zeros.
func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
