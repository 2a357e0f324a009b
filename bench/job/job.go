package job

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxLine bounds a line of the protocol: a job may list some thousand objects
// with the sums of their chunks.
const maxLine = 64 << 20

// Job is what a runner is asked for. Works take what they need of it.
type Job struct {
	Work    string `json:"work"`    // what is to be done: "fill", "upload", …
	Subject string `json:"subject"` // by whom: "segtier", "manager", …

	Server string `json:"server,omitempty"` // URL of the store
	CAFile string `json:"caFile,omitempty"` // authorities for https
	Bucket string `json:"bucket,omitempty"`
	Client string `json:"client,omitempty"` // access key: the server tells clients apart by it
	Sink   string `json:"sink,omitempty"`   // address that served bytes are written to
	Label  string `json:"label,omitempty"`  // of this job, unique: the sink's sums carry it

	World   json.RawMessage `json:"world,omitempty"`   // of the generated segments; runners of ours know what it means
	Objects []Object        `json:"objects,omitempty"` // to read, in this order
	File    string          `json:"file,omitempty"`    // to upload
	Key     string          `json:"key,omitempty"`     // to upload it to

	PartSize    int64 `json:"partSize,omitempty"`    // bytes of one GET or one part
	Concurrency int   `json:"concurrency,omitempty"` // requests at a time
	Memory      int64 `json:"memory,omitempty"`      // budget of caches, bytes
	Count       int   `json:"count,omitempty"`       // repetitions
	Streams     int   `json:"streams,omitempty"`     // readers at a time

	Param map[string]float64 `json:"param,omitempty"` // what only one work knows
	Name  string             `json:"name,omitempty"`  // likewise
}

// Object is an object to be read.
type Object struct {
	Key     string   `json:"key"`
	Size    int64    `json:"size"`            // of the whole object
	LogSize int64    `json:"logSize"`         // of its first part, which is what is served
	CRC32C  uint32   `json:"crc32c"`          // of that part
	Chunk   int64    `json:"chunk,omitempty"` // bytes that each sum covers
	Sums    []uint32 `json:"sums,omitempty"`  // CRC-32C of the chunks of that part
}

// Result is what came of a job.
type Result struct {
	Work    string `json:"work"`
	Subject string `json:"subject"`

	Wall   float64 `json:"wall"`   // s
	User   float64 `json:"user"`   // s of CPU, of this process alone
	System float64 `json:"system"` // s

	Bytes      int64 `json:"bytes"`      // of data that was asked for and served, or uploaded
	AllocBytes int64 `json:"allocBytes"` // allocated
	Allocs     int64 `json:"allocs"`     // allocations
	PeakRSS    int64 `json:"peakRSS"`    // bytes; 0 where the system does not say

	Keys   []string           `json:"keys,omitempty"`   // of the objects that were uploaded
	Values map[string]float64 `json:"values,omitempty"` // what only one work knows
	Error  string             `json:"error,omitempty"`
	// Missing says that the subject does not exist (yet) and why; it is no failure.
	Missing string `json:"missing,omitempty"`
}

// CPU returns the seconds of CPU.
func (r Result) CPU() float64 { return r.User + r.System }

// ErrMissing: the subject does not exist (yet).
var ErrMissing = errors.New("does not exist")

// Work does a job. It calls m.Start when it is ready and m.Stop when the work
// is done, and may return values of its own.
type Work func(ctx context.Context, j Job, m *Meter) (map[string]float64, error)

// Serve reads jobs from in until it ends, has them done and writes the results
// to out. works are named "subject/work"; "*" stands for any subject.
func Serve(ctx context.Context, in io.Reader, out io.Writer, works map[string]Work) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	enc := json.NewEncoder(out)
	for lines.Scan() {
		var j Job
		if err := json.Unmarshal(lines.Bytes(), &j); err != nil {
			return fmt.Errorf("job that cannot be read: %w", err)
		}
		if err := enc.Encode(Do(ctx, j, works)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Do does one job.
func Do(ctx context.Context, j Job, works map[string]Work) Result {
	r := Result{Work: j.Work, Subject: j.Subject}
	work := works[j.Subject+"/"+j.Work]
	if work == nil {
		work = works["*/"+j.Work]
	}
	if work == nil {
		r.Missing = fmt.Sprintf("no work %s/%s in this runner", j.Subject, j.Work)
		return r
	}
	var m Meter
	values, err := work(ctx, j, &m)
	switch {
	case errors.Is(err, ErrMissing):
		r.Missing = strings.TrimPrefix(err.Error(), ErrMissing.Error()+": ")
	case err != nil:
		r.Error = err.Error()
	case m.state != stopped:
		r.Error = "the work was not measured from start to end"
	}
	m.fill(&r)
	r.Values = values
	return r
}

// Names returns the works that a runner has, sorted.
func Names(works map[string]Work) []string {
	names := make([]string, 0, len(works))
	for name := range works {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
