package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	if os.Getenv(helperVar) != "" {
		helperProcess() // does not return
	}
	goleak.VerifyTestMain(m)
}

// partitionsDir holds the partition directories of a real broker.
const partitionsDir = "../../testdata/partitions"

func source(name string) string { return filepath.Join(partitionsDir, name) }

// Partitions that tests look at closely; the others are only walked.
const (
	payments = "payments.tx_commit-abort-0"
	sensors  = "sensor-readings.v2_raw-0"
	wide     = "events.wide-segment_1-0"
)

// bench is a place with a store and metadata of its own.
type bench struct {
	t           *testing.T
	dir         string
	store, meta string // paths
	storeURL    string // "" is that of the path
}

func newBench(t *testing.T) *bench {
	dir := t.TempDir()
	return &bench{t: t, dir: dir, store: filepath.Join(dir, "store"), meta: filepath.Join(dir, "metadata.db")}
}

func (b *bench) getenv(name string) string {
	switch name {
	case "SEGTIER_STORE":
		if b.storeURL != "" {
			return b.storeURL
		}
		return fileURL(b.store)
	case "SEGTIER_META":
		return fileURL(b.meta)
	}
	return ""
}

// outcome is what a command left.
type outcome struct {
	status int
	out    string
	msg    string // stderr
}

// try runs a command in this process.
func (b *bench) try(args ...string) outcome {
	return b.tryContext(b.t.Context(), args...)
}

func (b *bench) tryContext(ctx context.Context, args ...string) outcome {
	b.t.Helper()
	var out, msg bytes.Buffer
	status := run(ctx, args, &out, &msg, b.getenv)
	return outcome{status, out.String(), msg.String()}
}

// want runs a command that must end with status.
func (b *bench) want(status int, args ...string) outcome {
	b.t.Helper()
	o := b.try(args...)
	if o.status != status {
		b.t.Fatalf("segtier %s: status %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), o.status, status, clip(o.out), o.msg)
	}
	return o
}

// done runs a command that must succeed, and returns its stdout.
func (b *bench) done(args ...string) string {
	b.t.Helper()
	return b.want(statusDone, args...).out
}

func clip(s string) string {
	if len(s) > 2000 {
		return s[:2000] + "…"
	}
	return s
}

// allSources returns the partition directories that have something to copy.
func allSources(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(partitionsDir)
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, e := range entries {
		dir := source(e.Name())
		bases, err := segment.Dir{Path: dir}.Segments()
		if err != nil {
			t.Fatal(err)
		}
		if len(bases) > 1 {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) < 10 {
		t.Fatalf("only %d partition directories", len(dirs))
	}
	return dirs
}

// copied returns a bench with these partitions copied.
func copied(t *testing.T, dirs ...string) *bench {
	t.Helper()
	b := newBench(t)
	b.done(append([]string{"copy"}, dirs...)...)
	return b
}

func oracleOf(t *testing.T, dir string) *oracle {
	t.Helper()
	o, err := readOracle(dir)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// decode decodes JSON lines and refuses fields that T does not have.
func decode[T any](t *testing.T, lines string) []T {
	t.Helper()
	var all []T
	dec := json.NewDecoder(strings.NewReader(lines))
	dec.DisallowUnknownFields()
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, clip(lines))
		}
		all = append(all, v)
	}
	if want := strings.Count(lines, "\n"); len(all) != want {
		t.Fatalf("%d values on %d lines", len(all), want)
	}
	return all
}

// golden compares text with a golden file, segment ids and lines' trailing
// spaces aside.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = anonymous(got)
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew):\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// anonymous replaces ids that are random, segments' (and topics' with them), and
// the sums of objects, which hold them.
func anonymous(s string) string {
	s = regexp.MustCompile(`(^|[^A-Za-z0-9_])[A-Za-z0-9_][A-Za-z0-9_-]{21}([^A-Za-z0-9_-]|$)`).ReplaceAllStringFunc(s, func(m string) string {
		at := strings.IndexFunc(m, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' })
		if _, err := segment.ParseUUID(m[at : at+22]); err != nil {
			return m
		}
		return m[:at] + "<id>" + m[at+22:]
	})
	s = regexp.MustCompile(`(?i)(crc32c"?[: ]"?)[0-9a-f]{8}\b`).ReplaceAllString(s, "$1<sum>")
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// oneError checks that stderr tells one error, and that it says all of these.
func (o outcome) oneError(t *testing.T, says ...string) {
	t.Helper()
	if n := strings.Count(o.msg, "segtier: "); n != 1 {
		t.Errorf("%d errors on stderr, want one:\n%s", n, o.msg)
	}
	for _, s := range says {
		if !strings.Contains(o.msg, s) {
			t.Errorf("the error does not say %q:\n%s", s, o.msg)
		}
	}
	if strings.Contains(o.msg, "panic") || strings.Contains(o.msg, "goroutine") {
		t.Errorf("not an error for people:\n%s", o.msg)
	}
}

// copyTree copies a directory so that it can be damaged.
func copyTree(t *testing.T, from, to string) string {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// sample returns about n of the values, ends included, evenly spread.
func sample[T comparable](values []T, n int) []T {
	if len(values) <= n {
		return values
	}
	var out []T
	for i := range n {
		out = append(out, values[i*(len(values)-1)/(n-1)])
	}
	return slices.Compact(out)
}

// parseLine decodes one JSON object, whatever other fields it has.
func parseLine[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, clip(text))
	}
	return v
}

// objectOf returns the key of a partition's i-th object, counted from the end if
// i is negative.
func objectOf(t *testing.T, b *bench, partition string, i int) string {
	t.Helper()
	segs := decode[segmentLine](t, b.done("ls", "--json", partition))
	if i < 0 {
		i += len(segs)
	}
	s := segs[i]
	p := segment.Partition{Topic: s.Topic, TopicID: s.TopicID, Number: s.Partition}
	return object.Key(p, s.StartOffset, s.SegmentID)
}
