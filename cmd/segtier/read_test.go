package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/segtier/segtier/segment"
)

// equalsLog fetches the whole partition and compares it with the log files.
func equalsLog(t *testing.T, b *bench, o *oracle) {
	t.Helper()
	got := b.done("fetch", o.name, earliest, "--format", "raw", "--max-bytes", "64MiB")
	if got != string(o.log) {
		t.Errorf("%s: %d bytes, they differ from the %d bytes of the log files", o.name, len(got), len(o.log))
	}
}

// at returns where the first batch that reaches offset begins in the log, -1 if
// there is none.
func (o *oracle) at(offset int64) (pos int) {
	for _, b := range o.batches {
		if b.header.LastOffset >= offset {
			return pos
		}
		pos += len(b.raw)
	}
	return -1
}

// upTo returns the batches from pos on that fit in max bytes, one at least.
func (o *oracle) upTo(pos, max int) []byte {
	end, from := pos, 0
	for _, b := range o.batches {
		if from >= pos {
			if from+len(b.raw)-pos > max && end > pos {
				break
			}
			end = from + len(b.raw)
		}
		from += len(b.raw)
	}
	return o.log[pos:end]
}

// For every partition, sampled offsets, and several sizes: the bytes are those
// of the log from the right batch on, as many as fit.
func TestFetchRawEqualsTheLog(t *testing.T) {
	sources := allSources(t)
	b := copied(t, sources...)
	for _, dir := range sources {
		o := oracleOf(t, dir)
		equalsLog(t, b, o)
		var offsets []int64
		for offset := o.bases[0]; offset <= o.end; offset++ {
			offsets = append(offsets, offset)
		}
		for i, offset := range sample(offsets, 12) {
			pos := o.at(offset)
			if pos < 0 {
				continue // a gap at the end: see TestFetchBeyondTheEnds
			}
			size := []int{1, 1000, 1 << 20, 64 << 20}[i%4]
			got := b.done("fetch", o.name, fmt.Sprint(offset), "--format", "raw", "--max-bytes", fmt.Sprint(size))
			if want := o.upTo(pos, size); got != string(want) {
				t.Errorf("%s from %d, %d bytes: %d bytes came, want %d equal ones", o.name, offset, size, len(got), len(want))
			}
		}
	}
}

// Walking by the next offset that stderr tells ends with the whole log.
func TestFetchWalk(t *testing.T) {
	b := copied(t, source(sensors))
	o := oracleOf(t, source(sensors))
	var log []byte
	for offset := "earliest"; ; {
		res := b.try("fetch", o.name, offset, "--format", "raw", "--max-bytes", "3000")
		if res.status == statusNotInTier {
			break
		}
		if res.status != statusDone {
			t.Fatalf("%+v", res)
		}
		log = append(log, res.out...)
		_, next, ok := strings.Cut(strings.TrimSpace(res.msg), "next offset ")
		if !ok {
			t.Fatalf("no next offset: %s", res.msg)
		}
		offset, _, _ = strings.Cut(next, ",")
	}
	if !bytes.Equal(log, o.log) {
		t.Errorf("walked %d bytes, they differ from the log's %d", len(log), len(o.log))
	}
}

// Outside the tier is status 4, with the offset to go on at.
func TestFetchBeyondTheEnds(t *testing.T) {
	b := copied(t, source("archive.expired-segments_1-0"), source(sensors))
	archive := oracleOf(t, source("archive.expired-segments_1-0"))
	for _, tt := range []struct{ args, says string }{
		{"fetch archive.expired-segments_1/0 0", fmt.Sprintf("begins at offset %d; 'earliest'", archive.bases[0])},
		{"fetch archive.expired-segments_1/0 35", fmt.Sprint(archive.bases[0])},
		{fmt.Sprintf("fetch archive.expired-segments_1/0 %d", archive.end+1), fmt.Sprint(archive.end + 1)},
		{"fetch archive.expired-segments_1/0 9000000000000000000", fmt.Sprintf("last offset in the tier is %d", archive.end)},
		{"explain archive.expired-segments_1/0 0", fmt.Sprint(archive.bases[0])},
		{"explain archive.expired-segments_1/0 9000", fmt.Sprintf("last offset in the tier is %d", archive.end)},
		{"fetch archive.expired-segments_1/3 0", "holds partition 0"},
		{"fetch unknown/0 0", "segtier ls"},
		{"explain unknown/0 0", "segtier ls"},
		{"offset unknown/0 0", "segtier ls"},
		{"ls unknown/0", "segtier ls"},
		{"verify unknown/0", "segtier ls"},
	} {
		o := b.want(statusNotInTier, strings.Fields(tt.args)...)
		o.oneError(t, tt.says)
		if o.out != "" {
			t.Errorf("%s: %s", tt.args, o.out)
		}
	}
	b.done("fetch", "archive.expired-segments_1/0", fmt.Sprint(archive.bases[0]))
}

// Sampled times, each ±1: the offset is the one that a scan finds.
func TestOffsetEqualsBruteForce(t *testing.T) {
	sources := allSources(t)
	b := copied(t, sources...)
	for _, dir := range sources {
		o := oracleOf(t, dir)
		var times []int64
		for _, batch := range o.batches {
			times = append(times, batch.times...)
		}
		for i, at := range sample(times, 12) {
			at += int64(i%3) - 1
			if at < 0 {
				at = 0
			}
			want := o.firstAtOrAfter(at)
			if got := b.done("offset", o.name, fmt.Sprint(at)); got != fmt.Sprintln(want) {
				t.Errorf("%s at %d: %s, want %d", o.name, at, strings.TrimSpace(got), want)
			}
		}
		res := b.want(statusDone, "offset", o.name, "9999999999999")
		if res.out != "-1\n" || !strings.Contains(res.msg, "no record") {
			t.Errorf("%s in the far future: %+v", o.name, res)
		}
	}
}

func TestOffsetJSON(t *testing.T) {
	b := copied(t, source(sensors))
	o := oracleOf(t, source(sensors))
	at := o.middleTime()
	want := offsetLine{Offset: o.firstAtOrAfter(at), LeaderEpoch: -2}
	for _, batch := range o.batches {
		for i, offset := range batch.offsets {
			if offset == want.Offset {
				want.Timestamp, want.LeaderEpoch = batch.times[i], batch.header.LeaderEpoch
			}
		}
	}
	got := decode[offsetLine](t, b.done("offset", "--json", o.name, timeText(at)))
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if out := b.done("offset", "--json", o.name, "9999999999999"); out != `{"offset":-1,"timestamp":-1,"leaderEpoch":-1}`+"\n" {
		t.Error(out)
	}
}

// The JSON of records loses nothing.
func TestFetchJSON(t *testing.T) {
	dirs := []string{source("orders.eu-west_1-0"), source(payments), source("users.compact_state-1-0")}
	b := copied(t, dirs...)
	for _, dir := range dirs {
		o := oracleOf(t, dir)
		lines := decode[recordLine](t, b.done("fetch", "--json", o.name, earliest, "--max-bytes", "64MiB"))
		var decoder segment.Decoder
		for _, batch := range o.batches {
			err := decoder.Records(batch.raw, func(r segment.Record) bool {
				if len(lines) == 0 {
					t.Fatalf("%s: no line for offset %d", o.name, r.Offset)
				}
				equalLine(t, lines[0], batch.header, r)
				lines = lines[1:]
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(lines) > 0 {
			t.Errorf("%s: %d lines too many", o.name, len(lines))
		}
	}
}

func equalLine(t *testing.T, l recordLine, h segment.Header, r segment.Record) {
	t.Helper()
	same := l.Offset == r.Offset && l.Timestamp == r.Timestamp && l.LeaderEpoch == h.LeaderEpoch &&
		l.IsTransactional == h.Transactional() && (l.ControlType != "") == h.Control() && (l.ProducerID != nil) == (h.ProducerID >= 0) &&
		sameBytes(l.Key, l.KeyBase64, r.Key) && sameBytes(l.Value, l.ValueBase64, r.Value) && len(l.Headers) == len(r.Headers)
	for i := range min(len(l.Headers), len(r.Headers)) {
		same = same && l.Headers[i].Key == r.Headers[i].Key && sameBytes(l.Headers[i].Value, l.Headers[i].ValueBase64, r.Headers[i].Value)
	}
	if !same {
		t.Errorf("line %+v is not the record %+v", l, r)
	}
}

func sameBytes(text any, binary, want []byte) bool {
	switch s, ok := text.(string); {
	case ok:
		return want != nil && s == string(want)
	case binary != nil:
		return bytes.Equal(binary, want)
	}
	return want == nil
}

// Records below the offset that was asked for are in the raw batch, and not
// among the records shown.
func TestFetchShowsFromTheOffsetOn(t *testing.T) {
	b := copied(t, source(sensors))
	o := oracleOf(t, source(sensors))
	batch := o.batches[1]
	last := batch.offsets[len(batch.offsets)-1]
	lines := decode[recordLine](t, b.done("fetch", "--json", o.name, fmt.Sprint(last), "--max-bytes", "1"))
	if len(lines) != 1 || lines[0].Offset != last || len(batch.offsets) == 1 {
		t.Errorf("%+v of a batch of %d", lines, len(batch.offsets))
	}
	if raw := b.done("fetch", o.name, fmt.Sprint(last), "--max-bytes", "1", "--format", "raw"); raw != string(batch.raw) {
		t.Error("raw is not the whole batch")
	}
}

// read_committed gives what the broker gave to such a consumer.
func TestFetchReadCommitted(t *testing.T) {
	b := copied(t, source(payments))
	o := oracleOf(t, source(payments))
	committed := committedOffsets(t, payments, o.end)
	var got []int64
	for _, l := range decode[recordLine](t, b.done("fetch", "--json", o.name, earliest, "--isolation", readCommitted, "--max-bytes", "64MiB")) {
		got = append(got, l.Offset)
	}
	if fmt.Sprint(got) != fmt.Sprint(committed) {
		t.Errorf("offsets %v\nwant %v", got, committed)
	}
}

// committedOffsets reads from expected.jsonl what a consumer got from the broker.
func committedOffsets(t *testing.T, partition string, end int64) (offsets []int64) {
	t.Helper()
	type line struct {
		Kind, Partition string
		Offset          int64
		Committed       *bool // missing: true
	}
	b, err := os.ReadFile("../../testdata/expected.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(b)) {
		l := parseLine[line](t, text)
		if l.Kind == "record" && l.Partition == partition && l.Committed == nil && l.Offset <= end {
			offsets = append(offsets, l.Offset)
		}
	}
	if len(offsets) == 0 {
		t.Fatalf("expected.jsonl has no record of %s", partition)
	}
	return offsets
}

// --out appears whole or not at all.
func TestFetchOut(t *testing.T) {
	b := copied(t, source(sensors))
	o := oracleOf(t, source(sensors))
	file := filepath.Join(b.dir, "out.log")
	if out := b.done("fetch", o.name, earliest, "--format", "raw", "--max-bytes", "64MiB", "--out", file); out != "" {
		t.Errorf("stdout: %s", out)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, o.log) {
		t.Errorf("%d bytes, %v", len(got), err)
	}

	// Damage in the last segment: the file keeps what it had.
	if err := os.WriteFile(file, []byte("before"), 0o666); err != nil {
		t.Fatal(err)
	}
	object := objectOf(t, b, o.name, -1)
	if err := flipBit(filepath.Join(b.store, object), 10); err != nil {
		t.Fatal(err)
	}
	b.want(statusFailed, "fetch", o.name, earliest, "--format", "raw", "--max-bytes", "64MiB", "--out", file).oneError(t, object)
	if got, err := os.ReadFile(file); err != nil || string(got) != "before" {
		t.Errorf("the file has %d bytes, %v", len(got), err)
	}
	left, err := filepath.Glob(filepath.Join(b.dir, "out.log*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	b.want(statusFailed, "fetch", o.name, earliest, "--out", filepath.Join(b.dir, "no", "such")).oneError(t, "--out")
	b.want(statusFailed, "fetch", o.name, earliest, "--out", b.dir).oneError(t, "--out")
}

// Tables and JSON that do not change from run to run.
func TestGolden(t *testing.T) {
	b := copied(t, source("orders.eu-west_1-0"), source(payments), source(sensors))
	for name, args := range map[string]string{
		"ls.txt":              "ls",
		"ls.jsonl":            "ls --json sensor-readings.v2_raw/0",
		"fetch.txt":           "fetch orders.eu-west_1/0 40 --max-bytes 4KiB",
		"fetch.jsonl":         "fetch orders.eu-west_1/0 40 --max-bytes 4KiB --json",
		"fetch-txn.txt":       "fetch payments.tx_commit-abort/0 50 --max-bytes 8KiB",
		"fetch-committed.txt": "fetch payments.tx_commit-abort/0 50 --max-bytes 8KiB --isolation read_committed",
		"explain.txt":         "explain orders.eu-west_1/0 100",
		"explain.jsonl":       "explain orders.eu-west_1/0 100 --json",
	} {
		golden(t, name, b.done(strings.Fields(args)...))
	}
	golden(t, "help.txt", b.done("--help"))
}

func TestLs(t *testing.T) {
	sources := allSources(t)
	b := copied(t, sources...)
	segs := decode[segmentLine](t, b.done("ls", "--json"))
	n := 0
	for _, dir := range sources {
		o := oracleOf(t, dir)
		for i, base := range o.bases {
			s := segs[n]
			n++
			end := o.end
			if i+1 < len(o.bases) {
				end = o.bases[i+1] - 1
			}
			if nameOf(segment.Partition{Topic: s.Topic, Number: s.Partition}) != o.name || s.StartOffset != base || s.EndOffset != end ||
				s.State != "COPY_SEGMENT_FINISHED" || s.SizeBytes <= 0 || len(s.LeaderEpochs) == 0 || s.LeaderEpochs[0].Offset != base {
				t.Errorf("%s at %d: %+v", o.name, base, s)
			}
		}
	}
	if n != len(segs) {
		t.Errorf("%d segments, want %d", len(segs), n)
	}
}

// What cannot be written is a failure, told once.
func TestBrokenOutput(t *testing.T) {
	b := copied(t, source(sensors), source(payments))
	for _, args := range []string{
		"copy " + source(sensors) + " " + source(payments), "copy --json " + source(sensors), "ls", "ls --json",
		"fetch sensor-readings.v2_raw/0 0", "fetch sensor-readings.v2_raw/0 0 --format raw", "fetch sensor-readings.v2_raw/0 0 --json",
		"offset sensor-readings.v2_raw/0 0", "offset sensor-readings.v2_raw/0 0 --json", "explain sensor-readings.v2_raw/0 0",
		"explain sensor-readings.v2_raw/0 0 --json", "version", "version --json", "completion bash", "demo",
	} {
		var msg bytes.Buffer
		status := run(t.Context(), strings.Fields(args), brokenWriter{}, &msg, b.getenv)
		if status != statusFailed {
			t.Errorf("%s: status %d", args, status)
		}
		outcome{status, "", msg.String()}.oneError(t, "pipe is broken")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("pipe is broken") }
