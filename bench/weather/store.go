package weather

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// store is what clients have written.
type store struct {
	mu      sync.Mutex
	objects map[string]*stored // by bucket/name; guarded by mu
	uploads map[string]*upload // by id; guarded by mu
	ids     uint64             // of uploads; guarded by mu
	limit   int64              // bytes kept whole; guarded by mu
	kept    int64              // of those taken; guarded by mu
}

func (s *store) init(limit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects, s.uploads = make(map[string]*stored), make(map[string]*upload)
	s.limit, s.kept = limit, 0
}

// smallBody is kept whole whatever the limit.
const smallBody = 64 << 10

// reserve takes n bytes of what may be kept; false if there are not so many.
func (s *store) reserve(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > smallBody && s.kept+n > s.limit {
		return false
	}
	s.kept += n
	return true
}

// release gives them back.
func (s *store) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept -= n
}

// part is a part of an upload or of an object.
type part struct {
	number int
	received
	etag     string // without quotes
	modified time.Time
}

// stored is an object. It is immutable.
type stored struct {
	name      string // bucket/name
	size      int64
	etag      string // with quotes
	modified  time.Time
	meta      http.Header // x-amz-meta-…
	algorithm algorithm   // of sum
	sum       string      // as S3 shows it
	kind      string      // COMPOSITE or FULL_OBJECT
	crc32c    uint32      // of the whole
	multipart bool
	parts     []*part // one if it is not multipart
}

// get returns an object, nil if there is none.
func (s *store) get(name string) *stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name]
}

// put makes o visible. If create is true and there is one, it is errPrecondition.
func (s *store) put(o *stored, create bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putLocked(o, create)
}

func (s *store) putLocked(o *stored, create bool) error {
	old := s.objects[o.name]
	if old != nil && create {
		return errPrecondition
	}
	s.dropLocked(old)
	s.objects[o.name] = o
	return nil
}

// dropLocked gives back what an object kept.
func (s *store) dropLocked(o *stored) {
	if o == nil {
		return
	}
	for _, p := range o.parts {
		s.freeLocked(p)
	}
}

func (s *store) freeLocked(p *part) {
	if p != nil && p.whole != nil {
		s.kept -= p.size
	}
}

func (s *store) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(s.objects[name])
	delete(s.objects, name)
}

// list returns the objects of a bucket whose names begin with prefix and come
// after a name, in order.
func (s *store) list(bucket, prefix, after string) []*stored {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.objects))
	var out []*stored
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, bucket+"/")
		if ok && strings.HasPrefix(rest, prefix) && (after == "" || rest > after) {
			out = append(out, s.objects[name])
		}
	}
	s.mu.Unlock()
	return out
}

// newStored makes an object of its parts.
func (x *exchange) newStored(parts []*part, meta http.Header) *stored {
	sum := sumOfParts(parts)
	return &stored{
		name: x.bucket + "/" + x.name, size: sum.Len, crc32c: sum.CRC32C, meta: meta, parts: parts,
		modified: time.Now().Truncate(time.Second),
	}
}

// describe says in h what else is known of the object.
func (o *stored) describe(h http.Header, sums bool) {
	maps.Copy(h, o.meta)
	if sums && o.sum != "" {
		h.Set(o.algorithm.header(), o.sum)
		h.Set("X-Amz-Checksum-Type", o.kind)
	}
}

// partSpan returns where a part lies. ok is false for a part that is none, and
// for an object that has none.
func (o *stored) partSpan(number int) (first, n int64, ok bool) {
	if o == nil || number > len(o.parts) {
		return 0, 0, false
	}
	for _, p := range o.parts[:number-1] {
		first += p.size
	}
	return first, o.parts[number-1].size, true
}

// read implements content. Of an object that is not kept, only its last bytes are
// there.
func (o *stored) read(dst []byte, off int64, _ *[]byte) error {
	for _, p := range o.parts {
		if len(dst) == 0 {
			return nil
		}
		if off >= p.size {
			off -= p.size
			continue
		}
		b, from := p.whole, int64(0)
		if b == nil {
			b, from = p.tail, p.size-int64(len(p.tail))
		}
		if off < from {
			return fmt.Errorf("the bytes of %s were not kept", o.name)
		}
		n := copy(dst, b[off-from:])
		dst, off = dst[n:], 0
	}
	return nil
}

func (o *stored) close() {}

// readable reports whether read can give n bytes from off on.
func (o *stored) readable(off, n int64) bool {
	for _, p := range o.parts {
		if n <= 0 {
			break
		}
		if off < p.size {
			if p.whole == nil && off < p.size-int64(len(p.tail)) {
				return false
			}
			n -= p.size - off
		}
		off = max(0, off-p.size)
	}
	return true
}

// metaOf returns the user metadata of a request.
func metaOf(h http.Header) http.Header {
	meta := make(http.Header)
	for name, values := range h {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			meta[name] = values
		}
	}
	return meta
}
