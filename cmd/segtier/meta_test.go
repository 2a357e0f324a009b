package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/segment"
)

// states gives the metadata of a bench a segment in each state, a log start and a
// partition that is being deleted, and returns the partition.
func (b *bench) states() segment.Partition {
	b.t.Helper()
	meta, err := embedded.Open(b.meta, embedded.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer meta.Close()
	p := segment.Partition{Topic: "made-up", TopicID: segment.UUID{15: 77}, Number: 3}
	w := metadata.Writer{BrokerID: 4, LeaderEpoch: 2}
	ctx := context.Background()
	for i, upTo := range []metadata.State{metadata.CopySegmentStarted, metadata.DeleteSegmentStarted, metadata.DeleteSegmentFinished} {
		start := int64(10 * i)
		seg := &metadata.Segment{
			Partition: p, ID: segment.UUID{0: 0x40, 15: byte(i + 1)}, StartOffset: start, EndOffset: start + 9, SizeBytes: 5,
			MaxTimestamp: 7, Epochs: segment.Lineage{{Epoch: 1, Start: start}}, Custom: []byte{'P', byte(i)}, TxnIndexEmpty: i == 1,
		}
		ev, err := metadata.Started(seg, w, 11)
		for err == nil {
			if err = meta.Publish(ctx, ev); err != nil || ev.To() == upTo {
				break
			}
			if ev.To() == metadata.CopySegmentStarted {
				ev, err = metadata.DeleteStarted(ev.Segment(), w, 12)
			} else {
				ev, err = metadata.DeleteFinished(ev.Segment(), w, 13)
			}
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	info := metadata.PartitionInfo{LogStart: 5, Epochs: []metadata.EpochInfo{{Epoch: 0, Start: 0, Highest: 88}}}
	if err := meta.Remember(ctx, p, info, w); err != nil {
		b.t.Fatal(err)
	}
	ev, err := metadata.DeletePartition(p, metadata.PartitionKept, metadata.DeletePartitionMarked, w, 14)
	if err == nil {
		err = meta.Publish(ctx, ev)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// TestMetaExportImport takes metadata to a second reader by way of JSON lines.
func TestMetaExportImport(t *testing.T) {
	b := copied(t, source(payments), source(sensors))
	b.states()
	file := filepath.Join(b.dir, "export.jsonl")
	b.done("meta", "export", "--out", file)
	export, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out := b.done("meta", "export"); out != string(export) {
		t.Error("stdout has something else than --out")
	}

	reader := newBench(t)
	reader.store = b.store
	o := reader.want(statusDone, "meta", "import", file)
	if _, err := os.Stat(reader.meta); err == nil || !strings.Contains(o.msg, "--apply") {
		t.Errorf("without --apply: %v\n%s", err, o.msg)
	}
	o = reader.want(statusDone, "meta", "import", file, "--apply", "--json")
	for _, says := range []string{"made-up/3", "COPY_SEGMENT_STARTED", "DELETE_SEGMENT_STARTED", "0 left out"} {
		if !strings.Contains(o.msg, says) {
			t.Errorf("it does not say %q:\n%s", says, o.msg)
		}
	}
	want := b.done("ls", "--all", "--json")
	if got := reader.done("ls", "--all", "--json"); got != want {
		t.Errorf("the copy lists\n%s\nwant\n%s", got, want)
	}
	if got := len(decode[segmentLine](t, o.out)); got != strings.Count(want, "\n")+1 {
		t.Errorf("%d segments were told", got)
	}
	reader.done("verify")
	// Exported again it says the same, but for its id and the writers' leader epochs.
	again := strings.SplitAfterN(reader.done("meta", "export"), "\n", 2)
	if first := strings.SplitAfterN(string(export), "\n", 2); again[1] != first[1] || again[0] == first[0] {
		t.Errorf("exported again:\n%s\nwant\n%s", again, first)
	}
	// It cannot write: the prefix belongs to the first.
	reader.want(statusFailed, "copy", source(wide)).oneError(t, "owned by")
	reader.want(statusFailed, "meta", "import", file).oneError(t, "in it")
}

// TestMetaImportConfirms: nothing becomes readable whose object is not whole.
func TestMetaImportConfirms(t *testing.T) {
	b := copied(t, source(payments))
	export := b.done("meta", "export")
	key := filepath.Join(b.store, objectOf(t, b, "payments.tx_commit-abort/0", 0))
	content, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/3] ^= 1
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.dir, "export.jsonl")
	if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
		t.Fatal(err)
	}
	reader := newBench(t)
	reader.store = b.store
	o := reader.want(statusDamage, "meta", "import", file, "--apply")
	if !strings.Contains(o.msg, "1 left out") {
		t.Errorf("it says\n%s", o.msg)
	}
	all := strings.Count(b.done("ls", "--json"), "\n")
	if got := strings.Count(reader.done("ls", "--json", "--all"), "\n"); got != all-1 {
		t.Errorf("%d of %d segments were taken over", got, all)
	}
}

// TestMetaImportRefuses what is no whole export, before anything is written.
func TestMetaImportRefuses(t *testing.T) {
	b := copied(t, source(payments))
	lines := strings.SplitAfter(strings.TrimSuffix(b.done("meta", "export"), "\n"), "\n")
	n := len(lines)
	join := func(parts ...[]string) string {
		var all []string
		for _, p := range parts {
			all = append(all, p...)
		}
		return strings.Join(all, "")
	}
	for name, c := range map[string]struct{ export, says string }{
		"empty":               {"", "cut short"},
		"cut short":           {join(lines[:n-1]), "cut short"},
		"cut in a line":       {join(lines[:n-1])[:len(join(lines[:n-1]))-20], "line"},
		"a segment missing":   {join(lines[:2], lines[3:]), "are here"},
		"a segment twice":     {join(lines[:3], lines[2:]), "comes twice"},
		"no head":             {join(lines[1:]), "begins with"},
		"two heads":           {join(lines[:1], lines), "begins with"},
		"another format":      {strings.Replace(join(lines), `"format":1`, `"format":2`, 1), "format 2"},
		"more behind":         {join(lines, []string{"\n"}, lines[1:2]), "behind the end"},
		"not JSON":            {"hello\n", "line 1"},
		"an unknown field":    {strings.Replace(join(lines), `"logStartOffset"`, `"logStart":1,"logStartOffset"`, 1), "logStart"},
		"an unknown type":     {join(lines[:1], []string{`{"type":"comment"}` + "\n"}, lines[1:]), "comment"},
		"an unknown state":    {strings.Replace(join(lines), "COPY_SEGMENT_FINISHED", "READABLE", 1), "READABLE"},
		"an unknown deletion": {strings.Replace(join(lines), `"deleteState":"NONE"`, `"deleteState":"SOON"`, 1), "SOON"},
		"nonsense offsets":    {strings.Replace(join(lines), `"startOffset":`, `"startOffset":9`, 1), "offsets"},
		"of no partition":     {join(lines[:1], lines[2:]), "not of the partition"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := newBench(t)
			reader.store = b.store
			file := filepath.Join(reader.dir, "x.jsonl")
			if err := os.WriteFile(file, []byte(c.export), 0o600); err != nil {
				t.Fatal(err)
			}
			reader.want(statusFailed, "meta", "import", file, "--apply").oneError(t, file, c.says)
			if _, err := os.Stat(reader.meta); err == nil {
				t.Error("metadata was made")
			}
		})
	}
	reader := newBench(t)
	reader.want(statusFailed, "meta", "import", filepath.Join(reader.dir, "none")).oneError(t, "none")
	b.want(statusUsage, "meta")
	b.want(statusUsage, "meta", "import")
	b.want(statusUsage, "meta", "export", "more")
}

// TestMetaExportOfASnapshot: while the metadata file is in use, a snapshot of it
// is exported instead.
func TestMetaExportOfASnapshot(t *testing.T) {
	b := copied(t, source(payments))
	want := b.done("meta", "export")
	meta, err := embedded.Open(b.meta, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer meta.Close()
	b.want(statusFailed, "meta", "export").oneError(t, "in use", "snapshot")
	snapshot, err := meta.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := b.done("meta", "export", "--meta", fileURL(snapshot)); got != want {
		t.Errorf("the snapshot says\n%s\nwant\n%s", got, want)
	}
}
