package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/segment"
)

// Recorder writes a trace of the fetches that a host makes. Its Fetched is for
// fetch.Events; it may be called concurrently, and never waits for the writer.
type Recorder struct {
	consumer func(context.Context) string
	queue    chan recorded
	done     chan struct{}
	result   error // of the writer; valid once done is closed

	mu      sync.Mutex
	closed  bool      // guarded by mu
	began   time.Time // of the first fetch; guarded by mu
	dropped int64     // fetches for which the queue had no room; guarded by mu
}

// recorded is what the writer needs of a fetch.
type recorded struct {
	Event
	next int64
}

// queueLength is how many fetches may wait for the writer, some MiB.
const queueLength = 1 << 15

// NewRecorder begins a trace. consumer names the consumer of a fetch from its
// context; where it is nil or returns "", a fetch belongs to the consumer that
// had come to its offset, or to a new one. w is written to by a goroutine that
// ends with Close.
func NewRecorder(w io.Writer, consumer func(context.Context) string) *Recorder {
	r := &Recorder{consumer: consumer, queue: make(chan recorded, queueLength), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.result = r.write(w)
	}()
	return r
}

// Fetched takes a fetch.
func (r *Recorder) Fetched(ctx context.Context, f fetch.Fetched) {
	e := recorded{next: f.NextOffset, Event: Event{
		Topic: f.Request.Partition.Topic, TopicID: f.Request.Partition.TopicID, Partition: f.Request.Partition.Number,
		Offset: max(f.Request.Offset, 0), MaxBytes: min(max(f.Request.MaxBytes, 0), math.MaxInt32), Committed: f.Request.Isolation == fetch.ReadCommitted,
	}}
	if r.consumer != nil {
		e.Consumer = r.consumer(ctx)
		e.Consumer = e.Consumer[:min(len(e.Consumer), maxConsumer)]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.began.IsZero() {
		r.began = f.Began
	}
	// Fetches are told when they end: one that began before the first is its
	// contemporary.
	e.At = max(f.Began.Sub(r.began), 0)
	select {
	case r.queue <- e:
	default:
		r.dropped++
	}
}

// write writes what is queued until the queue is closed. It goes on reading when
// writing has failed.
func (r *Recorder) write(w io.Writer) error {
	b := bufio.NewWriterSize(w, 64<<10)
	t, err := newTraceWriter(b)
	cursors := cursors{at: make(map[cursor]string)}
	for e := range r.queue {
		if e.Consumer == "" {
			e.Consumer = cursors.name(&e)
		}
		if err == nil {
			err = t.write(&e.Event)
		}
	}
	if err != nil {
		return err
	}
	return b.Flush()
}

// Close ends the trace and waits until it is written. It is an error if fetches
// are missing in it. It may be called more than once.
func (r *Recorder) Close() error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.queue)
	}
	dropped := r.dropped
	r.mu.Unlock()
	<-r.done
	err := r.result
	if dropped > 0 {
		err = errors.Join(err, fmt.Errorf("%d fetches are missing in the trace: it was written too slowly", dropped))
	}
	return err
}

// cursor is where a consumer has come to.
type cursor struct {
	topic  segment.UUID
	number int32
	offset int64
}

// cursors guesses who fetches.
type cursors struct {
	at    map[cursor]string
	named int
}

// maxCursors bounds the memory for guesses; beyond it all are forgotten.
const maxCursors = 1 << 17

func (c *cursors) name(e *recorded) string {
	here := cursor{e.TopicID, e.Partition, e.Offset}
	name, ok := c.at[here]
	if !ok {
		c.named++
		name = fmt.Sprintf("c%d", c.named)
	}
	if e.next > e.Offset {
		delete(c.at, here)
		if len(c.at) >= maxCursors {
			clear(c.at)
		}
		c.at[cursor{e.TopicID, e.Partition, e.next}] = name
	}
	return name
}
