package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// The reasons of what a collection finds; the package comment says what each
// means.
const (
	OrphanEnded     Reason = "ORPHAN_ENDED"
	OrphanUnknown   Reason = "ORPHAN_UNKNOWN"
	OrphanNeeded    Reason = "ORPHAN_NEEDED"
	OrphanMisplaced Reason = "ORPHAN_MISPLACED"
	UploadEnded     Reason = "UPLOAD_ENDED"
	UploadUnknown   Reason = "UPLOAD_UNKNOWN"
	RecordAbandoned Reason = "RECORD_ABANDONED"
	RecordComplete  Reason = "RECORD_COMPLETE"
	RecordDeleting  Reason = "RECORD_DELETING"
	ForeignObject   Reason = "FOREIGN_OBJECT"
	ProbeLeft       Reason = "PROBE_LEFT"
)

// Orphan is something that no readable segment needs, or that cannot be told from
// such: an object, an unfinished upload, or a record whose writer is dead.
type Orphan struct {
	Reason Reason
	Proof  string // what in metadata says so, "" if nothing does

	Key      string // of the object or upload, "" of a record without an object
	UploadID string // of an unfinished upload
	Identity string // of the object, as it was listed
	Size     int64  // of the object in bytes; 0 of an upload

	// Partition, StartOffset and SegmentID are those of the key or the record, zero
	// of a foreign object.
	Partition   segment.Partition
	StartOffset int64
	SegmentID   segment.UUID
	Segment     *metadata.Segment // the record, nil if there is none

	// Age is by the store's clock alone; that of a record compares the store's
	// clock with its writer's. Less than 0: the store does not say.
	Age time.Duration

	// Kept says why it stays, "" if it may go.
	Kept string

	modified time.Time // of the object, by the store's clock
}

// OrphanOptions says what a collection may do. The zero value changes nothing.
type OrphanOptions struct {
	// Apply deletes; without it everything is only told.
	Apply bool
	// Unknown has objects and uploads deleted too whose id no record knows, if
	// nothing readable is lost with them.
	Unknown bool
	// TrustMetadata says that somebody has made sure that the metadata is not an
	// older copy, although it looks like one: with Unknown, everything that no record
	// knows may go then, needed or not. Never set it because a program says so.
	TrustMetadata bool
	// Exclusive says that nobody else can write to the metadata now, and that no copy
	// runs in this process: then every record in COPY_SEGMENT_STARTED is one that
	// somebody dead has left.
	Exclusive bool

	// OlderThan is the least age of what is deleted; 0 is 24 h, less than 0 is none.
	OlderThan time.Duration
	// Remembered is for how long the metadata store knows segments that have ended;
	// 0 is 30 days, as of metadata/embedded. An object that is younger and that no
	// record knows says that metadata has forgotten something.
	Remembered time.Duration
	// MaxFraction is the greatest fraction of the objects, and of their bytes, that
	// one run deletes; if it would be more, nothing is. 0 is 0.1, and three objects
	// whatever fraction that is.
	MaxFraction float64

	// PerSecond is how many objects and uploads go in a second at most, so that
	// readers keep their share of what the store can do; 0 is 100, less than 0 is no
	// bound. Each costs up to six requests. Records are ended as fast as End does.
	PerSecond int
	// Wait returns after d, or with an error when ctx ends; nil waits for a timer.
	Wait func(ctx context.Context, d time.Duration) error

	// Plan, if not nil, is what an earlier run has found: nothing else is deleted.
	Plan *Plan

	// End ends a record for good: DELETE_SEGMENT_STARTED, decided on the state
	// that it is given with, then its uploads and its object, then
	// DELETE_SEGMENT_FINISHED, as lifecycle.Deleter does. nil: records are only told.
	End func(ctx context.Context, seg *metadata.Segment) error

	// Found is called for everything that is found, Removed for what was deleted.
	// Both are optional, and called from the caller's own goroutine.
	Found   func(Orphan)
	Removed func(Orphan)
}

const (
	defaultOlderThan  = 24 * time.Hour
	defaultRemembered = 30 * 24 * time.Hour
	defaultFraction   = 0.1
	defaultPerSecond  = 100 // as of lifecycle.Deleter
	// alwaysAllowed objects may go where MaxFraction is the default: a small tier
	// has no tenth.
	alwaysAllowed = 3
)

func (o *OrphanOptions) validate() error {
	switch {
	case o.MaxFraction < 0 || o.MaxFraction > 1 || o.MaxFraction != o.MaxFraction: // the last is NaN
		return fmt.Errorf("orphans: MaxFraction %v is not from 0 to 1", o.MaxFraction)
	case o.Remembered < 0:
		return fmt.Errorf("orphans: negative option: Remembered %v", o.Remembered)
	}
	if o.OlderThan == 0 {
		o.OlderThan = defaultOlderThan
	}
	if o.Remembered == 0 {
		o.Remembered = defaultRemembered
	}
	if o.PerSecond == 0 {
		o.PerSecond = defaultPerSecond
	}
	return nil
}

// OrphanReport sums a collection up.
type OrphanReport struct {
	Objects int   `json:"objects"`   // segments' objects that are listed
	Bytes   int64 `json:"sizeBytes"` // of those
	Live    int   `json:"live"`      // of those, named by a record that has not ended
	Foreign int   `json:"foreign"`   // objects that are not ours

	Orphans     int   `json:"orphans"`     // objects that may go
	OrphanBytes int64 `json:"orphanBytes"` // of those
	Uploads     int   `json:"uploads"`     // unfinished uploads that may go
	Records     int   `json:"records"`     // records that may be ended
	Probes      int   `json:"probes"`      // probes of the store, objects and uploads, that may go
	Kept        int   `json:"kept"`        // of everything found, what stays: too young, unknown, needed
	More        int   `json:"more"`        // orphans beyond what one run takes: run it again

	Deleted      int   `json:"deleted"` // objects, those of probes too
	DeletedBytes int64 `json:"deletedBytes"`
	Aborted      int   `json:"aborted"` // uploads
	Ended        int   `json:"ended"`   // records
	Spared       int   `json:"spared"`  // what was found and had changed when it was to be deleted
	Failed       int   `json:"failed"`  // what could not be deleted
}

// Plan is what a run has found that may go: what a later one, that is given it,
// deletes at most. It can be kept as JSON.
type Plan struct {
	MetadataID string     `json:"metadataId"`
	Items      []PlanItem `json:"items"`
}

// PlanItem is one thing that may go.
type PlanItem struct {
	Reason    Reason       `json:"reason"`
	Key       string       `json:"object"`
	UploadID  string       `json:"uploadId"`
	Identity  string       `json:"identity"`
	SegmentID segment.UUID `json:"segmentId"`
	SizeBytes int64        `json:"sizeBytes"`
}

// Item is what a plan says of an orphan.
func (o *Orphan) Item() PlanItem {
	return PlanItem{Reason: o.Reason, Key: o.Key, UploadID: o.UploadID, Identity: o.Identity, SegmentID: o.SegmentID, SizeBytes: o.Size}
}

var (
	// ErrSuspect: metadata looks as if it had lost something (*SuspectError says
	// what). Nothing was deleted. Find out whether it is the right metadata, or an
	// older copy, before anything else; docs/operations.md says how.
	ErrSuspect = errors.New("metadata looks as if it has lost something")
	// ErrTooMany: more would be deleted than a run may. Nothing was. Look at what was
	// found, and allow for more if it is right.
	ErrTooMany = errors.New("more would be deleted than one run may")
	// ErrRebuilding: metadata of the prefix is being rebuilt, or that was
	// interrupted. Finish it first.
	ErrRebuilding = errors.New("metadata of the prefix is being rebuilt")
	// ErrOtherPlan: a plan is of other metadata.
	ErrOtherPlan = errors.New("plan of other metadata")
)

// SuspectError is ErrSuspect with its evidence.
type SuspectError struct {
	Reason string // what is suspicious
	Key    string // an object that says so, "" if none does
}

// Error says what is suspicious, and what to do.
func (e *SuspectError) Error() string {
	return fmt.Sprintf("%v: %s; nothing is deleted before somebody has found out why (docs/operations.md)", ErrSuspect, e.Reason)
}

// Is makes errors.Is(err, ErrSuspect) true.
func (e *SuspectError) Is(target error) bool { return target == ErrSuspect }
