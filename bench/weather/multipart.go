package weather

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// upload is an upload in parts. Guarded by the store's mutex.
type upload struct {
	id, bucket, name string
	began            time.Time
	algorithm        algorithm
	kind             string
	meta             http.Header
	parts            map[int]*part
	result           *stored // once it is complete: Complete may be repeated
}

// create serves CreateMultipartUpload.
func (x *exchange) create() error {
	h := x.r.Header
	u := &upload{
		bucket: x.bucket, name: x.name, began: time.Now(), meta: metaOf(h), parts: make(map[int]*part),
		algorithm: algorithm(strings.ToLower(h.Get("X-Amz-Checksum-Algorithm"))), kind: strings.ToUpper(h.Get("X-Amz-Checksum-Type")),
	}
	switch {
	case u.algorithm != noAlgorithm && u.algorithm.newHash() == nil:
		return errRequest("Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
	case u.kind != "" && u.algorithm == noAlgorithm:
		return errRequest("The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.")
	case u.kind == typeComposite && u.algorithm == algCRC64, u.kind == typeFull && (u.algorithm == algSHA1 || u.algorithm == algSHA256):
		return errRequest(fmt.Sprintf("The %s checksum type cannot be used with the %s checksum algorithm.", u.kind, u.algorithm))
	case u.kind != "" && u.kind != typeComposite && u.kind != typeFull:
		return errRequest("Value for x-amz-checksum-type header is invalid.")
	case u.kind == "" && u.algorithm == algCRC64:
		u.kind = typeFull
	case u.kind == "" && u.algorithm != noAlgorithm:
		u.kind = typeComposite
	}
	s := &x.s.store
	s.mu.Lock()
	s.ids++
	u.id = fmt.Sprintf("weather-%016x", s.ids)
	s.uploads[u.id] = u
	s.mu.Unlock()
	if u.algorithm != noAlgorithm {
		x.header().Set("X-Amz-Checksum-Algorithm", strings.ToUpper(string(u.algorithm)))
		x.header().Set("X-Amz-Checksum-Type", u.kind)
	}
	x.answer(http.StatusOK, struct {
		XMLName     struct{} `xml:"InitiateMultipartUploadResult"`
		Bucket, Key string
		UploadID    string `xml:"UploadId"`
	}{Bucket: x.bucket, Key: x.name, UploadID: u.id})
	return nil
}

// upload returns the upload that a request names. The store is locked.
func (x *exchange) upload() (*upload, error) {
	u := x.s.store.uploads[x.query.Get("uploadId")]
	if u == nil || u.bucket != x.bucket || u.name != x.name {
		return nil, errNoUpload
	}
	return u, nil
}

// uploadPart serves UploadPart.
func (x *exchange) uploadPart() error {
	number, err := parseNumber(x.query.Get("partNumber"))
	if err != nil || number < 1 || number > 10000 {
		return errArgument("Part number must be an integer between 1 and 10000, inclusive")
	}
	s := &x.s.store
	s.mu.Lock()
	u, err := x.upload()
	if err == nil && u.result != nil {
		err = errNoUpload
	}
	s.mu.Unlock()
	if err != nil {
		x.drain()
		return err
	}
	claim, err := claimOf(x.r.Header)
	if err == nil {
		err = u.accepts(claim)
	}
	if err != nil {
		x.drain()
		return err
	}
	body, err := x.receive()
	if err != nil {
		return err
	}
	p := &part{number: int(number), received: *body, etag: etag(body.crc32c, body.size), modified: time.Now()}
	s.mu.Lock()
	if u.result != nil || s.uploads[u.id] != u {
		s.freeLocked(p)
		s.mu.Unlock()
		return errNoUpload
	}
	s.freeLocked(u.parts[p.number])
	u.parts[p.number] = p
	s.mu.Unlock()
	return x.done(func() {
		x.echo(p, body.claim)
		x.empty(http.StatusOK)
	})
}

// accepts reports why a part with this checksum is none of u.
func (u *upload) accepts(c claim) error {
	if c.algorithm == u.algorithm || c.algorithm == noAlgorithm && u.kind != typeComposite {
		return nil
	}
	name := func(a algorithm) string {
		if a == noAlgorithm {
			return "null"
		}
		return string(a)
	}
	return errRequest(fmt.Sprintf("Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s", name(u.algorithm), name(c.algorithm)))
}

// completePart is a part as Complete names it.
type completePart struct {
	PartNumber        int
	ETag              string
	ChecksumCRC32     string
	ChecksumCRC32C    string
	ChecksumCRC64NVME string
	ChecksumSHA1      string
	ChecksumSHA256    string
}

func (p *completePart) checksum(a algorithm) string {
	switch a {
	case algCRC32:
		return p.ChecksumCRC32
	case algCRC32C:
		return p.ChecksumCRC32C
	case algCRC64:
		return p.ChecksumCRC64NVME
	case algSHA1:
		return p.ChecksumSHA1
	case algSHA256:
		return p.ChecksumSHA256
	default:
		return ""
	}
}

// completeResult is what Complete answers.
type completeResult struct {
	XMLName           struct{} `xml:"CompleteMultipartUploadResult"`
	Location          string
	Bucket, Key, ETag string
	ChecksumCRC32     string `xml:",omitempty"`
	ChecksumCRC32C    string `xml:",omitempty"`
	ChecksumCRC64NVME string `xml:",omitempty"`
	ChecksumSHA1      string `xml:",omitempty"`
	ChecksumSHA256    string `xml:",omitempty"`
	ChecksumType      string `xml:",omitempty"`
}

// complete serves CompleteMultipartUpload.
func (x *exchange) complete() error {
	var in struct{ Part []completePart }
	if err := x.document(&in); err != nil {
		return err
	}
	create, err := x.createOnly()
	if err != nil {
		return err
	}
	if x.strikes(ErrorIn200) {
		x.answer(http.StatusOK, xmlError{Code: "InternalError", Message: "We encountered an internal error. Please try again.", Resource: x.r.URL.Path})
		return nil
	}
	s := &x.s.store
	s.mu.Lock()
	o, err := x.seal(in.Part, create)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return x.done(func() {
		out := completeResult{Location: x.r.URL.Path, Bucket: x.bucket, Key: x.name, ETag: o.etag, ChecksumType: o.kind}
		*map[algorithm]*string{
			algCRC32: &out.ChecksumCRC32, algCRC32C: &out.ChecksumCRC32C, algCRC64: &out.ChecksumCRC64NVME,
			algSHA1: &out.ChecksumSHA1, algSHA256: &out.ChecksumSHA256, noAlgorithm: new(string),
		}[o.algorithm] = o.sum
		x.answer(http.StatusOK, out)
	})
}

// seal makes the object of its parts. The store is locked.
func (x *exchange) seal(named []completePart, create bool) (*stored, error) {
	u, err := x.upload()
	if err != nil {
		return nil, err
	}
	if u.result != nil {
		return u.result, nil // as AWS: Complete may be repeated
	}
	parts, err := u.choose(named, x.s.o.MinPartBytes)
	if err != nil {
		return nil, err
	}
	o := x.newStored(parts, u.meta)
	o.multipart, o.algorithm, o.kind = true, u.algorithm, u.kind
	o.etag = fmt.Sprintf("\"%s-%d\"", etag(o.crc32c, o.size), len(parts))
	if err := x.objectSum(o); err != nil {
		return nil, err
	}
	if text := x.r.Header.Get("X-Amz-Mp-Object-Size"); text != "" && text != strconv.FormatInt(o.size, 10) {
		return nil, errRequest("The provided 'x-amz-mp-object-size' header value does not match what was computed.")
	}
	s := &x.s.store
	if err := s.putLocked(o, create); err != nil {
		return nil, err
	}
	for number, p := range u.parts {
		if number > len(parts) || parts[number-1] != p {
			s.freeLocked(p) // sent, and not wanted
		}
	}
	keepLast(parts)
	u.result, u.parts = o, nil
	return o, nil
}

// choose returns the parts that are named, by S3's rules.
func (u *upload) choose(named []completePart, minBytes int64) ([]*part, error) {
	if len(named) == 0 {
		return nil, errXML
	}
	parts := make([]*part, len(named))
	for i, n := range named {
		switch {
		case i > 0 && n.PartNumber <= named[i-1].PartNumber:
			return nil, &failure{http.StatusBadRequest, "InvalidPartOrder", "The list of parts was not in ascending order. Parts must be ordered by part number.", 0}
		case u.algorithm != noAlgorithm && n.PartNumber != i+1:
			return nil, &failure{http.StatusBadRequest, "InvalidPartOrder", "Part numbers must be consecutive and begin with 1 if a checksum algorithm was named.", 0}
		}
		p := u.parts[n.PartNumber]
		sum := n.checksum(u.algorithm)
		switch {
		case p == nil, strings.Trim(n.ETag, `"`) != p.etag, sum != "" && sum != encode(p.sum):
			return nil, &failure{http.StatusBadRequest, "InvalidPart", fmt.Sprintf("One or more of the specified parts could not be found. The part may not have been uploaded, or the specified entity tag may not match the part's entity tag: %d", n.PartNumber), 0}
		case sum == "" && u.kind == typeComposite:
			return nil, errRequest(fmt.Sprintf("The upload was created using a %s checksum. The complete request must include the checksum for each part. It was missing for part %d in the request.", u.algorithm, n.PartNumber))
		case i < len(named)-1 && p.size < minBytes:
			return nil, &failure{http.StatusBadRequest, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size", 0}
		}
		parts[i] = p
	}
	return parts, nil
}

// objectSum gives the object its sum, and holds the request to it.
func (x *exchange) objectSum(o *stored) error {
	switch o.kind {
	case typeComposite:
		o.sum = fmt.Sprintf("%s-%d", encode(o.algorithm.composite(o.parts)), len(o.parts))
	case typeFull:
		for _, p := range o.parts {
			if p.claim.algorithm != o.algorithm {
				o.algorithm, o.kind = noAlgorithm, "" // a part without one
				return nil
			}
		}
		sum, _ := o.algorithm.full(o.parts)
		o.sum = encode(sum)
	}
	claim, err := claimOf(x.r.Header)
	if err != nil && !strings.HasSuffix(claim.value, "-"+strconv.Itoa(len(o.parts))) {
		return err
	}
	kind := x.r.Header.Get("X-Amz-Checksum-Type")
	if kind != "" && !strings.EqualFold(kind, o.kind) {
		return errRequest("The checksum type does not match that of the upload.")
	}
	if o.kind == typeComposite && claim.value != "" && !strings.Contains(claim.value, "-") {
		claim.value += fmt.Sprintf("-%d", len(o.parts)) // may be left out, as minio-go does
	}
	if claim.algorithm != noAlgorithm && (claim.algorithm != o.algorithm || claim.value != o.sum ||
		o.kind == typeFull && kind == "") {
		return errDigest("The " + string(claim.algorithm) + " you specified did not match the calculated checksum.")
	}
	return nil
}

// keepLast lets go of all but the last bytes of the object, where its parts are
// not kept whole.
func keepLast(parts []*part) {
	left := int64(sinkTail)
	for _, p := range slices.Backward(parts) {
		if p.whole == nil && int64(len(p.tail)) > left {
			p.tail = slices.Clone(p.tail[int64(len(p.tail))-left:])
		}
		left = max(0, left-p.size)
	}
}

// abortUpload serves AbortMultipartUpload.
func (x *exchange) abortUpload() error {
	s := &x.s.store
	s.mu.Lock()
	u, err := x.upload()
	if err == nil && u.result != nil {
		err = errNoUpload
	}
	if err == nil {
		for _, p := range u.parts {
			s.freeLocked(p)
		}
		delete(s.uploads, u.id)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return x.done(func() { x.empty(http.StatusNoContent) })
}

// sortedParts returns the parts of an upload. The store is locked.
func (u *upload) sortedParts() []*part {
	return slices.SortedFunc(maps.Values(u.parts), func(a, b *part) int { return cmp.Compare(a.number, b.number) })
}
