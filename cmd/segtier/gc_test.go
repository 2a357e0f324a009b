package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/segment"
)

// file puts a file into the store, and makes it old.
func (b *bench) file(name, content string, age time.Duration) string {
	b.t.Helper()
	path := filepath.Join(b.store, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(content), 0o666)); err != nil {
		b.t.Fatal(err)
	}
	b.old(name, age)
	return name
}

func (b *bench) old(name string, age time.Duration) {
	b.t.Helper()
	at := time.Now().Add(-age)
	if err := os.Chtimes(filepath.Join(b.store, filepath.FromSlash(name)), at, at); err != nil {
		b.t.Fatal(err)
	}
}

// files are all files of the store.
func (b *bench) files() map[string]bool {
	b.t.Helper()
	all := map[string]bool{}
	err := fs.WalkDir(os.DirFS(b.store), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[path] = true
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// edit lets f publish events.
func (b *bench) edit(f func(meta *embedded.Store, view *metadata.View) error) {
	b.t.Helper()
	meta, err := embedded.Open(b.meta, embedded.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer meta.Close()
	ps, err := meta.Partitions()
	if err != nil {
		b.t.Fatal(err)
	}
	view, err := meta.View(ps[0])
	if err == nil {
		err = f(meta, view)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// end takes a segment to DELETE_SEGMENT_FINISHED and leaves its object.
func (b *bench) end(start int64) (key string) {
	b.t.Helper()
	b.edit(func(meta *embedded.Store, view *metadata.View) error {
		for seg := range view.All() {
			if seg.StartOffset != start {
				continue
			}
			key = object.Key(seg.Partition, seg.StartOffset, seg.ID)
			w := metadata.Writer{LeaderEpoch: 1000}
			ev, err := metadata.DeleteStarted(seg, w, time.Now().UnixMilli())
			if err == nil {
				err = meta.Publish(b.t.Context(), ev)
			}
			if err == nil {
				ev, err = metadata.DeleteFinished(ev.Segment(), w, time.Now().UnixMilli())
			}
			if err != nil {
				return err
			}
			return meta.Publish(b.t.Context(), ev)
		}
		return errors.New("no such segment")
	})
	return key
}

// TestGC: what lies about is told; --apply takes what is proven, --unknown what
// nobody knows; what is not ours, and what is readable, stays.
func TestGC(t *testing.T) {
	b := copied(t, source(payments))
	o := oracleOf(t, source(payments))
	_, _, id, err := object.ParseKey(objectOf(t, b, o.name, 0))
	if err != nil || id.IsZero() {
		t.Fatal(err)
	}
	p := segment.Partition{}
	b.edit(func(_ *embedded.Store, view *metadata.View) error { p = view.Partition(); return nil })
	readable := objectOf(t, b, o.name, 5)
	ended := b.end(0)
	b.old(ended, 50*24*time.Hour)
	content, err := os.ReadFile(filepath.Join(b.store, filepath.FromSlash(readable)))
	if err != nil {
		t.Fatal(err)
	}
	unknown := b.file(object.Key(p, 0, segment.NewUUID()), string(content), 50*24*time.Hour)
	young := b.file(object.Key(p, 0, segment.NewUUID()), "x", time.Hour)
	upload := b.file(readable+" 0123456789abcdef.upload", "x", 50*24*time.Hour)
	foreign := []string{b.file("backup.tar", "x", 50*24*time.Hour), b.file(readable+".orig", "x", 50*24*time.Hour), b.file("other/segtier.json", "x", 50*24*time.Hour)}
	before := b.files()

	same := func(what string, gone ...string) {
		t.Helper()
		have := b.files()
		want := map[string]bool{}
		for f := range before {
			want[f] = true
		}
		for _, f := range gone {
			delete(want, f)
		}
		for f := range before {
			if have[f] != want[f] {
				t.Errorf("%s: %s is there: %v", what, f, have[f])
			}
		}
	}
	found := map[string]orphanLine{}
	for _, l := range decode[orphanLine](t, b.done("gc", "--json", "--unknown")) {
		name := l.Object
		if l.UploadID != "" {
			name += " " + l.UploadID + ".upload"
		}
		found[name] = l
	}
	for name, want := range map[string]string{
		ended: "ORPHAN_ENDED removable", unknown: "ORPHAN_UNKNOWN removable", young: "ORPHAN_UNKNOWN kept", upload: "UPLOAD_ENDED removable",
		foreign[0]: "FOREIGN_OBJECT kept", foreign[1]: "FOREIGN_OBJECT kept", foreign[2]: "FOREIGN_OBJECT kept",
	} {
		if l := found[name]; l.Reason+" "+l.Action != want || l.Message == "" {
			t.Errorf("%s: %+v, want %s", name, l, want)
		}
	}
	if len(found) != 7 {
		t.Errorf("%d were found", len(found))
	}
	same("without --apply")

	plan := filepath.Join(b.dir, "gc.json")
	b.done("gc", "--plan", plan)
	if o := b.want(statusFailed, "gc", "--apply", "--unknown", "--max-fraction", "0.01"); !strings.Contains(o.msg, "more would be deleted") || !strings.Contains(o.msg, "--max-fraction") {
		t.Error(o.msg)
	}
	same("above the fraction")
	if out := b.done("gc", "--apply", "--unknown", "--plan", plan); strings.Count(out, "removed") != 2 {
		t.Errorf("%s", out)
	}
	same("--apply", ended, upload)
	b.done("gc", "--apply")
	same("--apply again", ended, upload)
	b.done("gc", "--apply", "--unknown")
	same("--unknown", ended, upload, unknown)
	b.done("gc", "--apply", "--unknown", "--older-than", "0s")
	same("--older-than 0", ended, upload, unknown, young)
	b.done("verify")
	if o := b.done("fetch", o.name, "106", "--format", "raw"); o == "" {
		t.Error("nothing is read")
	}
}

// TestGCOfAnOlderCopy: a snapshot that is older than the store has nothing deleted,
// whatever is asked for.
func TestGCOfAnOlderCopy(t *testing.T) {
	b := copied(t, source(payments))
	older, err := os.ReadFile(b.meta)
	if err != nil {
		t.Fatal(err)
	}
	b.done("copy", source(sensors))
	if err := os.WriteFile(b.meta, older, 0o600); err != nil {
		t.Fatal(err)
	}
	before := len(b.files())
	for _, args := range [][]string{{"gc"}, {"gc", "--apply"}, {"gc", "--apply", "--unknown", "--older-than", "0s", "--max-fraction", "1"}} {
		b.want(statusFailed, args...).oneError(t, "looks as if it has lost something", "docs/operations.md")
		if n := len(b.files()); n != before {
			t.Fatalf("%v: %d files of %d are there", args, n, before)
		}
	}
}

func TestGCUsage(t *testing.T) {
	b := copied(t, source(payments))
	for _, args := range [][]string{{"--older-than", "-1h"}, {"--max-fraction", "0"}, {"--max-fraction", "1.5"}, {"--trust-metadata"}, {"x"}} {
		b.want(statusUsage, append([]string{"gc"}, args...)...)
	}
	b.want(statusFailed, "gc", "--apply", "--plan", filepath.Join(b.dir, "missing")).oneError(t, "plan")
	file := filepath.Join(b.dir, "plan")
	pipe := filepath.Join(b.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, b.dir} {
		b.want(statusFailed, "gc", "--apply", "--plan", name).oneError(t, "plan")
		b.want(statusFailed, "verify", "--cursor", name).oneError(t, "cursor")
	}
	b.done("gc", "--plan", file)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b.done("gc", "--apply", "--plan", file)
	for _, junk := range []string{"", "{", `{"x":1}`, "null", string(good) + "x", string(good) + string(good), string(good[:len(good)-3])} {
		if err := os.WriteFile(file, []byte(junk), 0o666); err != nil {
			t.Fatal(err)
		}
		b.want(statusFailed, "gc", "--apply", "--plan", file).oneError(t, "plan")
	}
	empty := newBench(t)
	empty.want(statusFailed, "gc", "--apply").oneError(t, "there is no metadata")
	if _, err := os.Stat(empty.store); !errors.Is(err, os.ErrNotExist) {
		t.Error("gc has made a store")
	}
}

// TestGCEndsRecords: what a dead copy announced and what a deletion left goes to its
// end; a copy that was whole is kept, and copying again finishes it.
func TestGCEndsRecords(t *testing.T) {
	b := copied(t, source(payments))
	o := oracleOf(t, source(payments))
	long := time.Now().Add(-50 * 24 * time.Hour).UnixMilli()
	w := metadata.Writer{LeaderEpoch: 1000}
	var dead, whole, deleting *metadata.Segment
	b.edit(func(meta *embedded.Store, view *metadata.View) error {
		publish := func(ev metadata.Event, err error) *metadata.Segment {
			if err == nil {
				err = meta.Publish(t.Context(), ev)
			}
			if err != nil {
				t.Fatal(err)
			}
			return ev.Segment()
		}
		for seg := range view.All() {
			switch seg.StartOffset {
			case o.bases[2]:
				deleting = publish(metadata.DeleteStarted(seg, w, long))
			case o.bases[4]:
				fresh := seg.Clone()
				fresh.ID, fresh.Custom = segment.NewUUID(), append([]byte{'P', 1}, make([]byte, 42)...)
				fresh.EndOffset++
				dead = publish(metadata.Started(fresh, w, long))
				fresh.ID = segment.NewUUID()
				fresh.EndOffset += 1 << 20
				whole = publish(metadata.Started(fresh, w, long))
			}
		}
		return nil
	})
	b.file(object.Key(whole.Partition, whole.StartOffset, whole.ID), "an object", 0)
	key := object.Key(deleting.Partition, deleting.StartOffset, deleting.ID)
	if out := b.done("gc"); strings.Count(out, "RECORD_ABANDONED") != 1 || strings.Count(out, "RECORD_DELETING") != 1 || strings.Count(out, "RECORD_COMPLETE") != 1 {
		t.Errorf("%s", out)
	}
	if !b.files()[key] {
		t.Error("it was deleted without --apply")
	}
	if out := b.done("gc", "--apply"); strings.Count(out, "removed") != 2 {
		t.Errorf("%s", out)
	}
	if b.files()[key] {
		t.Error("the object of a deletion that was ended is there")
	}
	b.edit(func(_ *embedded.Store, view *metadata.View) error {
		for id, want := range map[segment.UUID]metadata.State{
			dead.ID: metadata.DeleteSegmentFinished, deleting.ID: metadata.DeleteSegmentFinished, whole.ID: metadata.CopySegmentStarted,
		} {
			if seg, ok := view.Get(id); !ok || seg.State != want {
				t.Errorf("%v, want %s", seg, want)
			}
		}
		return nil
	})
}
