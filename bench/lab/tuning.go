package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
)

// setting is a limit at a value.
type setting struct {
	limit string  // as subject has it in Param, or a field of the job; "" is no limit at all
	name  string  // of the value, as figures have it
	value float64 // 0 is the default
}

// id is the name of a figure.
func (s setting) id(suffix string) string {
	var b strings.Builder
	b.WriteString("tuning_")
	for _, r := range s.limit {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	b.WriteString("_" + s.name)
	if suffix != "" {
		b.WriteString("_" + suffix)
	}
	return b.String()
}

// on has a job done with the setting.
func (s setting) on(j job.Job) job.Job {
	param := map[string]float64{}
	for k, v := range j.Param {
		param[k] = v
	}
	j.Param = param
	switch {
	case s.value == 0:
	case s.limit == "memoryBytes":
		j.Memory = int64(s.value)
	case s.limit == "partSize":
		j.PartSize = int64(s.value)
	case s.limit == "concurrency":
		j.Concurrency = int(s.value)
	default:
		j.Param[s.limit] = s.value
	}
	return j
}

// measure is what is looked at in each run.
type measure struct {
	suffix string // of the figures' names
	what   string
	unit   string
	of     func(tuned) float64
	// counted: the figures are what each setting gives, and the default's has a name of
	// its own. Otherwise they are ratios to what the default gives.
	counted bool
}

// tuned is what came of one run.
type tuned struct {
	job.Result
	store weather.Stats // what the store counted
}

// tuning is one piece of work, done with limits at their defaults and at other values in
// turns. A round is enough: whoever changes a limit wants to know whether something
// doubles, not whether it is 5 % less.
type tuning struct {
	standard setting // the default, with its limit and its name if something is counted
	settings []setting
	measures []measure
	// once: there and not back. What is measured is a count, or a wait that the settings fix.
	once bool
	work func(*lab) (func(setting) (tuned, error), error)
}

// metrics are the figures.
func (t tuning) metrics() []metric {
	var all []metric
	for _, m := range t.measures {
		if m.counted {
			all = append(all, metric{id: t.standard.id(m.suffix), what: m.what, unit: m.unit})
		}
		for _, s := range t.settings {
			one := metric{id: s.id(m.suffix), what: m.what, unit: m.unit}
			if !m.counted {
				one.unit, one.base, one.timed = "x", "the default", true
			}
			all = append(all, one)
		}
	}
	return all
}

func (t tuning) ids() []string {
	var ids []string
	for _, m := range t.metrics() {
		ids = append(ids, m.id)
	}
	return ids
}

// run gives the figures.
func (t tuning) run(l *lab) error {
	do, err := t.work(l)
	if err != nil {
		return err
	}
	var sides []func() (tuned, error)
	for _, s := range append([]setting{t.standard}, t.settings...) {
		sides = append(sides, func() (tuned, error) { return do(s) })
	}
	p := l.plan
	p.rounds, p.extra, p.short = 1, 0, p.short || t.once
	rounds, err := turns(p, l.watch.watch, sides...)
	if err != nil {
		return err
	}
	disturbed := 0
	if rounds[0].disturbed {
		disturbed = 1
	}
	for _, m := range t.measures {
		standard := mean(rounds[0].sides[0], m.of)
		if m.counted {
			if err := l.show(t.standard.id(m.suffix), []float64{standard}, disturbed, "the default"); err != nil {
				return err
			}
		}
		for i, s := range t.settings {
			value, note := mean(rounds[0].sides[i+1], m.of), ""
			if !m.counted {
				note = fmt.Sprintf("%.4g %s, %.4g by default", value, m.unit, standard)
				value /= standard
			}
			if err := l.show(s.id(m.suffix), []float64{value}, disturbed, note); err != nil {
				return err
			}
		}
	}
	return nil
}

// tune runs a job with a setting, and asks the store what it counted.
func (l *lab) tune(s setting, j job.Job, want wants) (tuned, error) {
	j.Subject = segtier
	res, store, err := l.counted(s.on(j), want)
	return tuned{res, store}, err
}

// inWeather is work that is the same job in the same weather for each setting.
func inWeather(s func(*lab) weather.Schedule, world func(*lab) weather.Spec, j func(*lab) job.Job) func(*lab) (func(setting) (tuned, error), error) {
	return func(l *lab) (func(setting) (tuned, error), error) {
		if err := l.weather(s(l)); err != nil {
			return nil, err
		}
		w, err := makeWorld(world(l))
		if err != nil {
			return nil, err
		}
		work := j(l)
		work.World = w.spec
		return func(s setting) (tuned, error) {
			var want wants
			switch work.Work {
			case "fill":
				want = wants{"": w.log}
			case "fanout":
				want = each(work.Streams, w.log)
			}
			return l.tune(s, work, want)
		}, nil
	}
}

func calm(*lab) weather.Schedule { return weather.Schedule{} }

// tunedUpload is an upload that is read back in calm weather.
func (l *lab) tunedUpload(s setting, seg subject.Segment, outside weather.Schedule) (tuned, error) {
	if err := l.weather(outside); err != nil {
		return tuned{}, err
	}
	sent := s.on(job.Job{PartSize: 16 * mib})
	res, err := l.put(l.at.HTTP, segtier, seg, sent, 1)
	if err != nil {
		return tuned{}, err
	}
	// What was written stays.
	if err := l.admin("POST", "schedule", "{}", nil); err != nil {
		return tuned{}, err
	}
	return tuned{Result: res}, l.written(res, seg, 1)
}
