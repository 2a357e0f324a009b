package weather

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Schedule is the weather. The zero value is calm: everything is answered at once
// and as fast as it can be. All rates are in bytes per second, 0 for no limit.
type Schedule struct {
	Seed      uint64  `json:"seed,omitempty"`
	FirstByte Latency `json:"firstByte,omitzero"` // of every answer, from the end of the request

	ConnRate  int64 `json:"connRate,omitempty"`  // of each connection, in each direction
	TotalRate int64 `json:"totalRate,omitempty"` // of all together, in each direction

	// RequestRate is how many requests are taken in a second; those beyond it are
	// answered 503 SlowDown. RequestBurst may come at once; 0 is a tenth of a second's.
	RequestRate  float64 `json:"requestRate,omitempty"`
	RequestBurst int     `json:"requestBurst,omitempty"`

	// IdleClose closes connections that had no request for so long; 0 is never.
	IdleClose Duration `json:"idleClose,omitempty"`

	// Faults are asked one after the other about each request; the first that
	// applies is the one that happens.
	Faults []Fault `json:"faults,omitempty"`
}

// Duration is a time.Duration that is written "30ms".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Distribution is how latencies are distributed.
type Distribution string

// The distributions.
const (
	// Constant: always the median.
	Constant Distribution = "constant"
	// Lognormal: half are below the median, 99 of 100 below P99. What object
	// stores look like on a good day.
	Lognormal Distribution = "lognormal"
	// HeavyTail: lognormal, but of the share Tail the latency is P99 at least and
	// falls off as a power law (alpha 1.1) up to Max.
	HeavyTail Distribution = "heavytail"
)

// Latency is a distribution of latencies.
type Latency struct {
	Kind   Distribution `json:"kind,omitempty"`   // "" is Constant
	Median Duration     `json:"median,omitempty"` //
	P99    Duration     `json:"p99,omitempty"`    // not of Constant
	Tail   float64      `json:"tail,omitempty"`   // of HeavyTail: a share, 0 to 1
	Max    Duration     `json:"max,omitempty"`    // 0 is no bound
}

// Kind is a kind of fault.
type Kind string

// The kinds of fault. At is a position in the body.
const (
	Stall      Kind = "stall"      // nothing is sent for the duration For, from byte At on; then it goes on
	Reset      Kind = "reset"      // the connection is reset (RST) at byte At
	Cut        Kind = "cut"        // the connection is closed (FIN) at byte At
	Short      Kind = "short"      // the answer is whole and consistent, but of At bytes only
	Whole      Kind = "whole"      // 200 and the whole object in place of the range
	WrongRange Kind = "wrongrange" // Content-Range and bytes of a range shifted by one
	WrongETag  Kind = "wrongetag"  // another ETag
	Encoded    Kind = "encoded"    // Content-Encoding: gzip, as a proxy on the way may
	Flip       Kind = "flip"       // one bit of byte At is wrong
	Throttle   Kind = "throttle"   // 503 SlowDown, with Retry-After if RetryAfter is set
	Internal   Kind = "internal"   // 500 InternalError
	Refuse     Kind = "refuse"     // 403 AccessDenied
	Missing    Kind = "missing"    // 404 NoSuchKey
	Late       Kind = "late"       // the answer begins later, by For
	// ErrorIn200: CompleteMultipartUpload answers 200 with an error in its body, and
	// has done nothing.
	ErrorIn200 Kind = "errorin200"
	// Lost: the write is done, and then the connection is closed without an
	// answer. Of writes: PutObject, UploadPart, CompleteMultipartUpload,
	// DeleteObject and AbortMultipartUpload.
	Lost Kind = "lost"
	// WrongEcho: the answer to a write names another checksum and ETag.
	WrongEcho Kind = "wrongecho"
)

// ofReads are the kinds that concern bodies of GETs.
func (k Kind) ofReads() bool {
	switch k {
	case Stall, Reset, Cut, Short, Whole, WrongRange, WrongETag, Encoded, Flip:
		return true
	default:
		return false
	}
}

// ofWrites are the kinds that concern writes alone.
func (k Kind) ofWrites() bool { return k == ErrorIn200 || k == Lost || k == WrongEcho }

func (k Kind) known() bool {
	switch k {
	case Throttle, Internal, Refuse, Missing, Late:
		return true
	default:
		return k.ofReads() || k.ofWrites()
	}
}

// Fault is something that happens to a share of the requests. A fault for which a
// request is not the kind of request, does not happen to it.
type Fault struct {
	Kind  Kind    `json:"kind"`
	Share float64 `json:"share"` // of the requests that match, 0 to 1

	// Operation is S3's name of the operation, "GetObject"; "" is all that the kind
	// is about, for Throttle all.
	Operation string `json:"operation,omitempty"`
	// Object is a part of the object's name; "" is every object.
	Object string `json:"object,omitempty"`
	// Attempts: only the first so many times that a client asks for an object from
	// one position on; 0 is always.
	Attempts int `json:"attempts,omitempty"`
	// From and Until bound the position that is asked for, if Until is not 0.
	From  int64 `json:"from,omitempty"`
	Until int64 `json:"until,omitempty"`

	At         int64    `json:"at,omitempty"`         // byte of the body; -1 is a random one, of Short never the last
	For        Duration `json:"for,omitempty"`        // of Stall and Late
	RetryAfter Duration `json:"retryAfter,omitempty"` // of Throttle, whole seconds
}

// Validate says what is wrong with s.
func (s *Schedule) Validate() error {
	fail := func(format string, args ...any) error { return fmt.Errorf("weather: schedule: "+format, args...) }
	if err := s.FirstByte.validate(); err != nil {
		return fail("firstByte: %w", err)
	}
	switch {
	case s.ConnRate < 0 || s.TotalRate < 0 || s.RequestBurst < 0 || !(s.RequestRate >= 0) || math.IsInf(s.RequestRate, 0):
		return fail("negative rate")
	case s.IdleClose < 0:
		return fail("idleClose %v", time.Duration(s.IdleClose))
	}
	for i, f := range s.Faults {
		if err := f.validate(); err != nil {
			return fail("fault %d: %w", i, err)
		}
	}
	return nil
}

func (l Latency) validate() error {
	switch {
	case l.Median < 0 || l.Max < 0:
		return errors.New("negative latency")
	case l.Kind == "" || l.Kind == Constant:
		return nil
	case l.Kind != Lognormal && l.Kind != HeavyTail:
		return fmt.Errorf("kind %q is none of %s, %s, %s", l.Kind, Constant, Lognormal, HeavyTail)
	case l.Median <= 0 || l.P99 <= l.Median:
		return fmt.Errorf("p99 %v must be above the median %v", time.Duration(l.P99), time.Duration(l.Median))
	case !(l.Tail >= 0 && l.Tail <= 1):
		return fmt.Errorf("tail %v is no share", l.Tail)
	}
	return nil
}

func (f Fault) validate() error {
	switch {
	case !f.Kind.known():
		return fmt.Errorf("kind %q is unknown", f.Kind)
	case !(f.Share >= 0 && f.Share <= 1):
		return fmt.Errorf("%s: share %v is not within 0 and 1", f.Kind, f.Share)
	case f.Operation != "" && !slices.Contains(operations(), f.Operation):
		return fmt.Errorf("%s: operation %q is unknown", f.Kind, f.Operation)
	case f.Attempts < 0 || f.At < -1 || f.For < 0 || f.RetryAfter < 0:
		return fmt.Errorf("%s: negative number", f.Kind)
	case (f.Kind == Stall || f.Kind == Late) && f.For == 0:
		return fmt.Errorf("%s: for how long?", f.Kind)
	}
	return nil
}

// Presets returns the names of the schedules that are known by name.
func Presets() []string { return slices.Sorted(maps.Keys(presets())) }

func presets() map[string]Schedule {
	s3 := Latency{Kind: Lognormal, Median: Duration(30 * time.Millisecond), P99: Duration(200 * time.Millisecond)}
	const (
		lifetime = Duration(10 * time.Second) // of an idle connection
		connRate = 90 << 20
	)
	return map[string]Schedule{
		"calm": {},
		// An object store in the same region.
		"s3": {FirstByte: s3, ConnRate: connRate, RequestRate: 5500, IdleClose: lifetime},
		// The same with a heavy tail: 3 % of the first bytes take 200 ms to 5 s.
		"heavytail": {
			FirstByte: Latency{Kind: HeavyTail, Median: s3.Median, P99: s3.P99, Tail: .03, Max: Duration(5 * time.Second)},
			ConnRate:  connRate, IdleClose: lifetime,
		},
		// Every fifth request is refused.
		"throttled": {FirstByte: s3, ConnRate: connRate, Faults: []Fault{{Kind: Throttle, Share: .2}}},
		// Something of everything, each rarely enough that four attempts succeed.
		"storm": {
			FirstByte: Latency{Kind: Lognormal, Median: Duration(2 * time.Millisecond), P99: Duration(20 * time.Millisecond)},
			Faults: []Fault{
				{Kind: Throttle, Share: .02},
				{Kind: Throttle, Share: .005, RetryAfter: Duration(time.Second), Attempts: 1},
				{Kind: Internal, Share: .02},
				{Kind: Stall, Share: .02, At: -1, For: Duration(300 * time.Millisecond)},
				{Kind: Reset, Share: .03, At: -1},
				{Kind: Cut, Share: .03, At: -1},
				{Kind: Short, Share: .01, At: -1},
				{Kind: Whole, Share: .01},
				{Kind: WrongRange, Share: .01},
				{Kind: WrongETag, Share: .01, Attempts: 1},
				{Kind: Flip, Share: .03, At: -1, Attempts: 1},
				{Kind: Late, Share: .02, For: Duration(200 * time.Millisecond)},
				{Kind: Lost, Share: .05, Attempts: 1},
				{Kind: ErrorIn200, Share: .2, Attempts: 1},
			},
		},
	}
}

// ParseSchedule reads a schedule: the name of one of Presets, a JSON object, or
// @FILE with one.
func ParseSchedule(text string) (Schedule, error) {
	var s Schedule
	if preset, ok := presets()[text]; ok {
		return preset, nil
	}
	data := []byte(text)
	if name, ok := strings.CutPrefix(text, "@"); ok {
		var err error
		if data, err = os.ReadFile(name); err != nil {
			return s, fmt.Errorf("weather: schedule: %w", err)
		}
	} else if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return s, fmt.Errorf("weather: schedule %q: it is JSON, @FILE, or one of %s", text, strings.Join(Presets(), ", "))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("weather: schedule: %w", err)
	}
	if d.More() {
		return s, errors.New("weather: schedule: something follows the JSON object")
	}
	return s, s.Validate()
}
