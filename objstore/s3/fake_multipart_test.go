package s3_test

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"encoding/base64"
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

func (f *fake) create(w http.ResponseWriter, req request, _ []byte) error {
	if req.header.Get("X-Amz-Checksum-Type") != "" && req.header.Get("X-Amz-Checksum-Algorithm") == "" {
		return refuse(400, "InvalidRequest")
	}
	if req.header.Get("X-Amz-Checksum-Algorithm") != "CRC32C" {
		return refuse(400, "InvalidRequest") // nothing here creates any other
	}
	f.seq++
	id := fmt.Sprintf("upload-%04d", f.seq)
	f.uploads[id] = &fakeUpload{key: req.key, meta: metaOf(req.header), parts: map[int]fakePart{}, started: f.now(), seq: f.seq}
	_, _ = fmt.Fprintf(w, "%s<InitiateMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>", xml.Header, bucket, escape(req.key), id)
	return nil
}

func (f *fake) upload(req request) (*fakeUpload, string, error) {
	id := req.query.Get("uploadId")
	u := f.uploads[id]
	if u == nil || u.key != req.key {
		return nil, id, refuse(404, "NoSuchUpload")
	}
	return u, id, nil
}

func (f *fake) uploadPart(w http.ResponseWriter, req request, body []byte) error {
	u, _, err := f.upload(req)
	if err != nil {
		return err
	}
	if req.part < 1 || req.part > 10_000 {
		return refuse(400, "InvalidArgument")
	}
	crc, err := f.checkSum(req.header, body)
	if err != nil {
		return err
	}
	if crc == "" && !f.blind {
		return refuse(400, "InvalidRequest") // the upload was created for CRC32C
	}
	if old, again := u.parts[req.part]; again {
		u.again = append(u.again, old)
	}
	p := fakePart{number: req.part, data: body, etag: etagOf(body), crc: crc}
	if u.ghost {
		p.crc = ""
	}
	u.parts[req.part] = p
	w.Header().Set("ETag", p.etag)
	if !f.noEcho {
		w.Header().Set("X-Amz-Checksum-Crc32c", crc)
	}
	return nil
}

func (f *fake) complete(w http.ResponseWriter, req request, body []byte) error {
	u, id, err := f.upload(req)
	if err != nil && f.done[id] == req.key && !f.noReplay {
		if f.replay412 && req.header.Get("If-None-Match") != "" {
			return refuse(412, "PreconditionFailed")
		}
		if o := f.objects[req.key]; o != nil {
			f.completed(w, req, o)
			return nil
		}
	}
	if err == nil && u.ghost {
		return refuse(500, "InternalError")
	}
	if err != nil {
		return err
	}
	var in struct {
		Part []struct {
			PartNumber           int
			ETag, ChecksumCRC32C string
		}
	}
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Part) == 0 {
		return refuse(400, "MalformedXML")
	}
	o := &fakeObject{meta: u.meta}
	var sums, digests []byte
	for i, p := range in.Part {
		have, ok := u.parts[p.PartNumber]
		switch {
		case i > 0 && p.PartNumber <= in.Part[i-1].PartNumber:
			return refuse(400, "InvalidPartOrder")
		case p.PartNumber != i+1 && !f.blind:
			return refuse(400, "InvalidRequest") // with checksums, 1 to N
		case !ok || p.ETag != have.etag:
			return refuse(400, "InvalidPart")
		case p.ChecksumCRC32C == "" && !f.blind:
			return refuse(400, "InvalidRequest")
		case p.ChecksumCRC32C != have.crc && !f.blind:
			return refuse(400, "InvalidPart")
		case i < len(in.Part)-1 && len(have.data) < 5<<20:
			return refuse(400, "EntityTooSmall")
		}
		o.data = append(o.data, have.data...)
		o.parts = append(o.parts, have)
		sum, _ := base64.StdEncoding.DecodeString(have.crc)
		sums = append(sums, sum...)
		digest := md5.Sum(have.data)
		digests = append(digests, digest[:]...)
	}
	if size := req.header.Get("X-Amz-Mp-Object-Size"); !f.noSize && size != strconv.Itoa(len(o.data)) {
		return refuse(400, "InvalidRequest") // also if it is missing: nothing here leaves it out
	}
	if err := f.condition(req.header, req.key); err != nil {
		return err
	}
	if f.misassembles && len(o.parts) > 1 {
		slices.Reverse(o.parts)
		o.data, sums = nil, nil
		for _, p := range o.parts {
			o.data = append(o.data, p.data...)
			sum, _ := base64.StdEncoding.DecodeString(p.crc)
			sums = append(sums, sum...)
		}
	}
	o.kind, o.crc = "COMPOSITE", checksum.Base64(checksum.CRC32C(sums))+"-"+strconv.Itoa(len(o.parts))
	etag := md5.Sum(digests)
	o.etag = `"` + hex.EncodeToString(etag[:]) + "-" + strconv.Itoa(len(o.parts)) + `"`
	delete(f.uploads, id)
	f.done[id] = req.key
	f.store(req.key, o)
	f.completed(w, req, o)
	return nil
}

func (f *fake) completed(w http.ResponseWriter, req request, o *fakeObject) {
	crc := "<ChecksumCRC32C>" + o.crc + "</ChecksumCRC32C><ChecksumType>COMPOSITE</ChecksumType>"
	if f.noEcho {
		crc = ""
	}
	_, _ = fmt.Fprintf(w, "%s<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><ETag>%s</ETag>%s</CompleteMultipartUploadResult>", xml.Header, bucket, escape(req.key), escape(o.etag), crc)
}

func (f *fake) abort(w http.ResponseWriter, req request, _ []byte) error {
	_, id, err := f.upload(req)
	if err != nil {
		return err
	}
	delete(f.uploads, id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *fake) listParts(w http.ResponseWriter, req request, _ []byte) error {
	u, _, err := f.upload(req)
	if err != nil {
		return err
	}
	after, _ := strconv.Atoi(req.query.Get("part-number-marker"))
	page := 1000
	if f.pageSize > 0 {
		page = f.pageSize
	}
	parts := slices.Collect(maps.Values(u.parts))
	if f.listTwice {
		parts = append(parts, u.again...)
	}
	slices.SortStableFunc(parts, func(a, b fakePart) int { return cmp.Compare(a.number, b.number) })
	var b bytes.Buffer
	n, last, truncated := 0, 0, false
	for _, p := range parts {
		if p.number <= after {
			continue
		}
		if n >= page && p.number != last {
			truncated = true
			break
		}
		n++
		last = p.number
		crc := ""
		if f.listsOther && p.number == 2 {
			p.crc = "AAAAAA=="
		}
		if !f.noListCRC {
			crc = "<ChecksumCRC32C>" + p.crc + "</ChecksumCRC32C>"
		}
		fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%d</Size>%s</Part>", p.number, escape(p.etag), len(p.data), crc)
	}
	if f.stuckMarker {
		last, truncated = 0, true
	}
	_, _ = fmt.Fprintf(w, "%s<ListPartsResult><IsTruncated>%v</IsTruncated><NextPartNumberMarker>%d</NextPartNumberMarker>%s</ListPartsResult>", xml.Header, truncated, last, b.String())
	return nil
}

func (f *fake) listUploads(w http.ResponseWriter, req request, _ []byte) error {
	if f.noListing {
		return refuse(501, "NotImplemented")
	}
	type entry struct {
		id string
		*fakeUpload
	}
	var all []entry
	for id, u := range f.uploads {
		if strings.HasPrefix(u.key, req.query.Get("prefix")) {
			all = append(all, entry{id, u})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq)) })
	if key, id := req.query.Get("key-marker"), req.query.Get("upload-id-marker"); key != "" && !f.stuckMarker {
		at := slices.IndexFunc(all, func(e entry) bool { return e.key > key || e.key == key && e.id > id })
		if at < 0 {
			at = len(all)
		}
		all = all[at:]
	}
	page := 1000
	if f.pageSize > 0 {
		page = f.pageSize
	}
	truncated := len(all) > page
	var b bytes.Buffer
	var last entry
	for _, u := range all[:min(page, len(all))] {
		last = u
		fmt.Fprintf(&b, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", escape(u.key), u.id, u.started.UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	marker := ""
	if truncated {
		marker = fmt.Sprintf("<NextKeyMarker>%s</NextKeyMarker><NextUploadIdMarker>%s</NextUploadIdMarker>", escape(last.key), last.id)
	}
	_, _ = fmt.Fprintf(w, "%s<ListMultipartUploadsResult><IsTruncated>%v</IsTruncated>%s%s</ListMultipartUploadsResult>", xml.Header, truncated, marker, b.String())
	return nil
}

func (f *fake) attributes(w http.ResponseWriter, req request, _ []byte) error {
	o := f.objects[req.key]
	if o == nil {
		return refuse(404, "NoSuchKey")
	}
	parts := ""
	if o.kind == "COMPOSITE" && !f.noAttributes {
		after, _ := strconv.Atoi(req.header.Get("X-Amz-Part-Number-Marker"))
		page := 1000
		if f.pageSize > 0 {
			page = f.pageSize
		}
		list, last := "", after
		for _, p := range o.parts[after:min(after+page, len(o.parts))] {
			crc := p.crc
			if f.suffix {
				crc += "-1"
			}
			list += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><Size>%d</Size><ChecksumCRC32C>%s</ChecksumCRC32C></Part>", p.number, len(p.data), crc)
			last = p.number
		}
		parts = fmt.Sprintf("<ObjectParts><PartsCount>%d</PartsCount><IsTruncated>%v</IsTruncated><NextPartNumberMarker>%d</NextPartNumberMarker>%s</ObjectParts>", len(o.parts), last < len(o.parts), last, list)
	}
	_, _ = fmt.Fprintf(w, "%s<GetObjectAttributesResponse><ETag>%s</ETag>%s</GetObjectAttributesResponse>", xml.Header, strings.Trim(o.etag, `"`), parts)
	return nil
}
