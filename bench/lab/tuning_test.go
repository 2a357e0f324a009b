package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
)

// recorder notes the jobs that it is given.
type recorder struct {
	fakeRunner
	jobs []job.Job
}

func (r *recorder) do(ctx context.Context, j job.Job) (job.Result, error) {
	r.jobs = append(r.jobs, j)
	return r.fakeRunner.do(ctx, j)
}

// chunkOfWorld is the size of chunks that a job reads, 0 if it reads none.
func chunkOfWorld(t *testing.T, j job.Job) float64 {
	t.Helper()
	if j.Work == "upload" {
		return 0
	}
	var spec weather.Spec
	if err := json.Unmarshal(j.World, &spec); err != nil {
		t.Fatal(err)
	}
	return float64(spec.ChunkBytes)
}

// Each setting is in the job of its side, as what is read out of it, and in no other.
func TestSettingsAreInTheirJobs(t *testing.T) {
	for _, tune := range tunings() {
		l := newLab(t, io.Discard)
		r := &recorder{}
		l.at, l.ours, l.check = fakeServer(t), r, trusting{}
		if err := tune.run(l); err != nil {
			t.Fatal(err)
		}
		if len(r.jobs) != 1+len(tune.settings) {
			t.Fatalf("%d jobs for %d settings", len(r.jobs), len(tune.settings))
		}
		standard := r.jobs[0]
		for i, s := range tune.settings {
			j := r.jobs[i+1]
			var got, without float64
			switch s.limit {
			case "memoryBytes":
				got, without = float64(j.Memory), float64(standard.Memory)
			case "partSize":
				got, without = float64(j.PartSize), float64(standard.PartSize)
			case "concurrency":
				got, without = float64(j.Concurrency), float64(standard.Concurrency)
			case "chunkSize":
				got, without = chunkOfWorld(t, j), chunkOfWorld(t, standard)
			case "hint":
				got, without = j.Param[s.limit], standard.Param[s.limit]
			default:
				if !slices.Contains(subject.Limits(), s.limit) {
					t.Errorf("nobody knows %s", s.limit)
				}
				got, without = j.Param[s.limit], standard.Param[s.limit]
			}
			if got != s.value || without == s.value {
				t.Errorf("%s: the job has %v, that of the default %v", s.id(""), got, without)
			}
		}
	}
}

// docs/tuning.md names each figure of a limit, and no other.
func TestTuningDocumentNamesItsFigures(t *testing.T) {
	text, err := os.ReadFile("../../docs/tuning.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range extras() {
		if strings.HasPrefix(m.id, "tuning_") {
			want = append(want, m.id)
		}
	}
	var named []string
	for _, m := range regexp.MustCompile("`(tuning_[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(text), -1) {
		named = append(named, m[1])
	}
	for _, id := range want {
		if !slices.Contains(named, id) {
			t.Errorf("%s is not in docs/tuning.md", id)
		}
	}
	for _, id := range named {
		if !slices.Contains(want, id) {
			t.Errorf("docs/tuning.md names %s, which does not exist", id)
		}
	}
}
