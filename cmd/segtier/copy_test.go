package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/segment"
)

// The second copy finds everything, writes nothing and says so.
func TestCopyTwiceIsANoOp(t *testing.T) {
	sources := allSources(t)
	b := newBench(t)
	var want int
	for _, dir := range sources {
		want += len(oracleOf(t, dir).bases)
	}
	type line struct {
		segmentLine
		Existed bool `json:"existed"`
	}
	args := append([]string{"copy", "--json"}, sources...)
	first := decode[line](t, b.done(args...))
	before, err := treeOf(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	ls := b.done("ls", "--all", "--json")
	o := b.want(statusDone, args...)
	second := decode[line](t, o.out)
	after, err := treeOf(b.store)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != want || len(second) != want {
		t.Errorf("%d and %d segments, want %d", len(first), len(second), want)
	}
	for i := range min(len(first), len(second)) {
		if first[i].Existed || !second[i].Existed || first[i].SegmentID != second[i].SegmentID {
			t.Errorf("%+v, then %+v", first[i], second[i])
		}
	}
	if !strings.Contains(before, after) {
		t.Error("the second copy changed the store")
	}
	if again := b.done("ls", "--all", "--json"); again != ls {
		t.Errorf("the second copy changed metadata:\n%s\nwas\n%s", clip(again), clip(ls))
	}
	if want := fmt.Sprintf("0 segments copied (0 B), %d in the tier before", want); !strings.Contains(o.msg, want) {
		t.Errorf("stderr does not say %q:\n%s", want, o.msg)
	}
}

// The newest segment stays unless it is asked for.
func TestCopyTheActiveSegment(t *testing.T) {
	b := newBench(t)
	closed := strings.Count(b.done("copy", source(sensors)), "\n")
	all := strings.Count(b.done("copy", "--include-active", source(sensors)), "\n")
	if all != closed+1 {
		t.Errorf("%d segments, with the active one %d", closed, all)
	}
	// An active segment that is still empty is nothing to fail for.
	o := b.want(statusDone, "copy", "--include-active", source("audit.trimmed-start_1-1"))
	if o.out != "" || !strings.Contains(o.msg, "is empty") {
		t.Errorf("%+v", o)
	}
	o = b.want(statusDone, "copy", source("audit.trimmed-start_1-1"))
	if o.out != "" || !strings.Contains(o.msg, "nothing to copy") {
		t.Errorf("%+v", o)
	}
}

// Records are written under the partition's last leader epoch, whatever the
// epochs of a segment: otherwise a repeated copy would be taken for an old leader.
func TestCopyWritesUnderTheLastLeaderEpoch(t *testing.T) {
	b := newBench(t)
	b.done("copy", "--broker-id", "7", source(sensors))
	meta, err := embedded.Open(b.meta, embedded.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer meta.Close()
	partitions, err := meta.Partitions()
	if err != nil || len(partitions) != 1 {
		t.Fatal(partitions, err)
	}
	view, err := meta.View(partitions[0])
	if err != nil {
		t.Fatal(err)
	}
	for seg := range view.All() {
		if seg.LeaderEpoch != 4 || seg.BrokerID != 7 {
			t.Errorf("segment at %d: leader epoch %d of broker %d, want 4 of 7", seg.StartOffset, seg.LeaderEpoch, seg.BrokerID)
		}
	}
}

func TestCopyWithATopicID(t *testing.T) {
	dir := copyTree(t, source(sensors), filepath.Join(t.TempDir(), sensors))
	if err := os.Remove(filepath.Join(dir, "partition.metadata")); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	id := segment.UUID{1, 2, 3}
	b.done("copy", "--topic-id", id.String(), dir)
	if segs := decode[segmentLine](t, b.done("ls", "--json", id.String()+"/0")); len(segs) != 5 || segs[0].TopicID != id {
		t.Errorf("%+v", segs)
	}
	other := copyTree(t, source(payments), filepath.Join(t.TempDir(), payments))
	b.want(statusFailed, "copy", "--topic-id", id.String(), other).oneError(t, "partition.metadata", id.String())
	if err := os.Remove(filepath.Join(other, "partition.metadata")); err != nil {
		t.Fatal(err)
	}
	b.want(statusUsage, "copy", "--topic-id", id.String(), dir, other).oneError(t, "are two")
	b.want(statusFailed, "copy", dir).oneError(t, "partition.metadata", "--topic-id")

	// A second topic of the same name: told apart by id.
	b.done("copy", source(sensors))
	b.want(statusUsage, "ls", "sensor-readings.v2_raw/0").oneError(t, id.String()+"/0", "share this name")
	b.done("fetch", id.String()+"/0", "earliest")
}

// badInput is a source that must not be copied.
type badInput struct {
	name   string
	damage func(t *testing.T, dir string) string // returns the directory to copy
	says   []string

	early bool // found before a store is needed, so none is made
}

func badInputs() []badInput {
	const log, index = "00000000000000000040.log", "00000000000000000040.index"
	edit := func(name string, f func(b []byte) []byte) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f(b), 0o666); err != nil {
				t.Fatal(err)
			}
			return dir
		}
	}
	without := func(name string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			return dir
		}
	}
	renamed := func(name string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			to := filepath.Join(filepath.Dir(dir), name)
			if err := os.Rename(dir, to); err != nil {
				t.Fatal(err)
			}
			return to
		}
	}
	return []badInput{
		{"corrupt batch", edit(log, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), []string{"sensor-readings.v2_raw", "offsets 40 to", "batch", "position"}, false},
		{"truncated log", edit(log, func(b []byte) []byte { return b[:len(b)-10] }), []string{"offsets 40 to", "log"}, false},
		{"log with foreign bytes", edit(log, func(b []byte) []byte {
			return append(b, "not a batch, but long enough to be one: 61 bytes and some more"...)
		}), []string{"offsets 40 to", "log"}, false},
		{"index disagrees with log", edit(index, func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[4:], binary.BigEndian.Uint32(b[4:])+1)
			return b
		}), []string{"offsets 40 to", "offset index"}, false},
		{"index of no whole entries", edit(index, func(b []byte) []byte { return append(b, 1, 2, 3) }), []string{"offset index"}, false},
		{"empty segment", edit(log, func([]byte) []byte { return nil }), []string{"40", "no record batch"}, false},
		{"unreadable log", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, log)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(dir, "nowhere"), path); err != nil {
				t.Fatal(err)
			}
			return dir
		}, []string{log}, false},
		{"index is a directory", func(t *testing.T, dir string) string {
			without(index)(t, dir)
			if err := os.Mkdir(filepath.Join(dir, index), 0o777); err != nil {
				t.Fatal(err)
			}
			return dir
		}, []string{index}, false},
		{"missing index", without(index), []string{index}, false},
		{"missing topic id", without("partition.metadata"), []string{"partition.metadata", "--topic-id"}, true},
		{"nonsense topic id", edit("partition.metadata", func([]byte) []byte { return []byte("version: 0\ntopic_id: !!\n") }), []string{"partition.metadata", "--topic-id"}, true},
		{"missing epochs", without("leader-epoch-checkpoint"), []string{"leader-epoch-checkpoint"}, true},
		{"nonsense epochs", edit("leader-epoch-checkpoint", func([]byte) []byte { return []byte("0\n1\nx y\n") }), []string{"leader-epoch-checkpoint"}, true},
		{"no partition directory", renamed("sensors"), []string{"sensors", "<topic>-<number>"}, true},
		{"parent of partition directories", func(_ *testing.T, dir string) string { return filepath.Dir(dir) }, []string{"give those", sensors}, true},
		{"no directory at all", func(_ *testing.T, dir string) string { return dir + "9" }, []string{sensors + "9"}, true},
		{"a file", func(_ *testing.T, dir string) string { return filepath.Join(dir, log) }, []string{log}, true},
		{"topic name ..", renamed("..-0"), []string{`".."`}, true},
		{"topic name of strange characters", renamed("orders eu-0"), []string{"not allowed"}, true},
		{"topic name over 249 characters", renamed(strings.Repeat("x", 250) + "-0"), []string{"249"}, true},
	}
}

// Each bad input gives one error that names the thing, fails, and leaves nothing
// visible but the segments below it, which were right.
func TestBadInput(t *testing.T) {
	for _, tt := range badInputs() {
		t.Run(tt.name, func(t *testing.T) {
			dir := tt.damage(t, copyTree(t, source(sensors), filepath.Join(t.TempDir(), sensors)))
			before, err := treeOf(dir)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			b := newBench(t)
			o := b.want(statusFailed, "copy", dir)
			o.oneError(t, tt.says...)
			if after, err := treeOf(dir); err == nil && after != before {
				t.Error("the source was changed")
			}
			if entries, err := os.ReadDir(b.dir); tt.early && (err != nil || len(entries) > 0) {
				t.Errorf("a store was made for nothing: %v, %v", entries, err)
			} else if !tt.early {
				for _, s := range decode[segmentLine](t, b.done("ls", "--json")) {
					if s.EndOffset >= 40 {
						t.Errorf("readable: %+v", s)
					}
				}
				b.done("verify")
			}

			// Other partitions go on, and the fault stays one fault.
			o = b.want(statusFailed, "copy", dir, source(payments))
			o.oneError(t, tt.says...)
			if n := strings.Count(o.out, "payments"); n != 12 {
				t.Errorf("%d segments of the other partition were copied, want 12", n)
			}
		})
	}
}

// A segment that was repaired is copied as if nothing had been.
func TestCopyAfterRepair(t *testing.T) {
	dir := copyTree(t, source(sensors), filepath.Join(t.TempDir(), sensors))
	log := filepath.Join(dir, "00000000000000000080.log")
	if err := flipBit(log, 200); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.want(statusFailed, "copy", dir)
	if err := flipBit(log, 200); err != nil {
		t.Fatal(err)
	}
	b.done("copy", dir)
	equalsLog(t, b, oracleOf(t, dir))
}

func TestMetadataInUse(t *testing.T) {
	b := copied(t, source(sensors))
	held, err := embedded.Open(b.meta, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, args := range [][]string{{"copy", source(payments)}, {"ls"}, {"fetch", "sensor-readings.v2_raw/0", "0"}, {"verify"}} {
		o := b.want(statusFailed, args...)
		o.oneError(t, b.meta, "in use by another process", "use another file")
		if o.out != "" {
			t.Errorf("%v: %s", args, o.out)
		}
	}
}

// Readers share a metadata file.
func TestReadersShareMetadata(t *testing.T) {
	b := copied(t, source(sensors))
	held, err := embedded.Open(b.meta, embedded.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	b.done("ls")
	b.done("fetch", "sensor-readings.v2_raw/0", "0")
}

func TestPrefixOfAnotherMetadata(t *testing.T) {
	b := copied(t, source(sensors))
	b.meta = filepath.Join(b.dir, "other.db")
	before, err := treeOf(b.store)
	if err != nil {
		t.Fatal(err)
	}
	o := b.want(statusFailed, "copy", source(payments), source(wide))
	o.oneError(t, "segtier.json", "owned by metadata store", "another prefix")
	if after, err := treeOf(b.store); err != nil || after != before {
		t.Errorf("the store was changed: %v", err)
	}
	if out := b.done("ls", "--all"); out != "" {
		t.Errorf("something is there: %s", out)
	}
}

// Commands that read say what is missing and make nothing.
func TestNothingThere(t *testing.T) {
	for _, args := range []string{"ls", "fetch orders/0 1", "offset orders/0 1", "explain orders/0 1", "verify"} {
		b := newBench(t)
		o := b.want(statusFailed, strings.Fields(args)...)
		o.oneError(t, "there is no metadata at "+b.meta, "--meta", "segtier copy")
		if entries, err := os.ReadDir(b.dir); err != nil || len(entries) > 0 {
			t.Errorf("%s made %v, %v", args, entries, err)
		}
	}
	b := copied(t, source(sensors))
	if err := os.RemoveAll(b.store); err != nil {
		t.Fatal(err)
	}
	o := b.want(statusFailed, "fetch", "sensor-readings.v2_raw/0", "1")
	o.oneError(t, "there is no store at "+b.store, "--store")
}

// Files where directories should be, and the other way round.
func TestStoreThatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o666); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.store = file
	b.want(statusFailed, "copy", source(sensors)).oneError(t, file)
	b = newBench(t)
	b.store = filepath.Join(file, "store")
	b.want(statusFailed, "copy", source(sensors)).oneError(t, file)
	b = newBench(t)
	b.meta = filepath.Join(file, "metadata.db")
	b.want(statusFailed, "copy", source(sensors)).oneError(t, file)
	b = newBench(t)
	b.meta = file
	b.want(statusFailed, "copy", source(sensors)).oneError(t, file)
	b.want(statusFailed, "ls").oneError(t, file)
	if got, err := os.ReadFile(file); err != nil || string(got) != "text" {
		t.Errorf("the file is now %q, %v", got, err)
	}
	b = newBench(t)
	b.meta = b.dir
	b.want(statusFailed, "copy", source(sensors)).oneError(t, b.dir)

	// A file where the topic's objects should go.
	b = newBench(t)
	if err := os.MkdirAll(b.store, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.store, "sensor-readings.v2_raw"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	b.want(statusFailed, "copy", source(sensors)).oneError(t, "sensor-readings.v2_raw")
	if out := b.done("ls"); out != "" {
		t.Errorf("readable: %s", out)
	}
}

func TestInterruptedBeforeItBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := newBench(t)
	if o := b.tryContext(ctx, "copy", source(sensors)); o.status != statusFailed || !strings.Contains(o.msg, "interrupted") {
		t.Errorf("%+v", o)
	}
	b.done("copy", source(sensors))
	if o := b.tryContext(ctx, "verify"); o.status != statusFailed || !strings.Contains(o.msg, "interrupted") {
		t.Errorf("%+v", o)
	}
}
