package fetch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// What there is not is told by its name, whoever is asked, and is never the end of the tier.
func TestRequestsAreChecked(t *testing.T) {
	log := testseg.Random(5, testseg.Options{Segments: 1})
	x := newTier(t, log, tierOptions{})
	defer x.close()
	good := fetch.Request{Partition: log.Segments[0].Info().Partition, Offset: log.Segments[0].Info().StartOffset}
	for names, change := range map[string]func(*fetch.Request){
		"Request.Hint is 5":       func(r *fetch.Request) { r.Hint = fetch.TimeQuery + 1 },
		"Request.Hint is 255":     func(r *fetch.Request) { r.Hint = 255 },
		"Request.Isolation is 2":  func(r *fetch.Request) { r.Isolation = fetch.ReadCommitted + 1 },
		"partition /0 with topic": func(r *fetch.Request) { r.Partition = segment.Partition{} },
		"/-1 with topic id":       func(r *fetch.Request) { r.Partition.Number = -1 },
		"leader epochs: entry 1":  func(r *fetch.Request) { r.Lineage = segment.Lineage{{}, {}} },
	} {
		req := good
		change(&req)
		refused := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), names) {
				t.Errorf("%s: %v does not name %q", what, err, names)
			}
		}
		var res fetch.Result
		refused("Fetch", x.reader.Fetch(t.Context(), req, &res))
		_, err := x.reader.Explain(t.Context(), req)
		refused("Explain", err)
		s := x.reader.Stream(req)
		refused("Stream", s.Next(t.Context(), &res))
		s.Close()
		answers := x.reader.FetchMany(t.Context(), fetch.ManyRequest{Requests: []fetch.Request{req, good}}, nil)
		refused("FetchMany", answers[0].Err)
		if answers[1].Result.Release(); answers[1].Err != nil && !errors.Is(answers[1].Err, fetch.ErrNotReady) {
			t.Errorf("a neighbour's request that is none concerns who asks well: %v", answers[1].Err)
		}
	}
	// Also where there is no room for it.
	bad := good
	bad.Hint = 99
	full := fetch.ManyRequest{Requests: []fetch.Request{good, bad}, MaxBytes: 1}
	answers := x.reader.FetchMany(t.Context(), full, nil)
	if err := answers[1].Err; err == nil || !strings.Contains(err.Error(), "Request.Hint is 99") {
		t.Errorf("no room for what is no request: %v", err)
	}
	answers[0].Result.Release()
	_, err := x.reader.OffsetForTime(t.Context(), fetch.TimeRequest{})
	if err == nil || !strings.Contains(err.Error(), "topic id") {
		t.Errorf("a time in no partition: %v", err)
	}
}

func TestNoResult(t *testing.T) {
	log := testseg.Random(5, testseg.Options{Segments: 1})
	x := newTier(t, log, tierOptions{})
	defer x.close()
	req := fetch.Request{Partition: log.Segments[0].Info().Partition, Offset: log.Segments[0].Info().StartOffset}
	s := x.reader.Stream(req)
	defer s.Close()
	for what, err := range map[string]error{"Fetch": x.reader.Fetch(t.Context(), req, nil), "Next": s.Next(t.Context(), nil)} {
		if err == nil || !strings.Contains(err.Error(), "Result is nil") {
			t.Errorf("%s into nothing: %v", what, err)
		}
	}
}
