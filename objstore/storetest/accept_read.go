package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/segtier/segtier/objstore"
)

func readRules() []rule {
	return []rule{
		{"8/ranges are exact", func(s *suite) {
			data := content(1, 2*partSize+10)
			s.put("object", data)
			size := int64(len(data))
			for _, r := range [][2]int64{
				{0, 1},
				{0, size},
				{1, 1},
				{size - 1, 1},
				{1, size - 1},
				{0, size - 1},
				{size - 10, 10},
				{partSize - 1, 1},
				{partSize - 1, 2},
				{partSize, partSize},
				{partSize - 3, partSize + 6},
			} {
				info, got, err := s.read("object", r[0], r[1], objstore.GetOptions{})
				if err != nil || !bytes.Equal(got, data[r[0]:r[0]+r[1]]) || info.Size != size {
					s.Errorf("bytes [%d,%d): %d bytes, of an object of %d bytes, error %v; or other bytes", r[0], r[0]+r[1], len(got), info.Size, err)
				}
			}
		}},
		{"8/ranges outside the object are refused", func(s *suite) {
			s.put("object", content(1, 100))
			for _, r := range [][2]int64{
				{100, 1},
				{99, 2},
				{0, 101},
				{50, 100},
				{101, 1},
				{1 << 40, 10},
				{-1, 1},
				{-10, 10},
				{0, 0},
				{0, -1},
				{1, math.MaxInt64},
				{math.MaxInt64, 1},
				{math.MaxInt64, math.MaxInt64},
				{math.MinInt64, 1},
			} {
				_, _, err := s.read("object", r[0], r[1], objstore.GetOptions{})
				if !errors.Is(err, objstore.ErrRange) {
					s.Errorf("%d bytes from %d of 100: %v, want %v", r[1], r[0], err, objstore.ErrRange)
				}
			}
		}},
		{"8/bodies end with EOF and stay there", func(s *suite) {
			data := content(1, 1000)
			s.put("object", data)
			_, body, err := s.store.Get(s.ctx, "object", 10, 500, objstore.GetOptions{})
			if err != nil {
				s.Fatalf("Get: %v", err)
			}
			var got []byte
			for buf := make([]byte, 7); ; {
				n, err := body.Read(buf)
				got = append(got, buf[:n]...)
				if err == io.EOF {
					break
				} else if err != nil {
					s.Fatalf("Read: %v", err)
				}
			}
			if n, err := body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				s.Errorf("Read after the end: %d, %v", n, err)
			}
			if err := body.Close(); err != nil || !bytes.Equal(got, data[10:510]) {
				s.Errorf("%d bytes, Close: %v; or other bytes", len(got), err)
			}
		}},
		{"8/bodies may be closed early", func(s *suite) {
			data := content(1, 2*partSize)
			s.put("object", data)
			for i := range 50 {
				_, body, err := s.store.Get(s.ctx, "object", int64(i), partSize, objstore.GetOptions{})
				if err != nil {
					s.Fatalf("Get %d: %v", i, err)
				}
				buf := make([]byte, i*100)
				if _, err := io.ReadFull(body, buf); err != nil || !bytes.Equal(buf, data[i:i+len(buf)]) {
					s.Errorf("Get %d: %v, or other bytes", i, err)
				}
				_ = body.Close() // that an unfinished transfer ended is no news
				if n, err := body.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
					s.Errorf("Read of a closed body: %d, %v", n, err)
				}
			}
			s.holds("object", data)
		}},
		{"8/IfMatch", func(s *suite) {
			first, second := content(1, 100), content(2, 100)
			ev := s.put("object", first)
			opts := objstore.GetOptions{IfMatch: ev.Identity}
			if _, got, err := s.read("object", 0, 100, opts); err != nil || !bytes.Equal(got, first) {
				s.Errorf("Get with its identity: %v, or other bytes", err)
			}
			_, _, err := s.read("object", 0, 100, objstore.GetOptions{IfMatch: ev.Identity + "0"})
			s.failsWith(err, objstore.ErrChanged, "get", "object")
			if err := s.store.Delete(s.ctx, "object"); err != nil {
				s.Fatalf("Delete: %v", err)
			}
			_, _, err = s.read("object", 0, 100, opts)
			s.failsWith(err, objstore.ErrNotExist, "get", "object")
			s.put("object", second)
			_, _, err = s.read("object", 0, 100, opts)
			s.failsWith(err, objstore.ErrChanged, "get", "object")
		}},
		{"8/a larger object, read concurrently", func(s *suite) {
			data := content(1, 3*partSize)
			s.put("object", data)
			each(4, func(i int) {
				for j := range 3 {
					off := int64(i*1_000_003+j*77_777) % (2 * partSize)
					n := int64(partSize) - int64(j*999_999)
					_, got, err := s.read("object", off, n, objstore.GetOptions{})
					if err != nil || !bytes.Equal(got, data[off:off+n]) {
						s.Errorf("bytes [%d,%d): %d bytes, %v; or other bytes", off, off+n, len(got), err)
					}
				}
			})
		}},
		{"9/what is absent", func(s *suite) {
			s.put("a/b/c", content(1, 10))
			for _, key := range []string{"x", "a", "a/b", "a/b/c/d", "a/b/C", strings.Repeat("x", 300)} {
				_, err := s.store.Stat(s.ctx, key)
				s.failsWith(err, objstore.ErrNotExist, "stat", key)
				_, _, err = s.read(key, 0, 1, objstore.GetOptions{})
				s.failsWith(err, objstore.ErrNotExist, "get", key)
				for range 2 {
					if err := s.store.Delete(s.ctx, key); err != nil {
						s.Errorf("Delete of %s, which is absent: %v", key, err)
					}
				}
			}
			s.holds("a/b/c", content(1, 10))
		}},
		{"9/delete several", func(s *suite) {
			for _, key := range []string{"a", "b/c", "b/d", "e"} {
				s.put(key, content(1, 10))
			}
			if err := s.store.Delete(s.ctx, "a", "absent", "b/c", "b/d", "a"); err != nil {
				s.Errorf("Delete: %v", err)
			}
			if err := s.store.Delete(s.ctx); err != nil {
				s.Errorf("Delete of nothing: %v", err)
			}
			if got := s.list("", ""); !slices.Equal(got, []string{"e"}) {
				s.Errorf("left are %q", got)
			}
		}},
	}
}

func listRules() []rule {
	return []rule{
		{"12/order, prefix, after", func(s *suite) {
			// '-' and '.' sort before '/', letters and '_' behind it.
			keys := []string{
				"A", "a", "a-", "a-b", "a-b/c", "a.b", "a/b", "a/b-c", "a/b.c", "a/b/c", "a/b/d/e", "a/c", "a0", "aA/b", "a_b", "ab", "b/a", "b/a2", "~",
			}
			stored := keys[:0:0]
			for i, key := range keys {
				if key == "a/b" || key == "a" || key == "a-b" || key == "b/a" {
					continue // directory of others, or nearly
				}
				s.put(key, content(uint64(i), 10+i))
				stored = append(stored, key)
			}
			slices.Sort(stored)
			for _, prefix := range []string{"", "a", "a-", "a-b", "a.", "a/", "a/b", "a/b/", "a/b/d/", "a/b/d/e", "b", "b/", "b/a", "c", "~", "/", "a//", "zz", "A"} {
				for _, after := range append([]string{"", "0", "a", "a/", "a/b", "a/b/", "a/bb", "zz", "~~"}, stored...) {
					var want []string
					for _, key := range stored {
						if strings.HasPrefix(key, prefix) && key > after {
							want = append(want, key)
						}
					}
					if got := s.list(prefix, after); !slices.Equal(got, want) {
						s.Errorf("List of %q after %q yields %q, want %q", prefix, after, got, want)
					}
				}
			}
		}},
		{"12/what is listed is what Stat says", func(s *suite) {
			for i := range 20 {
				s.put(fmt.Sprintf("p/%02d/%d", i%3, i), content(uint64(i), 1+i*100))
			}
			n := 0
			for info, err := range s.store.List(s.ctx, "p/", "") {
				if err != nil {
					s.Fatalf("List: %v", err)
				}
				n++
				stat, err := s.store.Stat(s.ctx, info.Key)
				if err != nil || info.Size != stat.Size || info.Identity != stat.Identity {
					s.Errorf("List says %+v, Stat %+v, %v", info, stat, err)
				}
				if err := s.store.Delete(s.ctx, info.Key); err != nil { // what a collector does
					s.Errorf("Delete while listing: %v", err)
				}
			}
			if left := s.list("", ""); n != 20 || len(left) > 0 {
				s.Errorf("%d objects of 20 listed, left are %q", n, left)
			}
		}},
		{"12/listing may be left early", func(s *suite) {
			for i := range 10 {
				s.put(fmt.Sprintf("key-%d", i), content(1, 10))
			}
			for stop := range 10 {
				n := 0
				for _, err := range s.store.List(s.ctx, "", "") {
					if err != nil {
						s.Fatalf("List: %v", err)
					}
					if n++; n > stop {
						break
					}
				}
			}
		}},
		{"14/unfinished uploads", func(s *suite) {
			lister, ok := s.store.(objstore.UploadLister)
			if !ok {
				s.Logf("the store leaves no unfinished uploads")
				return
			}
			data := content(1, partSize+1)
			s.put("done/a", data)
			ctx, cancel := context.WithCancel(s.ctx)
			req := request("dead/a", data)
			var once sync.Once
			req.Body = readerAt(func(p []byte, off int64) (int, error) {
				if off+int64(len(p)) == req.Size {
					once.Do(func() {
						s.abortAll(lister, "done/", 0)
						s.abortAll(lister, "dead/", 1)
						cancel()
					})
				}
				return bytes.NewReader(data).ReadAt(p, off)
			})
			if _, err := s.store.Upload(ctx, req); err == nil {
				s.Errorf("an upload that was aborted and cancelled succeeded")
			}
			s.abortAll(lister, "", -1)
			s.abortAll(lister, "", 0)
			s.absent("dead/a")
			s.holds("done/a", data)
		}},
	}
}

// abortAll aborts the unfinished uploads, which must be n; -1 is any number.
func (s *suite) abortAll(lister objstore.UploadLister, prefix string, n int) {
	s.Helper()
	found := 0
	for p, err := range lister.Uploads(s.ctx, prefix) {
		if err != nil {
			s.Errorf("Uploads: %v", err)
			return
		}
		found++
		if !strings.HasPrefix(p.Key, prefix) || p.Started.IsZero() {
			s.Errorf("Uploads of %q yields %+v", prefix, p)
		}
		for range 2 {
			if err := lister.Abort(s.ctx, p); err != nil {
				s.Errorf("Abort: %v", err)
			}
		}
	}
	if n >= 0 && found != n {
		s.Errorf("%d unfinished uploads of %q, want %d", found, prefix, n)
	}
}
