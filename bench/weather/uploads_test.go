package weather

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
)

func crc(b []byte) string { return checksum.Base64(checksum.CRC32C(b)) }

func TestPutObject(t *testing.T) {
	p := newPlace(t, Options{})
	body := bytes.Repeat([]byte("segment "), 1000)
	other := append([]byte("x"), body[1:]...)
	md := md5.Sum(body)
	sha := sha256.Sum256(body)
	nvme := binary.BigEndian.AppendUint64(nil, crc64.Checksum(body, crc64.MakeTable(polyCRC64)))
	sums := []string{
		"X-Amz-Checksum-Crc32c: " + crc(body), "X-Amz-Checksum-Sha256: " + base64.StdEncoding.EncodeToString(sha[:]),
		"X-Amz-Checksum-Crc64nvme: " + base64.StdEncoding.EncodeToString(nvme),
		"Content-Md5: " + base64.StdEncoding.EncodeToString(md[:]), "X-Amz-Content-Sha256: " + hex.EncodeToString(sha[:]),
	}
	for _, header := range sums {
		name, value, _ := strings.Cut(header, ": ")
		if r := p.want(400, "PUT", p.url+"x", other, header); r.code() != "BadDigest" && r.code() != "XAmzContentSHA256Mismatch" {
			t.Errorf("%s: %s", name, r.body)
		}
		p.want(404, "GET", p.url+"x", nil) // no effect
		r := p.want(200, "PUT", p.url+"x", body, header)
		if strings.HasPrefix(name, "X-Amz-Checksum") && r.header.Get(name) != value {
			t.Errorf("%s is echoed as %q", name, r.header.Get(name))
		}
		got := p.want(200, "GET", p.url+"x", nil, "X-Amz-Checksum-Mode: ENABLED")
		if !bytes.Equal(got.body, body) || got.header.Get("ETag") != r.header.Get("ETag") {
			t.Errorf("%s: other bytes", name)
		}
		if strings.HasPrefix(name, "X-Amz-Checksum") && got.header.Get(name) != value {
			t.Errorf("%s is kept as %q", name, got.header.Get(name))
		}
		p.want(204, "DELETE", p.url+"x", nil)
		p.want(204, "DELETE", p.url+"x", nil)
	}
	p.want(400, "PUT", p.url+"x", body, "X-Amz-Checksum-Crc32c: AAAA")
	p.want(400, "PUT", p.url+"x", body, sums[0], sums[1])
	p.want(200, "PUT", p.url+"x", body, "If-None-Match: *", "X-Amz-Meta-Token: t")
	if r := p.want(412, "PUT", p.url+"x", other, "If-None-Match: *"); r.code() != "PreconditionFailed" {
		t.Errorf("%s", r.body)
	}
	p.want(501, "PUT", p.url+"x", other, "If-None-Match: abc")
	if r := p.want(200, "GET", p.url+"x", nil); !bytes.Equal(r.body, body) || r.header.Get("X-Amz-Meta-Token") != "t" {
		t.Error("a refused write had an effect")
	}
	if st := p.Stats(); st.Requests["PutObject"] == 0 || st.BytesIn == 0 {
		t.Errorf("%+v", st)
	}
}

// chunked encodes a body in aws-chunked, with a trailer.
func chunked(body []byte, size int, trailer string) []byte {
	var b bytes.Buffer
	for len(body) > 0 {
		n := min(size, len(body))
		fmt.Fprintf(&b, "%x;chunk-signature=%064x\r\n%s\r\n", n, n, body[:n])
		body = body[n:]
	}
	b.WriteString("0\r\n" + trailer + "\r\n\r\n")
	return b.Bytes()
}

func TestChunkedBodies(t *testing.T) {
	p := newPlace(t, Options{})
	body := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	headers := []string{
		"X-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER", "Content-Encoding: aws-chunked",
		fmt.Sprintf("X-Amz-Decoded-Content-Length: %d", len(body)), "X-Amz-Trailer: x-amz-checksum-crc32c",
	}
	for _, size := range []int{1, 7, 64 << 10, len(body)} {
		b := body
		if size < 10 {
			b = body[:1000]
		}
		headers[2] = fmt.Sprintf("X-Amz-Decoded-Content-Length: %d", len(b))
		p.want(200, "PUT", p.url+"x", chunked(b, size, "x-amz-checksum-crc32c:"+crc(b)), headers...)
		if r := p.want(200, "GET", p.url+"x", nil); !bytes.Equal(r.body, b) {
			t.Errorf("chunks of %d: other bytes", size)
		}
	}
	headers[2] = fmt.Sprintf("X-Amz-Decoded-Content-Length: %d", len(body))
	for name, b := range map[string][]byte{
		"wrong sum":   chunked(body, 1000, "x-amz-checksum-crc32c:"+crc(body[1:])),
		"no trailer":  chunked(body, 1000, ""),
		"too short":   chunked(body[1:], 1000, "x-amz-checksum-crc32c:"+crc(body[1:])),
		"too long":    chunked(append(body, 1), 1000, ""),
		"no chunks":   body,
		"cut":         chunked(body, 1000, "")[:5000],
		"no line end": bytes.Repeat([]byte("5"), 300<<10),
	} {
		if r := p.ask("PUT", p.url+"y", b, headers...); r.err == nil && r.status != 400 {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		p.want(404, "GET", p.url+"y", nil)
	}
}

func FuzzChunkReader(f *testing.F) {
	f.Add(chunked([]byte("hello, world"), 5, "x-amz-checksum-crc32c:AAAAAA=="))
	f.Add([]byte("ffffffffff\r\n"))
	f.Add([]byte("0\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newChunkReader(bytes.NewReader(b))
		n, err := io.Copy(io.Discard, c)
		if n > int64(len(b)) || err == nil && !c.ended {
			t.Fatalf("%d bytes of %d, %v", n, len(b), err)
		}
	})
}

// parts is a multipart upload by hand.
type parts struct {
	*place

	url, id string
	sums    bool
	bodies  [][]byte
	etags   []string
}

func (p *place) begin(name string, headers ...string) *parts {
	p.t.Helper()
	r := p.want(200, "POST", p.url+name+"?uploads", nil, headers...)
	_, rest, _ := strings.Cut(string(r.body), "<UploadId>")
	id, _, ok := strings.Cut(rest, "</UploadId>")
	if !ok {
		p.t.Fatalf("%s", r.body)
	}
	return &parts{place: p, url: p.url + name, id: id, sums: len(headers) > 0}
}

func (u *parts) part(n int, b []byte, headers ...string) reply {
	u.t.Helper()
	if u.sums && len(headers) == 0 {
		headers = []string{"X-Amz-Checksum-Crc32c: " + crc(b)}
	}
	return u.ask("PUT", fmt.Sprintf("%s?partNumber=%d&uploadId=%s", u.url, n, u.id), b, headers...)
}

// send sends part after part.
func (u *parts) send(bodies ...[]byte) {
	u.t.Helper()
	for _, b := range bodies {
		r := u.part(len(u.bodies)+1, b)
		if r.status != 200 {
			u.t.Fatalf("%d %s", r.status, r.body)
		}
		u.bodies, u.etags = append(u.bodies, b), append(u.etags, r.header.Get("ETag"))
	}
}

// document is what Complete sends; change may spoil it.
func (u *parts) document(change func(number *int, etag, sum *string)) []byte {
	var b bytes.Buffer
	b.WriteString("<CompleteMultipartUpload>")
	for i := range u.bodies {
		number, etag, sum := i+1, u.etags[i], ""
		if u.sums {
			sum = crc(u.bodies[i])
		}
		if change != nil {
			change(&number, &etag, &sum)
		}
		fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag>", number, etag)
		if sum != "" {
			fmt.Fprintf(&b, "<ChecksumCRC32C>%s</ChecksumCRC32C>", sum)
		}
		b.WriteString("</Part>")
	}
	b.WriteString("</CompleteMultipartUpload>")
	return b.Bytes()
}

func (u *parts) complete(document []byte, headers ...string) reply {
	u.t.Helper()
	return u.ask("POST", u.url+"?uploadId="+u.id, document, headers...)
}

func TestMultipartRules(t *testing.T) {
	p := newPlace(t, Options{MinPartBytes: 1000})
	a, b, c := bytes.Repeat([]byte("a"), 2000), bytes.Repeat([]byte("b"), 3000), []byte("c")
	composite := func(bodies ...[]byte) string {
		var sums []byte
		for _, b := range bodies {
			sums = binary.BigEndian.AppendUint32(sums, checksum.CRC32C(b))
		}
		return fmt.Sprintf("%s-%d", crc(sums), len(bodies))
	}
	refused := func(r reply, code string) {
		t.Helper()
		if r.status != 400 || r.code() != code {
			t.Errorf("%d %s, want %s", r.status, r.body, code)
		}
	}
	u := p.begin("x", "X-Amz-Checksum-Algorithm: CRC32C", "X-Amz-Meta-Token: t")
	refused(u.part(1, a, "X-Amz-Checksum-Crc32c: "+crc(b)), "BadDigest")
	refused(u.part(1, a, "X-Amz-Checksum-Crc32: "+crc(b)), "InvalidRequest")
	refused(u.part(1, a, "X-None: 1"), "InvalidRequest")
	refused(u.part(0, a), "InvalidArgument")
	refused(u.part(10001, a), "InvalidArgument")
	u.send(a, b, c)
	refused(u.complete(u.document(func(n *int, _, _ *string) { *n = 4 - *n })), "InvalidPartOrder")
	refused(u.complete(u.document(func(n *int, _, _ *string) { *n++ })), "InvalidPartOrder")
	refused(u.complete(u.document(func(n *int, etag, _ *string) {
		if *n == 2 {
			*etag = u.etags[0]
		}
	})), "InvalidPart")
	refused(u.complete(u.document(func(n *int, _, sum *string) {
		if *n == 2 {
			*sum = crc(a)
		}
	})), "InvalidPart")
	refused(u.complete(u.document(func(n *int, _, sum *string) {
		if *n == 2 {
			*sum = ""
		}
	})), "InvalidRequest")
	refused(u.complete(u.document(nil), "X-Amz-Mp-Object-Size: 5000"), "InvalidRequest")
	refused(u.complete(u.document(nil), "X-Amz-Checksum-Crc32c: "+composite(a, c, b)), "BadDigest")
	refused(u.complete([]byte("<Complete")), "MalformedXML")
	refused(u.complete([]byte("<CompleteMultipartUpload/>")), "MalformedXML")
	p.want(404, "GET", u.url, nil)

	ok := u.complete(u.document(nil), "X-Amz-Mp-Object-Size: 5001", "X-Amz-Checksum-Crc32c: "+composite(a, b, c), "If-None-Match: *")
	if ok.status != 200 || !strings.Contains(string(ok.body), "<ChecksumCRC32C>"+composite(a, b, c)) || !strings.Contains(string(ok.body), "COMPOSITE") {
		t.Fatalf("%d %s", ok.status, ok.body)
	}
	if again := u.complete(u.document(nil), "If-None-Match: *"); again.status != 200 {
		t.Errorf("repeated: %d %s", again.status, again.body)
	}
	// The number of parts may be left out, as minio-go does.
	v := p.begin("y", "X-Amz-Checksum-Algorithm: CRC32C")
	v.send(a, b, c)
	bare := "X-Amz-Checksum-Crc32c: " + strings.TrimSuffix(composite(a, b, c), "-3")
	refused(v.complete(v.document(nil), "X-Amz-Checksum-Crc32c: "+crc(a), "X-Amz-Checksum-Type: COMPOSITE"), "BadDigest")
	refused(v.complete(v.document(nil), "X-Amz-Checksum-Crc32c: "+crc(slices.Concat(a, b, c))), "BadDigest") // of the whole object
	if r := v.complete(v.document(nil), bare); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	r := p.want(200, "GET", u.url, nil, "X-Amz-Checksum-Mode: ENABLED")
	if !bytes.Equal(r.body, bytes.Join([][]byte{a, b, c}, nil)) || r.header.Get("X-Amz-Checksum-Crc32c") != composite(a, b, c) || r.header.Get("X-Amz-Meta-Token") != "t" {
		t.Errorf("%v", r.header)
	}
	if r := p.want(206, "GET", u.url+"?partNumber=2", nil); !bytes.Equal(r.body, b) || r.header.Get("X-Amz-Mp-Parts-Count") != "3" {
		t.Error("part 2 is another")
	}
	if r := p.want(200, "GET", u.url+"?attributes", nil, "X-Amz-Object-Attributes: ETag,Checksum,ObjectParts,ObjectSize"); strings.Count(string(r.body), "<Part>") != 3 || !strings.Contains(string(r.body), crc(b)) {
		t.Errorf("%s", r.body)
	}
	p.want(404, "DELETE", u.url+"?uploadId="+u.id, nil)

	second := p.begin("x", "X-Amz-Checksum-Algorithm: CRC32C")
	second.send(a)
	if r := second.complete(second.document(nil), "If-None-Match: *"); r.status != 412 {
		t.Errorf("over an object that is there: %d", r.status)
	}
	if r := p.want(200, "GET", p.HTTP+"/bucket?uploads", nil); strings.Count(string(r.body), "<UploadId>") != 1 {
		t.Errorf("%s", r.body)
	}
	p.want(204, "DELETE", u.url+"?uploadId="+second.id, nil)
	p.want(404, "DELETE", u.url+"?uploadId="+second.id, nil)
	if r := second.part(2, b); r.code() != "NoSuchUpload" {
		t.Errorf("%s", r.body)
	}

	small := p.begin("y")
	small.send(c, a)
	refused(small.complete(small.document(nil)), "EntityTooSmall")
	unordered := p.begin("y")
	unordered.send(a, b)
	refused(unordered.complete(unordered.document(func(n *int, etag, _ *string) { *n, *etag = 3-*n, unordered.etags[2-*n] })), "InvalidPartOrder")
	refused(small.part(3, b, "X-Amz-Checksum-Crc32c: "+crc(b)), "InvalidRequest")
	for _, bad := range [][]string{
		{"X-Amz-Checksum-Algorithm: XXH"},
		{"X-Amz-Checksum-Type: COMPOSITE"},
		{"X-Amz-Checksum-Algorithm: CRC64NVME", "X-Amz-Checksum-Type: COMPOSITE"},
		{"X-Amz-Checksum-Algorithm: SHA256", "X-Amz-Checksum-Type: FULL_OBJECT"},
	} {
		refused(p.ask("POST", p.url+"z?uploads", nil, bad...), "InvalidRequest")
	}
}

// A full-object sum is put together from those of the parts.
func TestFullObjectSums(t *testing.T) {
	p := newPlace(t, Options{MinPartBytes: 1})
	u := p.begin("x", "X-Amz-Checksum-Algorithm: CRC32C", "X-Amz-Checksum-Type: FULL_OBJECT")
	bodies := [][]byte{[]byte("one "), []byte("and two "), []byte("and three")}
	all := crc(bytes.Join(bodies, nil))
	u.send(bodies...)
	if r := u.complete(u.document(nil), "X-Amz-Checksum-Crc32c: "+all); r.code() != "BadDigest" {
		t.Errorf("a value without its type: %d %s", r.status, r.body)
	}
	if r := u.complete(u.document(nil), "X-Amz-Checksum-Crc32c: "+all, "X-Amz-Checksum-Type: COMPOSITE"); r.status != 400 {
		t.Errorf("another type: %d %s", r.status, r.body)
	}
	r := u.complete(u.document(nil), "X-Amz-Checksum-Crc32c: "+all, "X-Amz-Checksum-Type: FULL_OBJECT")
	if r.status != 200 || !strings.Contains(string(r.body), all) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestCombine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
		at := rapid.IntRange(0, len(b)).Draw(t, "cut")
		for _, a := range []algorithm{algCRC32, algCRC32C, algCRC64} {
			sum := func(b []byte) []byte {
				h := a.newHash()
				_, _ = h.Write(b)
				return h.Sum(nil)
			}
			full, ok := a.full([]*part{
				{received: received{size: int64(at), sum: sum(b[:at])}},
				{received: received{size: int64(len(b) - at), sum: sum(b[at:])}},
			})
			if !ok || !bytes.Equal(full, sum(b)) {
				t.Fatalf("%s: %x, want %x", a, full, sum(b))
			}
		}
	})
}

func TestFaultsOfWrites(t *testing.T) {
	body := []byte("body")
	once := func(f Fault) *place {
		f.Share, f.Attempts = 1, 1
		return newPlace(t, Options{MinPartBytes: 1, Schedule: Schedule{Faults: []Fault{f}}})
	}
	p := once(Fault{Kind: Lost, Operation: "PutObject"})
	if r := p.ask("PUT", p.url+"x", body); !errors.Is(r.err, io.EOF) {
		t.Errorf("an answer that should be lost: %+v", r)
	}
	p.want(200, "GET", p.url+"x", nil) // it had its effect
	p = once(Fault{Kind: Lost, Operation: "DeleteObject"})
	p.want(200, "PUT", p.url+"x", body)
	_ = p.ask("DELETE", p.url+"x", nil) // net/http asks again: it is idempotent
	p.want(404, "GET", p.url+"x", nil)
	p = once(Fault{Kind: WrongEcho})
	if r := p.want(200, "PUT", p.url+"x", body, "X-Amz-Checksum-Crc32c: "+crc(body)); r.header.Get("X-Amz-Checksum-Crc32c") != "AAAAAA==" {
		t.Errorf("%v", r.header)
	}
	p = once(Fault{Kind: ErrorIn200})
	u := p.begin("x", "X-Amz-Checksum-Algorithm: CRC32C")
	u.send(body)
	if r := u.complete(u.document(nil)); r.status != 200 || r.code() != "InternalError" {
		t.Errorf("%d %s", r.status, r.body)
	}
	p.want(404, "GET", u.url, nil)
	if r := u.complete(u.document(nil)); r.status != 200 || r.code() != "" {
		t.Errorf("%d %s", r.status, r.body)
	}
	p = once(Fault{Kind: Lost, Operation: "CompleteMultipartUpload"})
	u = p.begin("x")
	u.send(body)
	if r := u.complete(u.document(nil)); r.err == nil {
		t.Errorf("%d %s", r.status, r.body)
	}
	p.want(200, "GET", u.url, nil)
	p = once(Fault{Kind: Throttle, Operation: "PutObject"})
	p.want(503, "PUT", p.url+"x", bytes.Repeat(body, 1<<20)) // and the connection lives
	p.want(200, "PUT", p.url+"x", body)
	if st := p.Stats(); st.Connections != 1 {
		t.Errorf("%d connections", st.Connections)
	}
}

func TestListings(t *testing.T) {
	p := newPlace(t, Options{})
	for _, name := range []string{"a/1", "a/2", "a/b/3", "c d"} {
		p.want(200, "PUT", p.url+strings.ReplaceAll(name, " ", "%20"), []byte(name))
	}
	keys := func(r reply) string {
		var names []string
		for _, f := range strings.Split(string(r.body), "<Key>")[1:] {
			name, _, _ := strings.Cut(f, "</Key>")
			names = append(names, name)
		}
		return strings.Join(names, " ")
	}
	for query, want := range map[string]string{
		"list-type=2":                                   "a/1 a/2 a/b/3 c d",
		"list-type=2&prefix=a/&delimiter=/":             "a/1 a/2",
		"list-type=2&start-after=a/2":                   "a/b/3 c d",
		"list-type=2&max-keys=2":                        "a/1 a/2",
		"list-type=2&max-keys=2&continuation-token=a/2": "a/b/3 c d",
		"marker=a/b/3":                                  "c d",
		"encoding-type=url&prefix=c":                    "c+d",
	} {
		r := p.want(200, "GET", p.HTTP+"/bucket?"+query, nil)
		if got := keys(r); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
		if truncated := strings.Contains(string(r.body), "<IsTruncated>true"); truncated != (query == "list-type=2&max-keys=2") {
			t.Errorf("%s: truncated is %t", query, truncated)
		}
	}
	r := p.want(200, "GET", p.HTTP+"/bucket?list-type=2&delimiter=/", nil)
	if !strings.Contains(string(r.body), "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>") || keys(r) != "c d" {
		t.Errorf("%s", r.body)
	}
	p.want(200, "POST", p.HTTP+"/bucket?delete", []byte("<Delete><Object><Key>a/1</Key></Object><Object><Key>a/2</Key></Object></Delete>"))
	if got := keys(p.want(200, "GET", p.HTTP+"/bucket?list-type=2", nil)); got != "a/b/3 c d" {
		t.Errorf("after deletion: %q", got)
	}
	p.want(200, "HEAD", p.HTTP+"/bucket", nil)
	p.want(200, "GET", p.HTTP+"/bucket?location", nil)
	p.want(200, "GET", p.HTTP+"/", nil)
	p.want(200, http.MethodPut, p.HTTP+"/bucket", nil)
}

// Memory for what is written is bounded, whatever becomes of it.
func TestKeptBytesAreGivenBack(t *testing.T) {
	p := newPlace(t, Options{KeepBytes: 1 << 20, MinPartBytes: 1})
	big := bytes.Repeat([]byte("x"), 700<<10)
	for range 4 {
		p.want(400, "PUT", p.url+"x", big, "X-Amz-Checksum-Crc32c: AAAAAA==")
		p.want(200, "PUT", p.url+"x", big) // over itself: the old one is kept until the new one is there
		u := p.begin("y")
		u.send(big[:100<<10], big[:100<<10])
		u.part(1, big[:100<<10])
		p.want(204, "DELETE", u.url+"?uploadId="+u.id, nil)
		u = p.begin("z")
		u.send(big[:100<<10], big[:100<<10])
		u.part(3, big[:100<<10]) // not wanted in the end
		if r := u.complete(u.document(nil)); r.status != 200 {
			t.Fatalf("%s", r.body)
		}
		for _, name := range []string{"x", "z"} {
			p.want(204, "DELETE", p.url+name, nil)
		}
		if p.store.kept != 0 {
			t.Fatalf("%d bytes are kept of nothing", p.store.kept)
		}
	}
	p.want(200, "PUT", p.url+"x", bytes.Repeat(big, 2))
	p.want(501, "GET", p.url+"x", nil)
	if r := p.want(206, "GET", p.url+"x", nil, "Range: bytes=-1000"); string(r.body) != strings.Repeat("x", 1000) {
		t.Error("the last bytes are others")
	}
}
