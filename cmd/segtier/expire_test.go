package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier"
)

// A log start above all that is tiered deletes everything and keeps away what is
// copied later, for good: it is refused unless that is said to be meant.
func TestLogStartBeyondTheTier(t *testing.T) {
	b := newBench(t)
	b.done("copy", source(sensors))
	const p = "sensor-readings.v2_raw/0"
	for _, apply := range [][]string{nil, {"--apply", "--delete-delay", "0s"}} {
		args := append([]string{"expire", p, "--log-start"}, "201")
		b.want(statusUsage, append(args, apply...)...).oneError(t, "the tier ends at offset 199", "--beyond-tier")
		args[len(args)-1] = "999999"
		b.want(statusUsage, append(args, apply...)...).oneError(t, "--log-start 999999", "200 at most")
	}
	if b.objects() != 5 {
		t.Fatalf("%d objects are left", b.objects())
	}
	b.done("expire", p, "--log-start", "200")
	b.want(statusUsage, "expire", p, "--beyond-tier").oneError(t, "--log-start")

	b.done("expire", p, "--log-start", "100", "--apply", "--delete-delay", "0s")
	o := b.want(statusDone, "expire", p, "--log-start", "50", "--apply")
	if !strings.Contains(o.msg, "the log start is already 100: it does not move back") || strings.Contains(o.msg, "moved") {
		t.Errorf("%+v", o)
	}
	o = b.want(statusDone, "expire", p, "--log-start", "110", "--apply")
	if !strings.Contains(o.msg, "the log start stays at 100") {
		t.Errorf("%+v", o)
	}
	o = b.want(statusDone, "ls", p)
	if !strings.Contains(o.msg, "log start of "+p+" is 100") || strings.Contains(o.out, "log start") {
		t.Errorf("%+v", o)
	}

	o = b.want(statusDone, "expire", p, "--log-start", "999999", "--beyond-tier", "--apply", "--delete-delay", "0s")
	if !strings.Contains(o.msg, "the log start moved from 100 to 999999") {
		t.Errorf("%+v", o)
	}
	o = b.want(statusDone, "copy", source(sensors))
	if strings.Count(o.msg, "below the log start, 999999,") != 5 || !strings.Contains(o.msg, "5 below the log start") {
		t.Errorf("%+v", o)
	}
	b.want(statusNotInTier, "fetch", p, "earliest").oneError(t, "log start is 999999")
	if o = b.want(statusDone, "ls", p); !strings.Contains(o.msg, "is 999999") {
		t.Errorf("%+v", o)
	}
	b.want(statusUsage, "expire", p, "--log-start", "1000000").oneError(t, "no readable segment", "--beyond-tier")
}

// A deletion that failed before anything was begun does not say that something was.
func TestNothingWasBegun(t *testing.T) {
	b := newBench(t)
	b.done("copy", source(sensors))
	for _, args := range []string{"rm sensor-readings.v2_raw", "expire --retention-ms 1"} {
		o := b.want(statusFailed, append(strings.Fields(args), "--apply", "--leader-epoch", "1")...)
		if !strings.Contains(o.msg, "1 partition failed; nothing was begun") || strings.Contains(o.msg, "DELETE_SEGMENT_STARTED") || strings.Contains(o.msg, "log start moved") {
			t.Errorf("%s: %s", args, o.msg)
		}
	}
}

// What ends below the log start that was asked for is called that, whatever its
// leader epochs.
func TestExpireNamesTheLogStart(t *testing.T) {
	b := newBench(t)
	b.done("copy", source(sensors))
	o := b.want(statusDone, "expire", "sensor-readings.v2_raw/0", "--log-start", "120")
	if strings.Count(o.out, "LOG_START_OFFSET") != 3 || strings.Contains(o.out, "DEAD_EPOCHS") {
		t.Errorf("%+v", o)
	}
}

// A store that is not the metadata's, or is empty, is named as such before all else,
// and nothing is said to have happened.
func TestTheWrongStore(t *testing.T) {
	b, other := newBench(t), newBench(t)
	b.done("copy", source(sensors))
	other.done("copy", source(payments))
	empty := newBench(t)
	if err := os.Mkdir(empty.store, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ store, says string }{
		"empty":     {empty.store, "this is another store, or it was emptied"},
		"another's": {other.store, "owned by metadata store"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range []string{
				"fetch sensor-readings.v2_raw/0 0", "explain sensor-readings.v2_raw/0 0", "offset sensor-readings.v2_raw/0 1709337600000",
				"expire --retention-ms 1 --apply", "rm sensor-readings.v2_raw --apply",
			} {
				o := b.want(statusFailed, append(strings.Fields(args), "--store", fileURL(c.store))...)
				o.oneError(t, c.says)
				for _, not := range []string{"the log start mov", "DELETE_SEGMENT_STARTED", "bring", "deleting"} {
					if strings.Contains(o.msg, not) {
						t.Errorf("%s: it says %q:\n%s", args, not, o.msg)
					}
				}
				if first, _, _ := strings.Cut(o.msg, "\n"); !strings.Contains(first, c.says) {
					t.Errorf("%s: not said first:\n%s", args, o.msg)
				}
			}
		})
	}
	o := b.want(statusDamage, "verify", "--store", fileURL(empty.store))
	if !strings.HasPrefix(o.out, "OWNER_MISSING ") || strings.Count(o.out, "OWNER_MISSING") != 1 || strings.Count(o.out, "OBJECT_MISSING") != 5 {
		t.Errorf("stdout: %s", o.out)
	}
	if strings.Contains(o.out, "object: object:") {
		t.Errorf("it stutters: %s", o.out)
	}
	_, next, _ := strings.Cut(o.msg, "next: ")
	if !strings.HasPrefix(next, "name the store that was copied to") {
		t.Errorf("stderr: %s", o.msg)
	}
	b.want(statusFailed, "verify", "--store", fileURL(other.store)).oneError(t, "owned by metadata store")
	// Objects that should have been there for long are corruption, not unavailable.
	var msg bytes.Buffer
	a := &app{stdout: io.Discard, stderr: &msg, getenv: b.getenv, tune: func(o *segtier.Options) { o.VisibilityGrace = time.Nanosecond }}
	if status := a.run(t.Context(), []string{"fetch", "sensor-readings.v2_raw/0", "0", "--store", fileURL(empty.store)}); status != statusFailed ||
		!strings.HasPrefix(msg.String(), "segtier: the store has no segtier.json") || !strings.Contains(msg.String(), "next: name the store") {
		t.Errorf("status %d, %s", status, msg.String())
	}
	// Of several partitions, it is told once.
	several := newBench(t)
	several.done("copy", source(sensors), source(payments))
	several.want(statusFailed, "expire", "--retention-ms", "1", "--apply", "--store", fileURL(empty.store)).oneError(t, "this is another store")
	if n := len(decode[segmentLine](t, b.done("ls", "--json"))); n != b.objects() || n != 5 {
		t.Errorf("%d segments, %d objects", n, b.objects())
	}
}

// A partition that is deleted for good is said to be, before and afterwards.
func TestDeletedForGood(t *testing.T) {
	b := newBench(t)
	b.done("copy", source(sensors))
	id := decode[segmentLine](t, b.done("ls", "--json"))[0].TopicID.String()
	for _, apply := range [][]string{nil, {"--apply", "--delete-delay", "0s"}} {
		o := b.want(statusDone, append([]string{"rm", "sensor-readings.v2_raw"}, apply...)...)
		if !strings.Contains(o.msg, "for good: nothing can be copied") || !strings.Contains(o.msg, "another id") {
			t.Errorf("%v: %s", apply, o.msg)
		}
	}
	b.want(statusFailed, "copy", source(sensors)).oneError(t, "was deleted for good", id, "another id")
}

// A size for retention has units, as all sizes.
func TestRetentionBytesHasUnits(t *testing.T) {
	b := newBench(t)
	b.done("copy", source(sensors))
	o := b.want(statusDone, "expire", "--retention-bytes", "30KiB")
	if strings.Count(o.out, "RETENTION_BYTES") != 2 {
		t.Errorf("%+v", o)
	}
	if o := b.want(statusDone, "expire", "--retention-bytes", "-1"); o.out != "" {
		t.Errorf("%+v", o)
	}
	for _, s := range []string{"0", "-2", "much", "-1KiB"} {
		b.want(statusUsage, "expire", "--retention-bytes", s).oneError(t, fmt.Sprint(s))
	}
}
