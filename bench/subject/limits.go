package subject

import (
	"maps"
	"slices"
	"time"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/objstore/endpoint"
)

// options are those of a job's parts. Its budget of memory, and the parts of an upload,
// are fields of the job.
type options struct {
	endpoint endpoint.Options
	fetch    fetch.Options
	stall    time.Duration // of the store's requests
}

// limits are what a job may set in Param, in bytes, counts and seconds. What it does not set
// is at its default.
func limits() map[string]func(o *options, v float64) {
	seconds := func(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
	return map[string]func(o *options, v float64){
		"requests":              func(o *options, v float64) { o.endpoint.Requests = int(v) },
		"bytesInFlight":         func(o *options, v float64) { o.endpoint.BytesInFlight = int64(v) },
		"tenantRequests":        func(o *options, v float64) { o.endpoint.TenantRequests = int(v) },
		"tenantBytesInFlight":   func(o *options, v float64) { o.endpoint.TenantBytesInFlight = int64(v) },
		"uploadBytesPerSecond":  func(o *options, v float64) { o.endpoint.UploadBytesPerSecond = int64(v) },
		"attempts":              func(o *options, v float64) { o.endpoint.Attempts = int(v) },
		"retryBudget":           func(o *options, v float64) { o.endpoint.RetryBudget = int(v) },
		"progressTimeout":       func(o *options, v float64) { o.endpoint.ProgressTimeout = seconds(v) },
		"uploadProgressTimeout": func(o *options, v float64) { o.endpoint.UploadProgressTimeout = seconds(v) },
		"hedgeBytes":            func(o *options, v float64) { o.endpoint.HedgeBytes = int64(v) },
		"tailBytes":             func(o *options, v float64) { o.fetch.TailBytes = int64(v) },
		"runBytes":              func(o *options, v float64) { o.fetch.RunBytes = int64(v) },
		"stallTimeout":          func(o *options, v float64) { o.stall = seconds(v) },
	}
}

// Limits returns the names of limits in Param, sorted.
func Limits() []string { return slices.Sorted(maps.Keys(limits())) }

func optionsOf(j job.Job) (o options) {
	for name, set := range limits() {
		if v, ok := j.Param[name]; ok {
			set(&o, v)
		}
	}
	return o
}
