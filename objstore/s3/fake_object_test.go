package s3_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/segtier/segtier/checksum"
)

// etagOf is what S3 gives for bytes sent in one request.
func etagOf(b []byte) string {
	sum := md5.Sum(b)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// metaOf returns the user metadata in a header.
func metaOf(h http.Header) map[string]string {
	meta := map[string]string{}
	for name := range h {
		if key, ok := strings.CutPrefix(strings.ToLower(name), "x-amz-meta-"); ok {
			meta[key] = h.Get(name)
		}
	}
	return meta
}

// checkSum verifies the checksum header of a body and returns it as it is shown.
func (f *fake) checkSum(h http.Header, body []byte) (string, error) {
	sent := h.Get("X-Amz-Checksum-Crc32c")
	switch {
	case sent != "" && f.noHeaders:
		return "", refuse(501, "NotImplemented")
	case f.blind:
		return sent, nil
	case sent != "" && sent != checksum.Base64(checksum.CRC32C(body)):
		return "", &fakeError{status: 400, code: "BadDigest", message: "The CRC32C you specified did not match the calculated checksum."}
	}
	return sent, nil
}

// condition checks If-None-Match.
func (f *fake) condition(h http.Header, key string) error {
	switch h.Get("If-None-Match") {
	case "":
		return nil
	case "*":
	default:
		return refuse(501, "NotImplemented")
	}
	if f.refuseIfNone {
		return refuse(501, "NotImplemented")
	}
	if !f.noCondition && f.objects[key] != nil {
		return refuse(412, "PreconditionFailed")
	}
	return nil
}

func (f *fake) store(key string, o *fakeObject) {
	o.modified = f.now()
	if f.noMeta {
		o.meta = nil
	}
	if f.framing {
		o.data = append([]byte("b;chunk-signature\r\n"), o.data...)
	}
	if !f.forgets {
		f.objects[key] = o
	}
}

func (f *fake) putObject(w http.ResponseWriter, req request, body []byte) error {
	crc, err := f.checkSum(req.header, body)
	if err != nil {
		return err
	}
	if err := f.condition(req.header, req.key); err != nil {
		return err
	}
	o := &fakeObject{data: body, etag: etagOf(body), meta: metaOf(req.header), crc: crc}
	if crc != "" {
		o.kind = "FULL_OBJECT"
	}
	f.store(req.key, o)
	w.Header().Set("ETag", o.etag)
	if !f.noEcho && crc != "" {
		w.Header().Set("X-Amz-Checksum-Crc32c", crc)
		w.Header().Set("X-Amz-Checksum-Type", o.kind)
	}
	return nil
}

// show writes an object's headers.
func (f *fake) show(w http.ResponseWriter, req request) (*fakeObject, error) {
	o := f.objects[req.key]
	if o == nil {
		return nil, refuse(404, "NoSuchKey")
	}
	if m := req.header.Get("If-Match"); m != "" && m != o.etag {
		return nil, refuse(412, "PreconditionFailed")
	}
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	for key, value := range o.meta {
		w.Header().Set("X-Amz-Meta-"+key, value)
	}
	return o, nil
}

func (f *fake) headObject(w http.ResponseWriter, req request, _ []byte) error {
	o, err := f.show(w, req)
	if err != nil {
		return err
	}
	if !f.noHeadCRC && o.crc != "" && req.header.Get("X-Amz-Checksum-Mode") == "ENABLED" {
		crc := o.crc
		if f.noSuffix {
			crc, _, _ = strings.Cut(crc, "-")
		}
		w.Header().Set("X-Amz-Checksum-Crc32c", crc)
		w.Header().Set("X-Amz-Checksum-Type", o.kind)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(o.data)))
	return nil
}

func (f *fake) getObject(w http.ResponseWriter, req request, _ []byte) error {
	o, err := f.show(w, req)
	if err != nil {
		return err
	}
	var from, to int64
	if n, _ := fmt.Sscanf(req.header.Get("Range"), "bytes=%d-%d", &from, &to); n != 2 || f.ignoresRange {
		_, _ = w.Write(o.data)
		return nil
	}
	size := int64(len(o.data))
	if from >= size {
		return refuse(416, "InvalidRange")
	}
	to = min(to, size-1)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, size))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(o.data[from : to+1])
	return nil
}

func (f *fake) deleteObject(w http.ResponseWriter, req request, _ []byte) error {
	delete(f.objects, req.key)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *fake) deleteObjects(w http.ResponseWriter, req request, body []byte) error {
	if f.noBatchDelete {
		return refuse(501, "NotImplemented")
	}
	if _, err := f.checkSum(req.header, body); err != nil {
		return err
	}
	if req.header.Get("X-Amz-Checksum-Crc32c") == "" {
		return refuse(400, "InvalidRequest")
	}
	var in struct {
		Object []struct{ Key string }
	}
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Object) > 1000 {
		return refuse(400, "MalformedXML")
	}
	_, _ = fmt.Fprint(w, xml.Header, "<DeleteResult>")
	for _, o := range in.Object {
		if strings.HasSuffix(o.Key, "/protected") {
			_, _ = fmt.Fprintf(w, "<Error><Key>%s</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>", escape(o.Key))
			continue
		}
		delete(f.objects, o.Key)
	}
	_, _ = fmt.Fprint(w, "</DeleteResult>")
	return nil
}

func (f *fake) listObjects(w http.ResponseWriter, req request, _ []byte) error {
	q := req.query
	after := max(q.Get("start-after"), q.Get("continuation-token"))
	page := 1000
	if f.pageSize > 0 {
		page = f.pageSize
	}
	var b bytes.Buffer
	n, last, truncated := 0, "", false
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if !f.listsAll && (!strings.HasPrefix(key, q.Get("prefix")) || key <= after) {
			continue
		}
		if n == page {
			truncated = true
			break
		}
		n++
		o := f.objects[key]
		last = key
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>%s</ETag><Size>%d</Size></Contents>",
			escape(key), o.modified.UTC().Format("2006-01-02T15:04:05.000Z"), escape(o.etag), len(o.data))
	}
	if f.stuckMarker && truncated {
		last = "logs/"
	}
	_, _ = fmt.Fprintf(w, "%s<ListBucketResult><IsTruncated>%v</IsTruncated><NextContinuationToken>%s</NextContinuationToken>%s</ListBucketResult>", xml.Header, truncated, escape(last), b.String())
	return nil
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}
