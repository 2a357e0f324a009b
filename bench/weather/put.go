package weather

import (
	"net/http"
	"strings"
)

const (
	typeComposite = "COMPOSITE"
	typeFull      = "FULL_OBJECT"
)

// putObject serves PutObject.
func (x *exchange) putObject() error {
	if x.r.Header.Get("X-Amz-Copy-Source") != "" {
		return &failure{http.StatusNotImplemented, "NotImplemented", "CopyObject", 0}
	}
	create, err := x.createOnly()
	if err != nil {
		return err
	}
	body, err := x.receive()
	if err != nil {
		return err
	}
	p := &part{number: 1, received: *body, etag: etag(body.crc32c, body.size)}
	o := x.newStored([]*part{p}, metaOf(x.r.Header))
	o.etag, o.kind = `"`+p.etag+`"`, typeFull
	o.algorithm, o.sum = body.claim.algorithm, body.claim.value
	if o.algorithm == noAlgorithm {
		// AWS stores a CRC64NVME of its own; here it is what we have anyhow.
		o.algorithm, o.sum = algCRC32C, encode(body.sum)
	}
	if err := x.s.store.put(o, create); err != nil {
		if p.whole != nil {
			x.s.store.release(p.size)
		}
		return err
	}
	return x.done(func() {
		x.echo(p, body.claim)
		x.header().Set("X-Amz-Checksum-Type", typeFull)
		x.empty(http.StatusOK)
	})
}

// echo says what was received.
func (x *exchange) echo(p *part, c claim) {
	tag, value := p.etag, c.value
	if x.strikes(WrongEcho) {
		tag, value = strings.Repeat("0", len(tag)), encode(make([]byte, len(p.sum)))
	}
	x.header().Set("ETag", `"`+tag+`"`)
	if c.algorithm != noAlgorithm {
		x.header().Set(c.algorithm.header(), value)
	}
}

// createOnly reports whether the write must not replace anything.
func (x *exchange) createOnly() (bool, error) {
	h := x.r.Header
	switch not := h.Get("If-None-Match"); {
	case h.Get("If-Match") != "":
		return false, &failure{http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented: If-Match", 0}
	case not == "":
		return false, nil
	case not != "*":
		return false, &failure{http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented: If-None-Match", 0}
	}
	return true, nil
}

// deleteObject serves DeleteObject.
func (x *exchange) deleteObject() error {
	x.s.store.delete(x.bucket + "/" + x.name)
	return x.done(func() { x.empty(http.StatusNoContent) })
}

// deleteObjects serves DeleteObjects.
func (x *exchange) deleteObjects() error {
	var in struct {
		Object []struct{ Key string }
		Quiet  bool
	}
	if err := x.document(&in); err != nil {
		return err
	}
	type deleted struct{ Key string }
	var out struct {
		XMLName struct{} `xml:"DeleteResult"`
		Deleted []deleted
	}
	for _, o := range in.Object {
		x.s.store.delete(x.bucket + "/" + o.Key)
		if !in.Quiet {
			out.Deleted = append(out.Deleted, deleted{o.Key})
		}
	}
	x.answer(http.StatusOK, out)
	return nil
}
