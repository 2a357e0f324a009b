package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/segtier/segtier/internal/gateway"
)

// going is what rm and expire print with --json.
type going = goingLine

// objects returns how many segments' objects the store of a bench has.
func (b *bench) objects() (n int) {
	b.t.Helper()
	err := filepath.Walk(b.store, func(path string, _ os.FileInfo, err error) error {
		if err == nil && strings.HasSuffix(path, ".seg") {
			n++
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// Without --apply, rm and expire report what they would delete, as they then
// delete it, and change nothing.
func TestDeletionsReportFirst(t *testing.T) {
	for name, c := range map[string]struct {
		args func(segs []segmentLine) []string
		want func(segs []segmentLine) []segmentLine
	}{
		"a partition": {
			func([]segmentLine) []string { return []string{"rm", "sensor-readings.v2_raw/0"} },
			func(segs []segmentLine) []segmentLine { return segs },
		},
		"a topic": {
			func([]segmentLine) []string { return []string{"rm", "sensor-readings.v2_raw"} },
			func(segs []segmentLine) []segmentLine { return segs },
		},
		"a topic id": {
			func(segs []segmentLine) []string { return []string{"rm", segs[0].TopicID.String()} },
			func(segs []segmentLine) []segmentLine { return segs },
		},
		"two segments, one of them twice": {
			func(segs []segmentLine) []string {
				return []string{"rm", segs[3].SegmentID.String(), segs[1].SegmentID.String(), segs[3].SegmentID.String()}
			},
			func(segs []segmentLine) []segmentLine { return []segmentLine{segs[1], segs[3]} },
		},
		"by size": {
			func(segs []segmentLine) []string {
				return []string{"expire", "--retention-bytes", fmt.Sprint(segs[3].SizeBytes + segs[4].SizeBytes)}
			},
			func(segs []segmentLine) []segmentLine { return segs[:3] },
		},
		"by time": {
			func([]segmentLine) []string {
				return []string{"expire", "--retention-ms", "1", "sensor-readings.v2_raw/0"}
			},
			func(segs []segmentLine) []segmentLine { return segs },
		},
		"by log start": {
			func(segs []segmentLine) []string {
				return []string{"expire", "--log-start", fmt.Sprint(segs[2].StartOffset), "sensor-readings.v2_raw/0"}
			},
			func(segs []segmentLine) []segmentLine { return segs[:2] },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.done("copy", source(sensors))
			segs := decode[segmentLine](t, b.done("ls", "--json"))
			before, err := treeOf(b.dir)
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"--json"}, c.args(segs)...)
			o := b.want(statusDone, args...)
			if !strings.Contains(o.msg, "nothing was changed") {
				t.Errorf("stderr: %s", o.msg)
			}
			reported := decode[going](t, o.out)
			if after, err := treeOf(b.dir); err != nil || after != before {
				t.Errorf("the report changed something (%v)", err)
			}
			applied := decode[going](t, b.done(append(args, "--apply", "--delete-delay", "0s")...))
			want := c.want(segs)
			slices.SortFunc(applied, func(x, y going) int { return int(x.StartOffset - y.StartOffset) })
			if len(reported) != len(want) || len(applied) != len(want) {
				t.Fatalf("reported %d, deleted %d, want %d", len(reported), len(applied), len(want))
			}
			for i, w := range want {
				r, a := reported[i], applied[i]
				if r.SegmentID != w.SegmentID || a.SegmentID != w.SegmentID || r.Applied || !a.Applied || r.State != "COPY_SEGMENT_FINISHED" ||
					a.State != "DELETE_SEGMENT_FINISHED" || r.Cause != a.Cause || (r.Cause != "") != (args[1] == "expire") {
					t.Errorf("reported %+v, deleted %+v, want %+v", r, a, w)
				}
			}
			if n := len(decode[segmentLine](t, b.done("ls", "--all", "--json"))); n != len(segs)-len(want) || b.objects() != n {
				t.Errorf("%d segments and %d objects are left of %d", n, b.objects(), len(segs))
			}
			if name == "two segments, one of them twice" {
				b.want(statusDamage, "verify") // of offsets that no segment has
			} else {
				b.done("verify")
			}
		})
	}
}

// What expired is out of range, is not copied again, and does not expire again.
func TestExpiredStaysAway(t *testing.T) {
	b := newBench(t)
	b.done("copy", source(sensors))
	segs := decode[segmentLine](t, b.done("ls", "--json"))
	keep := fmt.Sprint(segs[4].SizeBytes)
	o := b.want(statusDone, "expire", "--retention-bytes", keep, "--apply", "--delete-delay", "0s")
	if !strings.Contains(o.msg, fmt.Sprintf("the log start moved from 0 to %d", segs[4].StartOffset)) || strings.Count(o.out, "RETENTION_BYTES") != 4 {
		t.Errorf("%+v", o)
	}
	b.want(statusNotInTier, "fetch", "sensor-readings.v2_raw/0", fmt.Sprint(segs[4].StartOffset-1)).oneError(t, fmt.Sprint(segs[4].StartOffset))
	for range 2 {
		o = b.want(statusDone, "copy", source(sensors))
		if strings.Count(o.msg, "below the log start, ") != 4 || strings.Count(o.out, "exists") != 1 || b.objects() != 1 {
			t.Errorf("%+v", o)
		}
		if o := b.want(statusDone, "expire", "--retention-bytes", keep, "--apply"); o.out != "" {
			t.Errorf("%+v", o)
		}
	}
}

// A partition goes for good; a single segment comes back by copying, which is how
// a damaged object is replaced.
func TestDeletedAndCopiedAgain(t *testing.T) {
	b := newBench(t)
	b.done("copy", source(sensors))
	segs := decode[segmentLine](t, b.done("ls", "--json"))
	b.done("rm", segs[2].SegmentID.String(), "--apply", "--delete-delay", "0s")
	if o := b.want(statusDone, "copy", source(sensors)); strings.Count(o.out, "copied") != 1 || strings.Count(o.out, "exists") != 4 {
		t.Errorf("%+v", o)
	}
	b.done("verify")
	b.want(statusNotInTier, "rm", segs[2].SegmentID.String()).oneError(t, "deleted before")
	b.done("rm", "sensor-readings.v2_raw/0", "--apply", "--delete-delay", "0s")
	b.done("rm", "sensor-readings.v2_raw/0", "--apply", "--delete-delay", "0s")
	b.want(statusFailed, "copy", source(sensors)).oneError(t, "DELETE_PARTITION_FINISHED")
	if b.objects() != 0 {
		t.Errorf("%d objects are left", b.objects())
	}
}

func TestDeletionUsage(t *testing.T) {
	b := newBench(t)
	b.want(statusFailed, "rm", "orders/0").oneError(t, "there is no metadata")
	b.want(statusFailed, "expire", "--apply").oneError(t, "there is no metadata")
	if _, err := os.Stat(b.meta); err == nil {
		t.Error("metadata was created")
	}
	b.done("copy", source(sensors))
	for _, c := range []struct {
		status int
		args   string
		says   string
	}{
		{statusUsage, "rm", "requires at least 1 arg"},
		{statusUsage, "rm sensor-readings.v2_raw/x", "not a partition number"},
		{statusNotInTier, "rm sensor-readings.v2_raw/9", "holds partition 0"},
		{statusNotInTier, "rm nothing", "no topic"},
		{statusNotInTier, "rm AAAAAAAAAAAAAAAAAAAAAQ", "neither a topic nor a segment"},
		{statusUsage, "rm sensor-readings.v2_raw --delete-delay -1s", "cannot be negative"},
		{statusUsage, "rm sensor-readings.v2_raw --leader-epoch -2", "not negative"},
		{statusUsage, "expire --retention-ms 0", "write 1 or more"},
		{statusUsage, "expire --retention-bytes -7", "write 1 or more"},
		{statusUsage, "expire --log-start 5", "name it"},
		{statusNotInTier, "expire nothing/0", "not in the tier"},
		{statusFailed, "rm sensor-readings.v2_raw --apply --leader-epoch 1", "--leader-epoch"},
		{statusFailed, "expire --retention-ms 1 --apply --leader-epoch 1", "--leader-epoch"},
	} {
		b.want(c.status, strings.Fields(c.args)...).oneError(t, c.says)
	}
	if n := len(decode[segmentLine](t, b.done("ls", "--json"))); n != b.objects() || n == 0 {
		t.Errorf("%d segments, %d objects", n, b.objects())
	}
}

// A store that is not the metadata's is refused before anything happens.
func TestDeletionInAnotherStore(t *testing.T) {
	a, b := newBench(t), newBench(t)
	a.done("copy", source(sensors))
	b.done("copy", source(payments))
	for _, args := range []string{"rm sensor-readings.v2_raw", "expire --retention-ms 1"} {
		o := a.want(statusFailed, append(strings.Fields(args), "--apply", "--store", fileURL(b.store), "--delete-delay", "0s")...)
		if !strings.Contains(o.msg, "owned by metadata store") {
			t.Errorf("%s: %s", args, o.msg)
		}
	}
	if n := len(decode[segmentLine](t, a.done("ls", "--json"))); n != a.objects() || n == 0 {
		t.Errorf("%d segments, %d objects", n, a.objects())
	}
}

// The same on a real S3 server. An object that cannot be deleted is told, holds back
// no other, and the same command goes on later.
func TestDeletionOnS3(t *testing.T) {
	s := gateway.Start(t, gateway.Options{})
	proxy := gateway.Front(t, s)
	b := s3Bench(t, s, proxy.URL(), "delete")
	b.done("copy", source(sensors), source(payments))
	segs := decode[segmentLine](t, b.done("ls", "--json", "sensor-readings.v2_raw/0"))
	b.done("expire", "sensor-readings.v2_raw/0", "--log-start", fmt.Sprint(segs[1].StartOffset), "--apply", "--delete-delay", "0s")
	b.done("verify")
	b.done("rm", segs[4].SegmentID.String(), "--apply", "--delete-delay", "0s")
	bad := segs[2].SegmentID.String()
	deletes, heads, refuse := 0, 0, true
	proxy.Hook(func(r gateway.Request) gateway.Action {
		switch {
		case r.Op == "DeleteObject" && strings.Contains(r.Key, bad) && refuse:
			return gateway.Action{Answer: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
			}}
		case strings.HasPrefix(r.Op, "Delete"):
			deletes++
		case r.Op == "HeadObject":
			heads++
		}
		return gateway.Action{}
	})
	args := []string{"rm", "sensor-readings.v2_raw", "payments.tx_commit-abort/0", "--apply", "--delete-delay", "0s"}
	if o := b.want(statusFailed, args...); !strings.Contains(o.msg, bad) || !strings.Contains(o.msg, "1 partition failed") {
		t.Errorf("%+v", o)
	}
	left := decode[segmentLine](t, b.done("ls", "--all", "--json"))
	if len(left) != 1 || left[0].SegmentID.String() != bad || left[0].State != "DELETE_SEGMENT_STARTED" {
		t.Errorf("left are %+v", left)
	}
	refuse = false
	b.done(args...)
	proxy.Hook(nil)
	if left := b.done("ls", "--all"); left != "" {
		t.Errorf("left are %s", left)
	}
	if n := 3 + len(oracleOf(t, source(payments)).bases); deletes != n || heads != n {
		t.Errorf("%d deletes and %d heads for %d segments", deletes, heads, n)
	}
}
