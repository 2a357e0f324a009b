package subject

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/segtier/segtier/bench/job"
)

// Each limit sets the option of its name, and that alone: a figure of a limit that goes
// nowhere would be 1 and say nothing.
func TestLimitsSetOptions(t *testing.T) {
	want := map[string]any{
		"Requests": 3, "BytesInFlight": int64(3), "TenantRequests": 3, "TenantBytesInFlight": int64(3), "UploadBytesPerSecond": int64(3),
		"Attempts": 3, "RetryBudget": 3, "ProgressTimeout": 3 * time.Second, "UploadProgressTimeout": 3 * time.Second,
		"HedgeBytes": int64(3), "TailBytes": int64(3), "RunBytes": int64(3), "stall": 3 * time.Second,
	}
	if len(Limits()) != len(want) {
		t.Errorf("%d limits, %d options", len(Limits()), len(want))
	}
	seen := map[string]bool{}
	for _, name := range Limits() {
		set := changed(reflect.ValueOf(optionsOf(job.Job{Param: map[string]float64{name: 3}})))
		if len(set) != 1 {
			t.Errorf("%s sets %v", name, set)
		}
		for field, v := range set {
			if v.String() != reflect.ValueOf(want[field]).String() || v.Int() != reflect.ValueOf(want[field]).Int() {
				t.Errorf("%s sets %s to %v, not %v", name, field, v, want[field])
			}
			seen[field] = true
		}
	}
	for field := range want {
		if !seen[field] {
			t.Errorf("no limit sets %s", field)
		}
	}
	if got := changed(reflect.ValueOf(optionsOf(job.Job{Param: map[string]float64{"seed": 3}}))); len(got) != 0 {
		t.Errorf("a parameter that is no limit sets %v", got)
	}
}

// The read path has the limits of its job: each refuses less than nothing.
func TestRigHasTheLimits(t *testing.T) {
	for _, name := range Limits() {
		if name == "stallTimeout" {
			continue // of the store, which this rig is given
		}
		j := job.Job{World: json.RawMessage("{}"), Memory: 8 << 20, Param: map[string]float64{name: -1}}
		tier, err := openTier(j)
		if err != nil {
			t.Fatal(err)
		}
		meta, err := tier.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		r, err := newRig(j, tier, meta, &local{})
		if err == nil {
			r.done(&err)
			t.Errorf("%s: -1 is taken (%v)", name, err)
		}
	}
}

// changed returns the fields of v that are not zero, by name.
func changed(v reflect.Value) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		switch {
		case field.IsZero():
		case field.Kind() == reflect.Struct:
			for k, v := range changed(field) {
				all[k] = v
			}
		default:
			all[name] = field
		}
	}
	return all
}
