package weather

import (
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const pageSize = 1000

// number returns a parameter of a request, within 0 and most.
func (x *exchange) number(name string, most int) int {
	n, err := strconv.Atoi(x.query.Get(name))
	if err != nil || n < 0 || n > most {
		return most
	}
	return n
}

type xmlObject struct {
	Key          string
	LastModified string
	ETag         string
	Size         int64
	StorageClass string
}

type xmlPrefix struct{ Prefix string }

// list serves ListObjectsV2 and ListObjects.
func (x *exchange) list() error {
	v2 := x.operation == opListV2
	prefix, delimiter := x.query.Get("prefix"), x.query.Get("delimiter")
	after := x.query.Get("marker")
	if v2 {
		after = max(x.query.Get("start-after"), x.query.Get("continuation-token"))
	}
	escape := func(s string) string { return s }
	if x.query.Get("encoding-type") == "url" {
		escape = func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "%2F", "/") }
	}
	most := x.number("max-keys", pageSize)
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		Marker                string `xml:",omitempty"`
		MaxKeys               int
		KeyCount              int
		Delimiter             string `xml:",omitempty"`
		EncodingType          string `xml:",omitempty"`
		IsTruncated           bool
		NextMarker            string `xml:",omitempty"`
		NextContinuationToken string `xml:",omitempty"`
		Contents              []xmlObject
		CommonPrefixes        []xmlPrefix
	}
	out.Name, out.Prefix, out.MaxKeys, out.Delimiter = x.bucket, escape(prefix), most, escape(delimiter)
	out.EncodingType = x.query.Get("encoding-type")
	last := ""
	for _, o := range x.s.store.list(x.bucket, prefix, after) {
		name := strings.TrimPrefix(o.name, x.bucket+"/")
		common := ""
		if i := strings.Index(name[len(prefix):], delimiter); delimiter != "" && i >= 0 {
			common = name[:len(prefix)+i+len(delimiter)]
			if n := len(out.CommonPrefixes); n > 0 && out.CommonPrefixes[n-1].Prefix == escape(common) || strings.HasPrefix(after, common) {
				last = name
				continue
			}
		}
		if out.KeyCount == most {
			out.IsTruncated = true
			break
		}
		out.KeyCount++
		last = name
		if common != "" {
			out.CommonPrefixes = append(out.CommonPrefixes, xmlPrefix{escape(common)})
			continue
		}
		out.Contents = append(out.Contents, xmlObject{
			Key: escape(name), LastModified: o.modified.UTC().Format("2006-01-02T15:04:05.000Z"), ETag: o.etag, Size: o.size, StorageClass: "STANDARD",
		})
	}
	if out.IsTruncated {
		if v2 {
			out.NextContinuationToken = last
		} else {
			out.NextMarker = last
		}
	}
	x.answer(http.StatusOK, out)
	return nil
}

type xmlPart struct {
	PartNumber        int
	LastModified      string `xml:",omitempty"`
	ETag              string `xml:",omitempty"`
	Size              int64
	ChecksumCRC32     string `xml:",omitempty"`
	ChecksumCRC32C    string `xml:",omitempty"`
	ChecksumCRC64NVME string `xml:",omitempty"`
	ChecksumSHA1      string `xml:",omitempty"`
	ChecksumSHA256    string `xml:",omitempty"`
}

// xml returns the part with its sum by algorithm a, if it came with one.
func (p *part) xml(a algorithm) xmlPart {
	out := xmlPart{PartNumber: p.number, Size: p.size}
	if a == noAlgorithm || p.claim.algorithm != a {
		return out
	}
	sum := encode(p.sum)
	switch a {
	case algCRC32:
		out.ChecksumCRC32 = sum
	case algCRC32C:
		out.ChecksumCRC32C = sum
	case algCRC64:
		out.ChecksumCRC64NVME = sum
	case algSHA1:
		out.ChecksumSHA1 = sum
	case algSHA256:
		out.ChecksumSHA256 = sum
	case noAlgorithm:
	}
	return out
}

// listParts serves ListParts.
func (x *exchange) listParts() error {
	after, most := x.number("part-number-marker", 10000), x.number("max-parts", pageSize)
	if x.query.Get("part-number-marker") == "" {
		after = 0
	}
	var out struct {
		XMLName              xml.Name `xml:"ListPartsResult"`
		Bucket, Key          string
		UploadID             string `xml:"UploadId"`
		PartNumberMarker     int
		NextPartNumberMarker int
		MaxParts             int
		IsTruncated          bool
		ChecksumAlgorithm    string `xml:",omitempty"`
		ChecksumType         string `xml:",omitempty"`
		Part                 []xmlPart
	}
	s := &x.s.store
	s.mu.Lock()
	u, err := x.upload()
	if err == nil && u.result != nil {
		err = errNoUpload
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	out.ChecksumAlgorithm, out.ChecksumType = strings.ToUpper(string(u.algorithm)), u.kind
	for _, p := range u.sortedParts() {
		if p.number <= after {
			continue
		}
		if len(out.Part) == most {
			out.IsTruncated = true
			break
		}
		listed := p.xml(u.algorithm)
		listed.ETag, listed.LastModified = `"`+p.etag+`"`, p.modified.UTC().Format("2006-01-02T15:04:05.000Z")
		out.Part, out.NextPartNumberMarker = append(out.Part, listed), p.number
	}
	s.mu.Unlock()
	out.Bucket, out.Key, out.UploadID, out.MaxParts, out.PartNumberMarker = x.bucket, x.name, u.id, most, after
	x.answer(http.StatusOK, out)
	return nil
}

// listUploads serves ListMultipartUploads.
func (x *exchange) listUploads() error {
	type listed struct {
		Key               string
		UploadID          string `xml:"UploadId"`
		Initiated         string
		ChecksumAlgorithm string `xml:",omitempty"`
		ChecksumType      string `xml:",omitempty"`
	}
	var out struct {
		XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
		Bucket, Prefix     string
		KeyMarker          string
		NextKeyMarker      string `xml:",omitempty"`
		NextUploadIDMarker string `xml:"NextUploadIdMarker,omitempty"`
		MaxUploads         int
		IsTruncated        bool
		Upload             []listed
	}
	prefix, keyAfter, idAfter := x.query.Get("prefix"), x.query.Get("key-marker"), x.query.Get("upload-id-marker")
	most := x.number("max-uploads", pageSize)
	s := &x.s.store
	s.mu.Lock()
	for _, u := range s.uploads {
		if u.bucket != x.bucket || u.result != nil || !strings.HasPrefix(u.name, prefix) ||
			u.name < keyAfter || u.name == keyAfter && keyAfter != "" && u.id <= idAfter {
			continue
		}
		out.Upload = append(out.Upload, listed{
			Key: u.name, UploadID: u.id, Initiated: u.began.UTC().Format("2006-01-02T15:04:05.000Z"),
			ChecksumAlgorithm: strings.ToUpper(string(u.algorithm)), ChecksumType: u.kind,
		})
	}
	s.mu.Unlock()
	slices.SortFunc(out.Upload, func(a, b listed) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return strings.Compare(a.UploadID, b.UploadID)
	})
	if len(out.Upload) > most {
		out.Upload, out.IsTruncated = out.Upload[:most], true
		if most > 0 {
			out.NextKeyMarker, out.NextUploadIDMarker = out.Upload[most-1].Key, out.Upload[most-1].UploadID
		}
	}
	out.Bucket, out.Prefix, out.KeyMarker, out.MaxUploads = x.bucket, prefix, keyAfter, most
	x.answer(http.StatusOK, out)
	return nil
}

// attributes serves GetObjectAttributes. Parts are listed of COMPOSITE objects
// alone, as on AWS.
func (x *exchange) attributes() error {
	o, err := x.find()
	if err != nil {
		return err
	}
	defer o.close()
	wanted := strings.Join(x.r.Header.Values("X-Amz-Object-Attributes"), ",")
	type sums struct {
		ChecksumCRC32     string `xml:",omitempty"`
		ChecksumCRC32C    string `xml:",omitempty"`
		ChecksumCRC64NVME string `xml:",omitempty"`
		ChecksumSHA1      string `xml:",omitempty"`
		ChecksumSHA256    string `xml:",omitempty"`
		ChecksumType      string `xml:",omitempty"`
	}
	type objectParts struct {
		TotalPartsCount      int `xml:"PartsCount"`
		PartNumberMarker     int
		NextPartNumberMarker int
		MaxParts             int
		IsTruncated          bool
		Part                 []xmlPart
	}
	var out struct {
		XMLName     xml.Name `xml:"GetObjectAttributesResponse"`
		ETag        string   `xml:",omitempty"`
		Checksum    *sums
		ObjectParts *objectParts
		ObjectSize  *int64
	}
	if strings.Contains(wanted, "ETag") {
		out.ETag = strings.Trim(o.etag, `"`)
	}
	if strings.Contains(wanted, "ObjectSize") {
		out.ObjectSize = &o.size
	}
	if w := o.stored; w != nil && w.sum != "" && strings.Contains(wanted, "Checksum") {
		sum, _, _ := strings.Cut(w.sum, "-") // AWS leaves the number of parts out here
		out.Checksum = &sums{ChecksumType: w.kind}
		*map[algorithm]*string{
			algCRC32: &out.Checksum.ChecksumCRC32, algCRC32C: &out.Checksum.ChecksumCRC32C, algCRC64: &out.Checksum.ChecksumCRC64NVME,
			algSHA1: &out.Checksum.ChecksumSHA1, algSHA256: &out.Checksum.ChecksumSHA256,
		}[w.algorithm] = sum
	}
	if w := o.stored; w != nil && w.multipart && strings.Contains(wanted, "ObjectParts") {
		p := &objectParts{TotalPartsCount: len(w.parts), MaxParts: pageSize}
		if w.kind == typeComposite {
			if n, err := strconv.Atoi(x.r.Header.Get("X-Amz-Max-Parts")); err == nil && n > 0 {
				p.MaxParts = min(n, pageSize)
			}
			p.PartNumberMarker, _ = strconv.Atoi(x.r.Header.Get("X-Amz-Part-Number-Marker")) // 0 if there is none
			for _, part := range w.parts {
				if part.number <= p.PartNumberMarker {
					continue
				}
				if len(p.Part) == p.MaxParts {
					p.IsTruncated = true
					break
				}
				p.Part, p.NextPartNumberMarker = append(p.Part, part.xml(w.algorithm)), part.number
			}
		}
		out.ObjectParts = p
	}
	x.header().Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	x.answer(http.StatusOK, out)
	return nil
}

// nothing serves what has nothing to do: buckets are there.
func (x *exchange) nothing() error {
	x.drain()
	x.empty(http.StatusOK)
	return nil
}

// location serves GetBucketLocation.
func (x *exchange) location() error {
	x.answer(http.StatusOK, struct {
		XMLName xml.Name `xml:"LocationConstraint"`
	}{})
	return nil
}

// listBuckets serves ListBuckets.
func (x *exchange) listBuckets() error {
	x.answer(http.StatusOK, struct {
		XMLName xml.Name `xml:"ListAllMyBucketsResult"`
		Buckets struct{}
	}{})
	return nil
}
