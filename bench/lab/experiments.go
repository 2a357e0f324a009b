package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/segtier/segtier/bench/job"
)

// experiment gives figures.
type experiment struct {
	ids []string
	run func(*lab) error
}

// experiments are all of them, in the order in which they run.
func experiments() []experiment {
	growth := func(prefix string) []string { return idsWith(prefix) }
	list := []experiment{
		{[]string{"upload_cpu_http", "upload_wall", "upload_alloc_mib", "workload_upload_one"}, uploadHTTP},
		{[]string{"upload_cpu_tls"}, uploadTLS},
		{[]string{"upload_rss_growth"}, uploadMemory},
		{[]string{"lease_cost", "lease_allocs"}, leaseCost},
		{[]string{"lease_scaling"}, leaseScaling},
		{[]string{"fetch_hot_cost", "fetch_hot_allocs"}, fetchHot},
		{[]string{"serve_cpu"}, serveCPU},
		{[]string{"fill_cpu_readfull", "gets_sequential", "amplification_sequential", "workload_catchup"}, fillReadFull},
		{[]string{"fill_cpu_small_batches"}, fillSmall},
		{[]string{"fill_cpu_readall"}, fillReadAll},
		{[]string{"gets_fanout", "workload_fanout"}, fanout},
		{[]string{"amplification_mixed", "duplicate_bytes"}, mixed},
		{[]string{"catchup_rate"}, catchUp},
		{[]string{"first_bytes"}, firstBytes},
		{[]string{"cold_segment_gets"}, coldSegment},
		{[]string{"time_lookup_gets"}, timeLookup},
		{[]string{"demand_p99", "demand_extra_gets"}, demand},
		{[]string{"tail_p99_with_backfills"}, func(l *lab) error { return tailWith(l, "tail_p99_with_backfills", 8) }},
		{[]string{"workload_backfills_2"}, func(l *lab) error { return tailWith(l, "workload_backfills_2", 2) }},
		{[]string{"hit_ratio_known"}, func(l *lab) error { return hitRatio(l, "hit_ratio_known", segtier) }},
		{[]string{"hit_ratio_half_known"}, func(l *lab) error { return hitRatio(l, "hit_ratio_half_known", "segtier-half") }},
		{[]string{"resident_memory", "workload_streams"}, manyStreams},
		{[]string{"throttled_success", "throttled_gets"}, throttled},
		{[]string{"offset_lookup", "offset_lookup_allocs"}, offsetLookup},
		{[]string{"segment_lookup", "segment_lookup_allocs"}, segmentLookup},
		{[]string{"segment_memory"}, segmentMemory},
		{[]string{"restart_first_hit"}, func(l *lab) error { return exists(l, "restart_first_hit", "restart") }},
		{[]string{"wrong_bytes_after_kill"}, func(l *lab) error { return exists(l, "wrong_bytes_after_kill", "kill") }},
		{[]string{"workload_random_p99", "workload_random_amplification"}, func(l *lab) error { return scattered(l, "random") }},
		{[]string{"workload_seek_p99", "workload_seek_amplification"}, func(l *lab) error { return scattered(l, "seek") }},
		{[]string{"workload_loop_hits"}, func(l *lab) error { return hitShare(l, "loop") }},
		{[]string{"workload_zipf_hits"}, func(l *lab) error { return hitShare(l, "zipf") }},
		{[]string{"workload_slow_consumer"}, slowConsumer},
		{[]string{"workload_lookups_gets", "workload_lookups_p99"}, lookups},
		{[]string{"workload_upload_64"}, uploadMany},
		{growth("growth_streams_"), growStreams},
		{growth("growth_segments_"), growSegments},
		{growth("growth_segment_"), growSizes},
	}
	for _, t := range tunings() {
		list = append(list, experiment{t.ids(), t.run})
	}
	for _, work := range []string{"upload", "fill"} {
		for _, p := range peersOf(work) {
			id := "peer_" + work + "_" + p
			run := fillPeer
			if work == "upload" {
				run = uploadPeer
			}
			list = append(list, experiment{[]string{id}, func(l *lab) error { return run(l, id, p) }})
		}
	}
	for _, id := range idsWith("policy_") {
		_, rest, _ := strings.Cut(id, "_")
		trace, name, _ := strings.Cut(rest, "_")
		list = append(list, experiment{[]string{id}, func(l *lab) error {
			ratio, err := l.policy(trace, name)
			if err != nil {
				return err
			}
			return l.show(id, []float64{ratio}, 0, "")
		}})
	}
	return list
}

// idsWith returns the ids of extras that begin with prefix.
func idsWith(prefix string) []string {
	var ids []string
	for _, m := range extras() {
		if strings.HasPrefix(m.id, prefix) {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// exists runs the work of something that may not exist yet.
func exists(l *lab, id, work string) error {
	res, err := l.run(job.Job{Work: work, Subject: segtier}, nil)
	if err != nil {
		return err
	}
	return l.show(id, []float64{res.Values["value"]}, 0, "")
}

// all runs the experiments that give a figure that is wanted. Each id gets its
// line: where an experiment fails, one that says why.
func (l *lab) all(list []experiment) error {
	shown := &tracking{printer: l.print, shown: map[string]bool{}}
	l.print = shown
	check := contentCheck(l)
	for _, e := range list {
		if !l.wanted(e.ids) {
			continue
		}
		_, _ = fmt.Fprintf(l.log, "%s\n", strings.Join(e.ids, ", "))
		err := check
		if err == nil {
			err = e.run(l)
		}
		if err == nil {
			err = errors.New("the experiment gave no figure")
		}
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		var v void
		if errors.As(err, &v) {
			l.failed = true
		}
		for _, id := range e.ids {
			if !shown.has(id) {
				if err := l.none(id, err.Error()); err != nil {
					return err
				}
			}
		}
	}
	return l.print.flush()
}

func (l *lab) wanted(ids []string) bool {
	if l.only == nil {
		return true
	}
	for _, id := range ids {
		if l.only(id) {
			return true
		}
	}
	return false
}
