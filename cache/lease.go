package cache

import (
	"context"
	"errors"
)

// A Lease keeps one chunk in memory. The zero Lease is empty. A Lease must not
// be copied while it holds something, and is not safe for concurrent use.
type Lease struct {
	line  lifeline
	e     *entry
	at    uint8 // stripe that it is counted in
	ready bool
}

// errEmpty is a mistake of the program, not of the data.
var errEmpty = errors.New("cache: Wait on an empty lease")

// Wait returns when the bytes are there, at once after a Hit. If the fill
// fails or ctx ends first, it releases the lease and returns why: the error
// given to Fill.Fail, or the cause of ctx. The fill goes on without us.
func (l *Lease) Wait(ctx context.Context) error {
	if l.ready {
		return nil
	}
	e := l.e
	if e == nil {
		return errEmpty
	}
	select {
	case <-e.done: // data that is there wins over a context that has ended
	default:
		select {
		case <-e.done:
		case <-ctx.Done():
			l.Release()
			return context.Cause(ctx)
		}
	}
	if e.err != nil {
		l.Release()
		return e.err
	}
	l.ready = true
	return nil
}

// Bytes returns the chunk after a Hit or a Wait without error, otherwise nil.
// The bytes are shared: they must not be modified, and not be used after
// Release.
func (l *Lease) Bytes() []byte {
	if !l.ready {
		return nil
	}
	return l.e.buf
}

// Note returns what was attached to the chunk by Fill.Note, nil if nothing was.
// Like Bytes it is shared, and is there after a Hit or a Wait without error; it
// may be kept after Release.
func (l *Lease) Note() any {
	if !l.ready {
		return nil
	}
	return l.e.note
}

// Release lets the chunk go and empties the lease. On an empty lease it does
// nothing.
func (l *Lease) Release() {
	e := l.e
	if e == nil {
		return
	}
	l.line.end()
	at := l.at
	*l = Lease{}
	e.release(at)
}
