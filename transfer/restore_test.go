package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/segtier/segtier/objstore/storetest"
)

// names returns the files of a directory.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestRestore(t *testing.T) {
	c := copySegment(t, someSegment(t), layout)
	store := storetest.NewMem()
	put(t, store, c.h.Key(), c.obj)
	ep := newEndpoint(t, store)
	dir := t.TempDir()
	base := fmt.Sprintf("%020d", c.h.StartOffset)
	// What a crash left behind is replaced.
	if err := os.WriteFile(filepath.Join(dir, base+".log.tmp"), make([]byte, len(c.seg.Log)+100), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), ep, c.h, c.loc, dir); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{
		base + ".log": c.seg.Log, base + ".index": c.seg.Offset, base + ".timeindex": c.seg.Time, base + ".txnindex": c.seg.Txn,
		fmt.Sprintf("%020d.snapshot", c.h.EndOffset+1): c.seg.Snapshot,
	}
	for name, b := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes (%v), want %d", name, len(got), err, len(b))
		}
	}
	if got := names(t, dir); len(got) != len(want) {
		t.Errorf("files %q", got)
	}
	// A log that is there is not touched.
	unasked := storetest.Inject(store, func(c storetest.Call) storetest.Fault {
		t.Errorf("the store was asked: %v", c)
		return storetest.Fault{}
	})
	if err := Restore(t.Context(), newEndpoint(t, unasked), c.h, c.loc, dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("again: %v", err)
	}
}

// Nothing appears under its name unless all of it is right.
func TestRestoreOfADamagedObject(t *testing.T) {
	c := copySegment(t, smallSegment(), ScanOptions{ChunkSize: 200})
	log := int64(len(c.seg.Log))
	for _, at := range []int64{0, log / 2, log - 1, log, c.loc.TailOffset - 1, c.loc.TailOffset, c.loc.ObjectSize - 1} {
		b := bytes.Clone(c.obj)
		b[at] ^= 1
		store := storetest.NewMem()
		put(t, store, c.h.Key(), b)
		dir := t.TempDir()
		if err := Restore(t.Context(), newEndpoint(t, store), c.h, c.loc, dir); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d flipped: %v", at, err)
		}
		if got := names(t, dir); len(got) > 0 {
			t.Errorf("byte %d flipped: files %q", at, got)
		}
	}
	store := storetest.NewMem()
	put(t, store, c.h.Key(), c.obj)
	other := c.h
	other.EndOffset++
	if err := Restore(t.Context(), newEndpoint(t, store), other, c.loc, t.TempDir()); !errors.Is(err, ErrDamaged) {
		t.Errorf("another record: %v", err)
	}
	if err := Restore(t.Context(), newEndpoint(t, store), c.h, c.loc, filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// A segment without transactions and producers has fewer files.
func TestRestoreOfFewFiles(t *testing.T) {
	s := largeSegment(1 << 10)
	s.Snapshot = nil
	c := copySegment(t, s, layout)
	store := storetest.NewMem()
	put(t, store, c.h.Key(), c.obj)
	dir := t.TempDir()
	if err := Restore(t.Context(), newEndpoint(t, store), c.h, c.loc, dir); err != nil {
		t.Fatal(err)
	}
	base := fmt.Sprintf("%020d", c.h.StartOffset)
	if got, want := names(t, dir), []string{base + ".index", base + ".log", base + ".timeindex"}; !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}
