package subject

import (
	"encoding/json"
	"testing"

	"github.com/segtier/segtier/bench/job"
)

// Consumers whom nobody announced are found by their reads, and as much is kept for them
// as if they had been: through Reader.Fetch, on the traces of bench/policy, shortened.
// Without cursors these have .50, .50 and .03, and F, which goes round and
// round, nothing.
func TestHitRatioOfStrangers(t *testing.T) {
	for _, tc := range []struct {
		trace   string
		half    bool // of the cursors are announced; else all
		shorten float64
		least   float64
	}{
		{"A", false, 40, .68},
		{"A", true, 40, .68},
		{"A-jitter", true, 40, .67},
		{"B", false, 40, .58},
		{"B", true, 40, .54},
		{"C", true, 40, .29},
		{"E", true, 10, .66}, // nobody reads in sequence: who seems to, by chance, spoils it
		{"F", false, 4, .55},
		{"F", true, 4, .55},
	} {
		j := job.Job{Name: tc.trace, World: json.RawMessage("{}"), Param: map[string]float64{"shorten": tc.shorten, "seed": 1}}
		if tc.half {
			j.Param["half"] = 1
		}
		got, err := tracePolicy(t.Context(), j, new(job.Meter))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, half known %v: %.3f", tc.trace, tc.half, got["ratio"])
		if got["ratio"] < tc.least {
			t.Errorf("%s, half known %v: %.3f, want %.3f", tc.trace, tc.half, got["ratio"], tc.least)
		}
	}
}
