package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/segtier/segtier/objstore"
)

func keyRules() []rule {
	return []rule{
		{"1/keys of every form", func(s *suite) {
			keys := []string{
				"a", "0", "-", "_", "~", ".hidden", "..a", "a..b", "...", "a.b-c_d/e.f-g_h/0/00000000000000000100-AZaz09_-.seg",
				"percent%2Fencoded+plus=equal/a&b;c:d@e", "quotes/<'\">", "wild/*?[x]{y}", "hash#tag", "CASE", "case",
				strings.Repeat(strings.Repeat("long", 50)+"/", 4) + "end",
			}
			for i, key := range keys {
				s.put(key, content(uint64(i), 10+i))
			}
			for i, key := range keys {
				s.holds(key, content(uint64(i), 10+i))
			}
			slices.Sort(keys)
			if got := s.list("", ""); !slices.Equal(got, keys) {
				s.Errorf("List yields\n%q, want\n%q", got, keys)
			}
		}},
		{"1/what is no key is refused", func(s *suite) {
			for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", `a\b`, "a b", "a\x00", "a\n", "ä", strings.Repeat("x", 1025)} {
				_, err := s.store.Upload(s.ctx, request(key, []byte("data")))
				s.failsWith(err, nil, "upload", key)
				_, err = s.store.Stat(s.ctx, key)
				s.failsWith(err, nil, "stat", key)
				_, _, err = s.read(key, 0, 1, objstore.GetOptions{})
				s.failsWith(err, nil, "get", key)
				s.failsWith(s.store.Delete(s.ctx, key), nil, "delete", key)
			}
			if got := s.list("", ""); len(got) > 0 {
				s.Errorf("there are objects now: %q", got)
			}
		}},
	}
}

func writeRules() []rule {
	rules := []rule{
		{"2/an upload in progress is invisible", func(s *suite) {
			data := content(1, 2*partSize+1)
			req := request("dir/object", data)
			var once sync.Once
			req.Body = readerAt(func(p []byte, off int64) (int, error) {
				if off+int64(len(p)) == req.Size {
					once.Do(func() { s.absent(req.Key) })
				}
				return bytes.NewReader(data).ReadAt(p, off)
			})
			if _, err := s.store.Upload(s.ctx, req); err != nil {
				s.Fatalf("Upload: %v", err)
			}
			s.holds(req.Key, data)
		}},
		{"2/an upload whose body fails leaves no object", func(s *suite) {
			data, cause := content(1, 2*partSize+1), errors.New("the disk is on fire")
			for _, at := range []int64{0, partSize - 1, partSize, 2 * partSize} {
				req := request("dir/object", data)
				req.Body = (&faultySource{body: bytes.NewReader(data), fault: Fault{Kind: Cut, At: at, Err: cause}, ctx: s.ctx})
				_, err := s.store.Upload(s.ctx, req)
				s.failsWith(err, cause, "upload", req.Key)
				s.absent(req.Key)
			}
			s.put("dir/object", data)
			s.holds("dir/object", data)
		}},
		{"2/an upload whose body is too short leaves no object", func(s *suite) {
			data := content(1, partSize+10)
			for _, short := range []int{0, 1, partSize, partSize + 9} {
				req := request("object", data)
				req.Body = bytes.NewReader(data[:short])
				_, err := s.store.Upload(s.ctx, req)
				s.failsWith(err, io.ErrUnexpectedEOF, "upload", req.Key)
				s.absent(req.Key)
			}
		}},
		{"2/a request that contradicts itself is refused", func(s *suite) {
			for what, spoil := range map[string]func(*objstore.UploadRequest){
				"no body":      func(r *objstore.UploadRequest) { r.Body = nil },
				"no size":      func(r *objstore.UploadRequest) { r.Size = 0 },
				"no part size": func(r *objstore.UploadRequest) { r.PartSize = 0 },
				"no sums":      func(r *objstore.UploadRequest) { r.PartSums = nil },
				"a sum short":  func(r *objstore.UploadRequest) { r.PartSums = r.PartSums[:1] },
				"wrong length": func(r *objstore.UploadRequest) { r.PartSums = slices.Clone(r.PartSums); r.PartSums[1].Len++ },
			} {
				req := request("object", content(1, partSize+10))
				spoil(&req)
				if _, err := s.store.Upload(s.ctx, req); err == nil {
					s.Errorf("%s: accepted", what)
				}
			}
			s.absent("object")
		}},
		{"4/read after write and after delete", func(s *suite) {
			for i := range uint64(5) {
				data := content(i, 1000)
				s.put("a/b", data)
				s.holds("a/b", data)
				if got := s.list("", ""); !slices.Equal(got, []string{"a/b"}) {
					s.Errorf("List yields %q", got)
				}
				if err := s.store.Delete(s.ctx, "a/b"); err != nil {
					s.Fatalf("Delete: %v", err)
				}
				s.absent("a/b")
			}
		}},
	}
	return slices.Concat(rules, immutableRules(), proofRules(), slotRules())
}

func immutableRules() []rule {
	return []rule{
		{"5/the same bytes again succeed", func(s *suite) {
			data := content(1, partSize+1)
			first := s.put("object", data)
			if first.Existed {
				s.Errorf("the first Upload says that the object existed")
			}
			for range 2 {
				req, told := request("object", data), confirmations{}
				req.Confirmed = told.add
				ev, err := s.store.Upload(s.ctx, req)
				if err != nil {
					s.Fatalf("Upload again: %v", err)
				}
				s.checkEvidence(&req, ev)
				s.checkConfirmed(&req, &told)
				if !ev.Existed || ev.Identity != first.Identity {
					s.Errorf("Upload again: existed %v, identity %q, was %q", ev.Existed, ev.Identity, first.Identity)
				}
			}
		}},
		{"5/other bytes are a conflict", func(s *suite) {
			data := content(1, partSize+10)
			s.put("object", data)
			last := bytes.Clone(data)
			last[len(last)-1] ^= 0x80
			for what, other := range map[string][]byte{
				"last bit": last, "shorter": data[:len(data)-1], "longer": append(bytes.Clone(data), 0),
				"one part": data[:partSize], "all other": content(2, len(data)),
			} {
				_, err := s.store.Upload(s.ctx, request("object", other))
				if !errors.Is(err, objstore.ErrConflict) {
					s.Errorf("%s: %v, want %v", what, err, objstore.ErrConflict)
				}
				s.failsWith(err, objstore.ErrConflict, "upload", "object")
			}
			s.holds("object", data)
		}},
		{"5/of concurrent uploads of other bytes one wins", func(s *suite) {
			for round := range 5 {
				key := "race/" + string(rune('a'+round))
				var winner atomic.Int64
				winner.Store(-1)
				each(8, func(i int) {
					_, err := s.store.Upload(s.ctx, request(key, content(uint64(i), 5000)))
					if err != nil {
						s.failsWith(err, objstore.ErrConflict, "upload", key)
					} else if !winner.CompareAndSwap(-1, int64(i)) {
						s.Errorf("two uploads of other bytes have succeeded")
					}
				})
				if winner.Load() < 0 {
					s.Fatalf("no upload has succeeded")
				}
				s.holds(key, content(uint64(winner.Load()), 5000))
			}
		}},
		{"5/concurrent uploads of the same bytes all succeed", func(s *suite) {
			for round := range 5 {
				key, data := "race/"+string(rune('a'+round)), content(1, 5000)
				each(8, func(int) {
					req := request(key, data)
					ev, err := s.store.Upload(s.ctx, req)
					if err != nil {
						s.Errorf("Upload: %v", err)
						return
					}
					s.checkEvidence(&req, ev)
				})
				s.holds(key, data)
			}
		}},
		{"5/an object replaced has another identity", func(s *suite) {
			old := s.put("object", content(1, 100))
			if err := s.store.Delete(s.ctx, "object"); err != nil {
				s.Fatalf("Delete: %v", err)
			}
			if again := s.put("object", content(2, 100)); again.Identity == old.Identity {
				s.Errorf("identity %q before and after", old.Identity)
			}
		}},
	}
}

func proofRules() []rule {
	return []rule{
		{"6/a part sum that is wrong is corrupt and leaves no object", func(s *suite) {
			data := content(1, 2*partSize+10)
			for i := range 3 {
				req := request("object", data)
				req.PartSums[i].CRC32C ^= 1 << 31
				_, err := s.store.Upload(s.ctx, req)
				s.failsWith(err, objstore.ErrCorrupt, "upload", "object")
				s.absent("object")
			}
			s.put("object", data)
		}},
		{"6/a body that is not what was summed is corrupt and leaves no object", func(s *suite) {
			data := content(1, 2*partSize+10)
			for _, at := range []int64{0, partSize - 1, partSize, int64(len(data)) - 1} {
				// Keys of their own: a store may find the sound parts of an earlier try.
				key := "object/" + strconv.FormatInt(at, 10)
				req := request(key, data)
				req.Body = &faultySource{body: bytes.NewReader(data), fault: Fault{Kind: Flip, At: at}, ctx: s.ctx}
				_, err := s.store.Upload(s.ctx, req)
				s.failsWith(err, objstore.ErrCorrupt, "upload", key)
				s.absent(key)
			}
		}},
		{"6/objects at part borders", func(s *suite) {
			for _, n := range []int{1, 2, partSize - 1, partSize, partSize + 1, 2 * partSize, 2*partSize + 1} {
				key, data := "size/"+string(rune('a'+n%26)), content(uint64(n), n)
				req, told := request(key, data), confirmations{}
				req.Confirmed = told.add
				ev, err := s.store.Upload(s.ctx, req)
				if err != nil {
					s.Fatalf("Upload of %d bytes: %v", n, err)
				}
				s.checkEvidence(&req, ev)
				s.checkConfirmed(&req, &told)
				if stat := s.holds(key, data); stat.Identity != ev.Identity {
					s.Errorf("%d bytes: identity %q, the evidence says %q", n, stat.Identity, ev.Identity)
				}
				if err := s.store.Delete(s.ctx, key); err != nil {
					s.Fatalf("Delete: %v", err)
				}
			}
		}},
		{"6/a body that is part of a larger file", func(s *suite) {
			file := content(1, 3*partSize)
			data := file[1000 : 1000+partSize+5]
			req := request("object", data)
			req.Body = io.NewSectionReader(bytes.NewReader(file), 1000, int64(len(data)))
			if _, err := s.store.Upload(s.ctx, req); err != nil {
				s.Fatalf("Upload: %v", err)
			}
			s.holds("object", data)
		}},
		{"6/given memory is not written to", func(s *suite) {
			data := content(1, partSize+100)
			s.put("object", data)
			s.put("object", data)
			if !bytes.Equal(data, content(1, partSize+100)) {
				s.Errorf("the memory of the body has changed")
			}
		}},
	}
}

func slotRules() []rule {
	return []rule{
		{"13/slots are taken for every byte and given back", func(s *suite) {
			var taken, held atomic.Int64
			for _, size := range []int{1, partSize, 2*partSize + 1} {
				taken.Store(0)
				req := request("object/"+string(rune('a'+size%26)), content(1, size))
				req.Slots = func(_ context.Context, n int64) (func(), error) {
					taken.Add(n)
					held.Add(1)
					return func() { held.Add(-1) }, nil
				}
				if _, err := s.store.Upload(s.ctx, req); err != nil {
					s.Fatalf("Upload: %v", err)
				}
				if taken.Load() != int64(size) || held.Load() != 0 {
					s.Errorf("upload of %d bytes: slots for %d bytes taken, %d slots kept", size, taken.Load(), held.Load())
				}
				req.Key, req.Body = "broken", bytes.NewReader(nil)
				if _, err := s.store.Upload(s.ctx, req); err == nil || held.Load() != 0 {
					s.Errorf("failed upload: %v, %d slots kept", err, held.Load())
				}
			}
		}},
		{"13/an upload without a slot fails", func(s *suite) {
			cause := errors.New("no slot for you")
			req := request("object", content(1, 2*partSize))
			var held, asked atomic.Int64
			req.Slots = func(context.Context, int64) (func(), error) {
				if asked.Add(1) == 2 {
					return nil, cause
				}
				held.Add(1)
				return func() { held.Add(-1) }, nil
			}
			_, err := s.store.Upload(s.ctx, req)
			if asked.Load() < 2 {
				return // one request carries it all
			}
			s.failsWith(err, cause, "upload", "object")
			if held.Load() != 0 {
				s.Errorf("%d slots kept", held.Load())
			}
			s.absent("object")
		}},
	}
}
