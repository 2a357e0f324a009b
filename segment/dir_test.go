package segment_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// writeDir writes a random partition and returns its directory.
func writeDir(t *testing.T, seed uint64, o testseg.Options) (*testseg.Log, string) {
	t.Helper()
	log := testseg.Random(seed, o)
	dir, err := log.WriteDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return log, dir
}

func base(offset int64) string { return fmt.Sprintf("%020d", offset) }

// readFile returns a file of a source; nil if it has none.
func readFile(t *testing.T, s segment.Source, kind segment.FileKind) []byte {
	t.Helper()
	r, size := s.File(kind)
	if r == nil {
		if size != 0 {
			t.Errorf("%v: no file of %d bytes", kind, size)
		}
		return nil
	}
	b := make([]byte, size)
	if _, err := r.ReadAt(b, 0); err != nil && (size > 0 || !errors.Is(err, io.EOF)) {
		t.Fatalf("%v: %v", kind, err)
	}
	return b
}

func kinds() []segment.FileKind {
	return []segment.FileKind{segment.Log, segment.OffsetIndex, segment.TimeIndex, segment.ProducerSnapshot, segment.TxnIndex}
}

func TestDirOpens(t *testing.T) {
	for seed := range uint64(5) {
		log, path := writeDir(t, seed, testseg.Options{Start: int64(seed) * 100})
		dir := segment.Dir{Path: path}
		if p, err := dir.Partition(); err != nil || p != log.Partition {
			t.Errorf("Partition = %v, %v", p, err)
		}
		bases, err := dir.Segments()
		if err != nil || len(bases) != len(log.Segments) {
			t.Fatalf("Segments = %v, %v", bases, err)
		}
		for i, want := range log.Segments {
			if bases[i] != want.Info().StartOffset {
				t.Errorf("segment %d has base %d, want %d", i, bases[i], want.Info().StartOffset)
			}
			s, err := segment.OpenDir(path, bases[i])
			if err != nil {
				t.Fatal(err)
			}
			info := want.Info()
			active := i == len(bases)-1
			if active { // only the log tells
				info.EndOffset = want.Batches[len(want.Batches)-1].Header.LastOffset
				info.Epochs = log.Epochs.UpTo(info.EndOffset)
			}
			got := s.Info()
			if got.Partition != info.Partition || got.StartOffset != info.StartOffset || got.EndOffset != info.EndOffset || !slices.Equal(got.Epochs, info.Epochs) {
				t.Errorf("Info = %+v, want %+v", got, info)
			}
			if age := time.Since(time.UnixMilli(got.ModTimestamp)); age < -time.Hour || age > time.Hour {
				t.Errorf("modified %v ago", age)
			}
			for _, kind := range kinds() {
				content := want.Log
				if r, n := want.File(kind); kind != segment.Log {
					content = nil
					if r != nil {
						content = make([]byte, n)
						_, _ = r.ReadAt(content, 0)
					}
				}
				if kind == segment.ProducerSnapshot && active && want.Info().EndOffset != info.EndOffset {
					content = nil // there is none at the end of the log
				}
				if got := readFile(t, s, kind); !bytes.Equal(got, content) || (got == nil) != (content == nil) {
					t.Errorf("segment %d: %v: %d bytes, want %d", i, kind, len(got), len(content))
				}
			}
			if r, n := s.File(99); r != nil || n != 0 {
				t.Errorf("a file of no kind: %v, %d", r, n)
			}
			if err := s.Unchanged(); err != nil {
				t.Errorf("Unchanged: %v", err)
			}
			for range 2 {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
		}
	}
}

// What a broker is about to remove or swap in is no segment, nor is what is
// named a little differently.
func TestDirIgnoresLeftovers(t *testing.T) {
	log, path := writeDir(t, 1, testseg.Options{})
	want, _ := segment.Dir{Path: path}.Segments()
	for _, name := range []string{
		base(1) + ".log.deleted", base(2) + ".log.cleaned", base(3) + ".log.swap", base(4) + ".log.tmp", base(5) + ".index",
		"6.log", "0000000000000000000x.log", "99999999999999999999.log", "-0000000000000000001.log", "+0000000000000000001.log", ".log",
	} {
		if err := os.WriteFile(filepath.Join(path, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(path, base(7)+".log"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := segment.Dir{Path: path}.Segments()
	if err != nil || !slices.Equal(got, want) || len(got) != len(log.Segments) {
		t.Errorf("Segments = %v, %v, want %v", got, err, want)
	}
}

func TestDirNames(t *testing.T) {
	for name, want := range map[string]segment.Partition{
		"orders-0":                      {Topic: "orders", Number: 0},
		"a-b-12":                        {Topic: "a-b", Number: 12},
		"a--1":                          {Topic: "a-", Number: 1},
		"x.y_z-2147483647":              {Topic: "x.y_z", Number: 2147483647},
		"orders-0-delete-0":             {Topic: "orders-0-delete", Number: 0},
		"__consumer-7":                  {Topic: "__consumer", Number: 7},
		"orders":                        {},
		"orders-":                       {},
		"orders-x":                      {},
		"orders-01":                     {},
		"orders-+1":                     {},
		"orders-2147483648":             {},
		"-0":                            {},
		"..-0":                          {},
		"or ders-0":                     {},
		"orders-0.1f-delete":            {},
		"orders-0.1f-future":            {},
		"orders-0.1f-stray":             {},
		strings.Repeat("x", 249) + "-1": {Topic: strings.Repeat("x", 249), Number: 1},
		strings.Repeat("x", 250) + "-1": {},
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		want.TopicID = segment.UUID{1}
		got, err := segment.Dir{Path: path, TopicID: want.TopicID}.Partition()
		if want.Topic == "" {
			if err == nil {
				t.Errorf("%.20s is taken for %v", name, got)
			} else if !strings.Contains(err.Error(), "no partition directory") {
				t.Errorf("%.20s: %v", name, err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%.20s: %v, %v", name, got, err)
		}
	}
}

// A relative path such as "." has a name too.
func TestDirRelative(t *testing.T) {
	log, path := writeDir(t, 1, testseg.Options{})
	t.Chdir(path)
	if p, err := (segment.Dir{Path: "."}).Partition(); err != nil || p != log.Partition {
		t.Errorf("%v, %v", p, err)
	}
}

func TestDirTopicID(t *testing.T) {
	id, other := testseg.DefaultPartition.TopicID, segment.UUID{9}
	for _, c := range []struct {
		name, metadata string
		given          segment.UUID
		want           string // in the error; empty: id
	}{
		{"from the file", "version: 0\ntopic_id: " + id.String(), segment.UUID{}, ""},
		{"with a line end", "version: 0\ntopic_id: " + id.String() + "\n", segment.UUID{}, ""},
		{"the same given", "version: 0\ntopic_id: " + id.String(), id, ""},
		{"given, none there", "-", id, ""},
		{"given, nonsense there", "nonsense", id, ""},
		{"another given", "version: 0\ntopic_id: " + id.String(), other, "given was CQ"},
		{"none there", "-", segment.UUID{}, "partition.metadata is missing: give the topic's id"},
		{"nonsense", "nonsense", segment.UUID{}, "has no topic_id"},
		{"empty", "", segment.UUID{}, "has no topic_id"},
		{"zero id", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", segment.UUID{}, "has no topic_id"},
		{"bad id", "version: 0\ntopic_id: xx", segment.UUID{}, "not 22 characters"},
		{"version 1", "version: 1\ntopic_id: " + id.String(), segment.UUID{}, `version "1"`},
		{"long", "version: 0\n" + strings.Repeat("#", 5000), segment.UUID{}, "longer than 4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, path := writeDir(t, 1, testseg.Options{Segments: 1})
			file := filepath.Join(path, "partition.metadata")
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if c.metadata != "-" {
				if err := os.WriteFile(file, []byte(c.metadata), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p, err := segment.Dir{Path: path, TopicID: c.given}.Partition()
			if c.want == "" {
				if err != nil || p.TopicID != id {
					t.Errorf("%v, %v", p, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Each way in which a directory can be wrong has one error, which names the file
// and leaves nothing open.
func TestDirErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		base   int64
		change func(t *testing.T, path string, log *testseg.Log) string // returns the path to open
		want   string
		is     error
	}{
		{"no such directory", 0, func(_ *testing.T, path string, _ *testseg.Log) string { return path + "/gone-0" }, "does not exist", fs.ErrNotExist},
		{"a file", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			return renamed(path+"/"+base(0)+".log", path+"/orders-1")
		}, "give the partition directory it lies in", nil},
		{"no such segment", 5, nil, "no segment with base offset 5", nil},
		{"no segments", 0, func(_ *testing.T, path string, log *testseg.Log) string {
			for _, s := range log.Segments {
				remove(path + "/" + base(s.Info().StartOffset) + ".log")
			}
			return path
		}, "it has no segments", nil},
		{"empty log", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			truncate(path+"/"+base(0)+".log", 0)
			return path
		}, base(0) + ".log", segment.ErrEmptySegment},
		{"unreadable log", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			symlink(path+"/"+base(0)+".log", path+"/nowhere")
			return path
		}, "log: open", fs.ErrNotExist},
		{"no offset index", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			remove(path + "/" + base(0) + ".index")
			return path
		}, "offset index " /* path */, fs.ErrNotExist},
		{"no time index", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			remove(path + "/" + base(0) + ".timeindex")
			return path
		}, "it rebuilds indexes", fs.ErrNotExist},
		{"index is a directory", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			remove(path + "/" + base(0) + ".index")
			if err := os.Mkdir(path+"/"+base(0)+".index", 0o700); err != nil {
				panic(err)
			}
			return path
		}, "not a regular file", nil},
		{"no checkpoint", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			remove(path + "/leader-epoch-checkpoint")
			return path
		}, "leader-epoch-checkpoint is missing", fs.ErrNotExist},
		{"empty checkpoint", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			write(path+"/leader-epoch-checkpoint", "0\n0\n")
			return path
		}, "no leader epoch for offsets 0 to", nil},
		{"bad checkpoint", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			write(path+"/leader-epoch-checkpoint", "0\n5\n0 0\n")
			return path
		}, "leader-epoch-checkpoint: leader epochs: line 2", nil},
		{"checkpoint of another log", 0, func(_ *testing.T, path string, _ *testseg.Log) string {
			write(path+"/leader-epoch-checkpoint", "0\n1\n77 3\n")
			return path
		}, "begins at offset 3 with epoch 77", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, path := writeDir(t, 1, testseg.Options{})
			if c.change != nil {
				path = c.change(t, path, log)
			}
			before := openFiles(t)
			s, err := segment.Dir{Path: path, TopicID: testseg.DefaultPartition.TopicID}.Open(c.base)
			if err == nil {
				t.Fatalf("opened: %+v", s.Info())
			}
			if !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d files were left open", after-before)
			}
		})
	}
}

// openFiles counts the process's open files where the system tells.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func remove(path string) {
	if err := os.Remove(path); err != nil {
		panic(err)
	}
}

func renamed(from, to string) string {
	if err := os.Rename(from, to); err != nil {
		panic(err)
	}
	return to
}

func truncate(path string, size int64) {
	if err := os.Truncate(path, size); err != nil {
		panic(err)
	}
}

func symlink(path, target string) {
	remove(path)
	if err := os.Symlink(target, path); err != nil {
		panic(err)
	}
}

func write(path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
}

// The active segment ends where its batches do, however large they are and
// wherever they lie in what is read at a time.
func TestDirActiveSegment(t *testing.T) {
	for seed := range uint64(8) {
		log := testseg.Random(seed, testseg.Options{Segments: 1, Batches: 120, Codecs: []segment.Codec{segment.CodecNone}, MaxValue: int(seed) * 6000})
		path, err := log.WriteDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		only := log.Segments[0]
		for _, n := range []int{1, 2, 60, len(only.Batches)} {
			last := only.Batches[n-1]
			write(filepath.Join(path, base(0)+".log"), string(only.Log[:last.Pos+int64(last.Header.Size)]))
			s, err := segment.OpenDir(path, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Info().EndOffset; got != last.Header.LastOffset {
				t.Errorf("seed %d: %d batches end at %d, want %d", seed, n, got, last.Header.LastOffset)
			}
			s.Close()
		}
	}
}

func TestDirActiveSegmentTruncated(t *testing.T) {
	log, path := writeDir(t, 1, testseg.Options{Segments: 1})
	batches := log.Segments[0].Batches
	last := batches[len(batches)-1]
	file := filepath.Join(path, base(0)+".log")
	for _, n := range []int64{int64(last.Header.Size) - 1, 61, 60, 17, 1} {
		truncate(file, last.Pos+n)
		_, err := segment.OpenDir(path, 0)
		be, ok := errors.AsType[*segment.BatchError](err)
		if !ok || be.Pos != last.Pos || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), file) {
			t.Errorf("%d bytes of the last batch: %v", n, err)
		}
	}
	damaged := bytes.Clone(log.Segments[0].Log)
	damaged[last.Pos+16] = 9
	write(file, string(damaged))
	if _, err := segment.OpenDir(path, 0); !errors.Is(err, segment.ErrCorruptBatch) || !strings.Contains(err.Error(), "magic 9") {
		t.Errorf("a bad header: %v", err)
	}
}

// DeleteRecords cuts the checkpoint at the log's start offset, inside a segment.
func TestDirTrimmedStart(t *testing.T) {
	_, path := writeDir(t, 1, testseg.Options{Segments: 2, Plain: true})
	epoch := testseg.Random(1, testseg.Options{Segments: 2, Plain: true}).Epochs[0].Epoch
	write(filepath.Join(path, "leader-epoch-checkpoint"), fmt.Sprintf("0\n1\n%d 5\n", epoch))
	s, err := segment.OpenDir(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := s.Info().Epochs, (segment.Lineage{{Epoch: epoch, Start: 0}}); !slices.Equal(got, want) {
		t.Errorf("Epochs = %v, want %v", got, want)
	}
}

func TestDirSourceUnchanged(t *testing.T) {
	// A segment with and one without aborted transactions.
	log, _ := writeDir(t, 3, testseg.Options{Segments: 8})
	with := slices.IndexFunc(log.Segments, func(s *testseg.Segment) bool { return s.Txn != nil })
	without := slices.IndexFunc(log.Segments[:7], func(s *testseg.Segment) bool { return s.Txn == nil })
	if with < 0 || without < 0 {
		t.Fatal("another seed is needed")
	}
	later := time.Now().Add(time.Hour)
	for _, c := range []struct {
		name   string
		i      int
		change func(dir, base string)
		want   string // empty: unchanged
	}{
		{"nothing", with, func(string, string) {}, ""},
		{"log grows", with, func(dir, base string) { write(dir+"/"+base+".log", "x") }, "log "},
		{"log written to", with, func(dir, base string) {
			if err := os.Chtimes(dir+"/"+base+".log", later, later); err != nil {
				panic(err)
			}
		}, "was written to"},
		{"log deleted by the broker", with, func(dir, base string) { renamed(dir+"/"+base+".log", dir+"/"+base+".log.deleted") }, "log is no longer in place"},
		{"log replaced", with, func(dir, base string) {
			b, err := os.ReadFile(dir + "/" + base + ".log")
			if err != nil {
				panic(err)
			}
			fi, err := os.Stat(dir + "/" + base + ".log")
			if err != nil {
				panic(err)
			}
			write(dir+"/new", string(b))
			if err := os.Chtimes(dir+"/new", fi.ModTime(), fi.ModTime()); err != nil {
				panic(err)
			}
			renamed(dir+"/new", dir+"/"+base+".log")
		}, "replaced by another file"},
		{"index truncated", with, func(dir, base string) { truncate(dir+"/"+base+".index", 0) }, "offset index "},
		{"time index gone", with, func(dir, base string) { remove(dir + "/" + base + ".timeindex") }, "time index is no longer"},
		{"transaction index gone", with, func(dir, base string) { remove(dir + "/" + base + ".txnindex") }, "transaction index is no longer"},
		{"transaction index appears", without, func(dir, base string) { write(dir+"/"+base+".txnindex", "") }, "has appeared"},
		{"another segment is rolled", without, func(dir, _ string) { write(dir+"/"+base(1<<40)+".log", "") }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, err := log.WriteDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			start := log.Segments[c.i].Info().StartOffset
			s, err := segment.OpenDir(path, start)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c.change(path, base(start))
			err = s.Unchanged()
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A snapshot that a stopping broker writes behind the active segment changes
// nothing.
func TestDirSourceSnapshotAppears(t *testing.T) {
	_, path := writeDir(t, 1, testseg.Options{Segments: 1, Plain: true})
	matches, err := filepath.Glob(path + "/*.snapshot")
	if err != nil || len(matches) != 1 {
		t.Fatal(matches, err)
	}
	aside := renamed(matches[0], matches[0]+".tmp")
	s, err := segment.OpenDir(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r, _ := s.File(segment.ProducerSnapshot); r != nil {
		t.Error("there is a snapshot")
	}
	renamed(aside, matches[0])
	if err := s.Unchanged(); err != nil {
		t.Error(err)
	}
}

func TestDirSourceConcurrently(t *testing.T) {
	_, path := writeDir(t, 1, testseg.Options{})
	s, err := segment.OpenDir(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, kind := range kinds() {
				if r, n := s.File(kind); r != nil {
					_, _ = r.ReadAt(make([]byte, n), 0)
				}
			}
			_ = s.Info()
			if err := s.Unchanged(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for range 4 {
		wg.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r, _ := s.File(segment.Log)
	if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("reading after Close: %v", err)
	}
}
