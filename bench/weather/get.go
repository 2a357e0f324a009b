package weather

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// content is the bytes of an object.
type content interface {
	// read fills dst, which lies within the object, from off on. scratch is for
	// its use.
	read(dst []byte, off int64, scratch *[]byte) error
	close()
}

// found is an object to be served.
type found struct {
	content

	size     int64
	etag     string
	modified time.Time
	stored   *stored // nil: it was not written by a client
	dataEnd  int64   // of a virtual object: where its tail begins
}

// virtual is the content of an Object.
type virtual struct{ *Object }

func (v virtual) read(dst []byte, off int64, scratch *[]byte) error {
	if n := int(v.stream.size()); len(*scratch) < n {
		*scratch = make([]byte, n)
	}
	v.Object.read(dst, off, *scratch)
	return nil
}

func (virtual) close() {}

// file is a file of Options.Dir.
type file struct{ *os.File }

func (f file) read(dst []byte, off int64, _ *[]byte) error {
	_, err := f.ReadAt(dst, off)
	return err
}

func (f file) close() { _ = f.Close() } // it was only read

// virtualTime is when all virtual objects were written.
func virtualTime() time.Time { return time.UnixMilli(baseTime) }

// find looks for an object: first among what was written, then among the files,
// then among the virtual ones.
func (x *exchange) find() (*found, error) {
	if o := x.s.store.get(x.bucket + "/" + x.name); o != nil {
		return &found{content: o, size: o.size, etag: o.etag, modified: o.modified, stored: o}, nil
	}
	if x.s.o.Dir != "" && fs.ValidPath(x.name) {
		f, err := os.OpenInRoot(x.s.o.Dir, x.name)
		if err == nil {
			fi, err := f.Stat()
			if err == nil && fi.Mode().IsRegular() {
				etag := fmt.Sprintf("\"%016x%016x\"", fi.Size(), fi.ModTime().UnixNano())
				return &found{content: file{f}, size: fi.Size(), etag: etag, modified: fi.ModTime()}, nil
			}
			_ = f.Close() // it was only looked at
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, &failure{http.StatusInternalServerError, "InternalError", err.Error(), 0}
		}
	}
	if o, ok := x.s.maker.object(virtualKey(x.name)); ok {
		etag := fmt.Sprintf("\"%08x%08x%016x\"", o.loc.ObjectCRC32C, o.loc.TailCRC32C, o.loc.ObjectSize)
		return &found{content: virtual{o}, size: o.Size(), etag: etag, modified: virtualTime(), dataEnd: o.loc.TailOffset}, nil
	}
	return nil, &failure{http.StatusNotFound, "NoSuchKey", "The specified key does not exist.", 0}
}

// get serves GetObject and HeadObject.
func (x *exchange) get() error {
	o, err := x.find()
	if err != nil {
		return err
	}
	defer o.close()
	if err := x.conditions(o); err != nil {
		return err
	}
	first, n, partial, err := x.span(o)
	if err != nil {
		return err
	}
	h := x.header()
	h.Set("ETag", o.etag)
	h.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "binary/octet-stream")
	if o.stored != nil {
		o.stored.describe(h, x.r.Header.Get("X-Amz-Checksum-Mode") != "" && n == o.size)
	}
	if x.operation == opHeadObject {
		x.status(http.StatusOK, n)
		return nil
	}
	if o.stored != nil && !o.stored.readable(first, n) {
		return &failure{http.StatusNotImplemented, "NotImplemented", "The bytes of this object were not kept, but for its last ones.", 0}
	}
	if o.dataEnd > 0 {
		x.s.count.kindOfGet(first >= o.dataEnd)
	}
	return x.sendObject(o, first, n, partial)
}

// status sends the header, after the first byte's time.
func (x *exchange) status(code int, length int64) bool {
	if !x.wait() {
		return false
	}
	x.header().Set("Content-Length", strconv.FormatInt(length, 10))
	x.s.count.status(code)
	x.begun = true
	x.w.WriteHeader(code)
	return true
}

// conditions holds the request to If-Match and If-None-Match.
func (x *exchange) conditions(o *found) error {
	if want := x.r.Header.Get("If-Match"); want != "" && want != "*" && strings.Trim(want, `"`) != strings.Trim(o.etag, `"`) {
		return errPrecondition
	}
	if not := x.r.Header.Get("If-None-Match"); not == "*" || not != "" && strings.Trim(not, `"`) == strings.Trim(o.etag, `"`) {
		return &failure{http.StatusNotModified, "NotModified", "", 0}
	}
	return nil
}

// span returns which bytes are asked for.
func (x *exchange) span(o *found) (first, n int64, partial bool, err error) {
	if text := x.query.Get("partNumber"); text != "" {
		number, err := parseNumber(text)
		if err != nil || number < 1 {
			return 0, 0, false, errArgument("partNumber " + text)
		}
		if first, n, ok := o.stored.partSpan(int(number)); ok {
			x.header().Set("X-Amz-Mp-Parts-Count", strconv.Itoa(len(o.stored.parts)))
			return first, n, true, nil
		}
		if number != 1 {
			return 0, 0, false, errRange
		}
		return 0, o.size, true, nil
	}
	text, ok := strings.CutPrefix(x.r.Header.Get("Range"), "bytes=")
	if !ok {
		return 0, o.size, false, nil
	}
	from, to, ok := strings.Cut(text, "-")
	last := o.size - 1
	switch {
	case !ok || strings.Contains(text, ","):
		return 0, o.size, false, nil // not understood: ignored, as HTTP wants
	case from == "":
		n, err := parseNumber(to)
		if err != nil || n == 0 || o.size == 0 {
			return 0, 0, false, errRange
		}
		first = max(0, o.size-n)
	default:
		if first, err = parseNumber(from); err != nil || first >= o.size {
			return 0, 0, false, errRange
		}
		if to != "" {
			end, err := parseNumber(to)
			if err != nil || end < first {
				return 0, 0, false, errRange
			}
			last = min(last, end)
		}
	}
	return first, last - first + 1, true, nil
}

// parseNumber reads a decimal number without a sign.
func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 62)
	return int64(n), err
}

const (
	// writeSize is what is made and written at a time: it fits into the second
	// level of a core's cache, and system calls are few.
	writeSize = 256 << 10
	// pacedSize is that under a rate.
	pacedSize = 32 << 10
)

// buffers are what bodies are made in.
type buffers struct {
	data    []byte
	scratch []byte
}

// pool is shared: servers come and go in tests, buffers stay.
var pool = sync.Pool{New: func() any { return &buffers{data: make([]byte, writeSize)} }}

// sendObject sends n bytes from first on, as the weather is.
func (x *exchange) sendObject(o *found, first, n int64, partial bool) error {
	total, code := o.size, http.StatusOK
	if partial {
		code = http.StatusPartialContent
	}
	stallAt, flipAt, endAt, rst := int64(-1), int64(-1), int64(-1), false
	switch {
	case partial && n < total && x.strikes(Whole):
		first, n, partial, code = 0, total, false, http.StatusOK
	case partial && n < total && x.strikes(WrongRange):
		if first > 0 {
			first--
		} else {
			first++
		}
	case x.strikes(WrongETag):
		x.header().Set("ETag", `"`+strings.Repeat("0", 32)+`"`)
	case x.strikes(Encoded):
		x.header().Set("Content-Encoding", "gzip")
	case n > 1 && x.strikes(Short):
		n = max(1, min(x.fate.position(n), n-1))
	case x.strikes(Stall):
		stallAt = x.fate.position(n)
	case n > 0 && x.strikes(Flip):
		flipAt = min(x.fate.position(n), n-1)
	case x.strikes(Reset):
		endAt, rst = x.fate.position(n), true
	case x.strikes(Cut):
		endAt = x.fate.position(n)
	}
	if partial {
		x.header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, total))
	}
	if endAt == 0 {
		if x.wait() {
			x.abort(rst) // not even a header
		}
		return nil
	}
	if !x.status(code, n) {
		return nil
	}
	b := pool.Get().(*buffers)
	defer pool.Put(b)
	object := x.bucket + "/" + x.name
	for sent := int64(0); sent < n; {
		if sent == endAt {
			x.abort(rst)
		}
		if sent == stallAt {
			if f, ok := x.w.(http.Flusher); ok {
				f.Flush()
			}
			if !sleep(x.r.Context(), time.Duration(x.fate.fault.For)) {
				x.s.count.abandoned.Add(1)
				return nil
			}
			stallAt = -1
		}
		size := int64(writeSize)
		if x.schedule.ConnRate > 0 || x.schedule.TotalRate > 0 {
			size = pacedSize
		}
		size = min(size, n-sent)
		for _, border := range []int64{endAt, stallAt} {
			if border > sent {
				size = min(size, border-sent)
			}
		}
		p := b.data[:size]
		if err := o.read(p, first+sent, &b.scratch); err != nil {
			x.s.count.broken.Add(1)
			x.abort(true)
		}
		if flipAt >= sent && flipAt < sent+size {
			p[flipAt-sent] ^= 1 << x.fate.bit
		}
		if !x.throttle(&x.conn.out, &x.s.out, len(p)) {
			x.s.count.abandoned.Add(1)
			return nil
		}
		// Counted first: when the client has the bytes, it may ask for the counts.
		x.s.count.sent(object, first+sent, size)
		if _, err := x.w.Write(p); err != nil {
			x.s.count.abandoned.Add(1)
			return nil
		}
		sent += size
	}
	if n == endAt {
		x.abort(rst)
	}
	return nil
}
