package metadata

import (
	"context"

	"github.com/segtier/segtier/segment"
)

// Store keeps the events of partitions durably and in order.
//
// # Law
//
//  1. Publish first asks Event.Publishable and refuses what it refuses.
//  2. Publish returns nil only when the event is durable and every later View of
//     this Store shows it. When it returns ErrUnavailable or a context error, the
//     event may or may not have happened; the caller reads the state back.
//  3. Events of one partition are applied in one total order, the same for all
//     processes, each by Step on the segment's current state and, if it has
//     changed, View.With. What Step refuses is not applied, and its publisher gets
//     the error (ErrTransition). Repeating an event is success.
//  4. A store that can compare refuses writers that are older than one it has
//     seen for the partition (ErrFenced).
//  5. View does no I/O. It is ErrNotReady while the partition is being loaded. A
//     partition without any event is an empty View.
//  6. Every method may be called concurrently. Close is idempotent; calls after
//     it return ErrClosed, and Views that were handed out stay as they are.
//
// metadatatest.Contract holds an implementation to it.
type Store interface {
	// ID names this metadata, for ever and wherever it is opened: it is written
	// beside the objects it owns.
	ID() string

	// Publish makes an event durable and visible.
	Publish(ctx context.Context, ev Event) error

	// View returns the partition as it is now.
	View(p segment.Partition) (*View, error)

	// Partitions returns every partition that has events here, in no particular
	// order. It does no I/O.
	Partitions() ([]segment.Partition, error)

	// Assign adds and removes partitions that this process wants to see. A store
	// that holds all of them does nothing.
	Assign(ctx context.Context, add, remove []segment.Partition) error

	// Watch returns a channel that is closed at the next change of the
	// partition's View after the call, its becoming ready included; call it again
	// for the one after that. Close closes it too.
	Watch(p segment.Partition) <-chan struct{}

	// Close releases the store.
	Close() error
}
