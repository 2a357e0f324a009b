package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segtier/segtier/segment"
)

// Event is one fetch of one consumer.
type Event struct {
	At        time.Duration // since the trace began
	Consumer  string
	Topic     string
	TopicID   segment.UUID // zero: whichever topic has the name
	Partition int32
	Offset    int64
	MaxBytes  int
	Committed bool // read_committed

	// Follows says that the consumer goes on where its last read ended, if that gave
	// it anything of this partition. Offset is where that is, nearly.
	Follows bool
}

const (
	traceFormat  = "segtier-trace"
	traceVersion = 1

	maxLine     = 64 << 10
	maxEvents   = 20_000_000
	maxConsumer = 200 // bytes of a name
	maxAt       = 366 * 24 * time.Hour
)

// traceHeader is the first line of a trace.
type traceHeader struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

// traceLine is each further line. Pointers: what is missing is not zero.
type traceLine struct {
	AtMicros  *int64        `json:"atMicros"`
	Consumer  *string       `json:"consumer"`
	Partition *string       `json:"partition"`
	TopicID   *segment.UUID `json:"topicId,omitempty"`
	Offset    *int64        `json:"offset"`
	MaxBytes  *int64        `json:"maxBytes"`
	Isolation string        `json:"isolation,omitempty"`
	Follows   bool          `json:"follows,omitempty"`
}

// ErrTrace: a trace cannot be understood.
var ErrTrace = errors.New("not a trace")

// TraceError is ErrTrace with its place.
type TraceError struct {
	Line int // from 1; 0 is the trace as a whole
	Err  error
}

// Error names the line.
func (e *TraceError) Error() string {
	if e.Line == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("line %d: %v", e.Line, e.Err)
}

// Unwrap returns ErrTrace and the cause.
func (e *TraceError) Unwrap() []error { return []error{ErrTrace, e.Err} }

// Read reads a whole trace, at most 20 million events, and returns them in the
// order of their times. What it cannot understand is a *TraceError; docs/trace-format.md
// is the format.
func Read(r io.Reader) ([]Event, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	var events []Event
	names := make(map[string]string) // one copy of each name
	n, begun := 0, false
	fail := func(err error) ([]Event, error) { return nil, &TraceError{Line: n, Err: err} }
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if !begun {
			var h traceHeader
			if err := decode(line, &h); err != nil || h.Format != traceFormat {
				return fail(fmt.Errorf("a trace begins with {\"format\":%q,\"version\":%d}", traceFormat, traceVersion))
			}
			if h.Version != traceVersion {
				return fail(fmt.Errorf("version %d is not known, only %d", h.Version, traceVersion))
			}
			begun = true
			continue
		}
		if len(events) == maxEvents {
			return fail(fmt.Errorf("more than %d events", maxEvents))
		}
		e, err := parseLine(line, names)
		if err != nil {
			return fail(err)
		}
		events = append(events, e)
	}
	n++
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fail(fmt.Errorf("longer than %d bytes", maxLine))
	} else if err != nil {
		return nil, err // of the file, not of what is in it
	}
	n = 0
	switch {
	case !begun:
		return fail(errors.New("empty"))
	case len(events) == 0:
		return fail(errors.New("no events"))
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events, nil
}

// decode decodes one JSON value that has no field which into has not.
func decode(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.InputOffset() != int64(len(line)) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

func parseLine(line []byte, names map[string]string) (Event, error) {
	var l traceLine
	var e Event
	if err := decode(line, &l); err != nil {
		return e, err
	}
	for name, missing := range map[string]bool{
		"atMicros": l.AtMicros == nil, "consumer": l.Consumer == nil, "partition": l.Partition == nil,
		"offset": l.Offset == nil, "maxBytes": l.MaxBytes == nil,
	} {
		if missing {
			return e, fmt.Errorf("no %s", name)
		}
	}
	slash := strings.LastIndexByte(*l.Partition, '/')
	if slash < 0 {
		return e, fmt.Errorf("partition %.60q is not topic/number", *l.Partition)
	}
	number, err := strconv.ParseUint((*l.Partition)[slash+1:], 10, 31)
	switch {
	case err != nil:
		return e, fmt.Errorf("partition %.60q is not topic/number", *l.Partition)
	case *l.AtMicros < 0 || *l.AtMicros > maxAt.Microseconds():
		return e, fmt.Errorf("atMicros %d is not within 0 and a year", *l.AtMicros)
	case *l.Consumer == "" || len(*l.Consumer) > maxConsumer:
		return e, fmt.Errorf("consumer of %d bytes, allowed are 1 to %d", len(*l.Consumer), maxConsumer)
	case *l.Offset < 0:
		return e, fmt.Errorf("offset %d", *l.Offset)
	case *l.MaxBytes < 0 || *l.MaxBytes > math.MaxInt32:
		return e, fmt.Errorf("maxBytes %d is not within 0 and %d", *l.MaxBytes, math.MaxInt32)
	case l.Isolation != "" && l.Isolation != "read_committed" && l.Isolation != "read_uncommitted":
		return e, fmt.Errorf("isolation %.40q is neither read_committed nor read_uncommitted", l.Isolation)
	}
	topic := (*l.Partition)[:slash]
	if err := segment.ValidateTopic(topic); err != nil {
		return e, err
	}
	one := func(s string) string {
		if have, ok := names[s]; ok {
			return have
		}
		names[s] = s
		return s
	}
	e = Event{
		At: time.Duration(*l.AtMicros) * time.Microsecond, Consumer: one(*l.Consumer), Topic: one(topic), Partition: int32(number),
		Offset: *l.Offset, MaxBytes: int(*l.MaxBytes), Committed: l.Isolation == "read_committed", Follows: l.Follows,
	}
	if l.TopicID != nil {
		e.TopicID = *l.TopicID
	}
	return e, nil
}

// Write writes a trace.
func Write(w io.Writer, events []Event) error {
	b := bufio.NewWriter(w)
	t, err := newTraceWriter(b)
	if err != nil {
		return err
	}
	for i := range events {
		if err := t.write(&events[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}

// traceWriter writes the lines of a trace.
type traceWriter struct{ e *json.Encoder }

func newTraceWriter(w io.Writer) (*traceWriter, error) {
	t := &traceWriter{json.NewEncoder(w)}
	return t, t.e.Encode(traceHeader{traceFormat, traceVersion})
}

func (t *traceWriter) write(e *Event) error {
	at, partition, maxBytes := e.At.Microseconds(), fmt.Sprintf("%s/%d", e.Topic, e.Partition), int64(e.MaxBytes)
	l := traceLine{AtMicros: &at, Consumer: &e.Consumer, Partition: &partition, Offset: &e.Offset, MaxBytes: &maxBytes, Follows: e.Follows}
	if !e.TopicID.IsZero() {
		l.TopicID = &e.TopicID
	}
	if e.Committed {
		l.Isolation = "read_committed"
	}
	return t.e.Encode(l)
}
