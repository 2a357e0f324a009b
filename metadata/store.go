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
//     processes, each by View.Apply. What it refuses is not applied, and its
//     publisher gets the error (ErrTransition, ErrDuplicate). Repeating an event is
//     success. A store that cannot compare before it writes, because others write
//     too, applies what it reads back as Recorded, and asks View.Admits first.
//  4. A store that can compare refuses writers that are older than one it has
//     seen for the partition (ErrFenced).
//  5. View does no I/O. It is ErrNotReady while the partition is being loaded,
//     ErrUnknownPartition if the store holds only what it was assigned and this one
//     was not, ErrUnavailable if it cannot be known. A partition without any event
//     is an empty View. Records that cannot be understood are counted in the View
//     (PartitionInfo.Incomplete).
//  6. Every method may be called concurrently. Close is idempotent; calls after
//     it return ErrClosed, and Views that were handed out stay as they are.
//
// A store that keeps the log start of partitions implements [LogStarts] too.
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
