package storetest

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// faultyBody is the body of a Get as its fault makes it.
type faultyBody struct {
	body    io.ReadCloser
	call    Call
	fault   Fault
	effects *Effects
	ctx     context.Context // of the Get, to which the body belongs
	pos     int64

	once   sync.Once
	closed chan struct{}
}

func (b *faultyBody) Read(p []byte) (int, error) {
	if err := b.effects.Err(); err != nil {
		return 0, b.call.wrap(err)
	}
	at := b.fault.At
	switch b.fault.Kind {
	case Cut, Stall, EarlyEOF:
		if b.pos == at {
			return 0, b.end()
		}
		if b.pos < at {
			p = p[:min(int64(len(p)), at-b.pos)]
		}
	}
	n, err := b.body.Read(p)
	if b.fault.Kind == Flip && b.pos <= at && at < b.pos+int64(n) {
		p[at-b.pos] ^= 1
	}
	b.pos += int64(n)
	return n, err
}

// end is what happens at the byte where the body goes no further.
func (b *faultyBody) end() error {
	switch b.fault.Kind {
	case EarlyEOF:
		return io.EOF
	case Stall:
		select {
		case <-b.ctx.Done():
			return b.call.wrap(b.ctx.Err())
		case <-b.closed:
			return b.call.wrap(io.ErrClosedPipe)
		}
	}
	return b.call.wrap(b.fault.Err)
}

func (b *faultyBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.body.Close()
}

// tamper returns the request that the store gets to see.
func (fault Fault) tamper(ctx context.Context, req objstore.UploadRequest) (objstore.UploadRequest, error) {
	switch fault.Kind {
	case Cut, Stall, Flip:
		req.Body = &faultySource{body: req.Body, fault: fault, ctx: ctx}
	case FlipStored:
		req.Body = &faultySource{body: req.Body, fault: Fault{Kind: Flip, At: fault.At}, ctx: ctx}
		return resum(req)
	case ShortObject:
		// No store makes an empty object, so one byte at least is stored.
		req.Size = max(1, min(fault.At, req.Size))
		return resum(req)
	}
	return req, nil
}

// resum returns req with the part sums that its body and size really have.
func resum(req objstore.UploadRequest) (objstore.UploadRequest, error) {
	c := checksum.NewCutter(req.PartSize)
	_, err := io.Copy(c, io.NewSectionReader(req.Body, 0, req.Size))
	req.PartSums = c.Pieces(0)
	return req, err
}

// faultySource is the body of an Upload as its fault makes it.
type faultySource struct {
	body  io.ReaderAt
	fault Fault
	ctx   context.Context // of the Upload, to which the body belongs
}

func (s *faultySource) ReadAt(p []byte, off int64) (int, error) {
	at := s.fault.At
	inside := off <= at && at < off+int64(len(p))
	if s.fault.Kind == Flip {
		n, err := s.body.ReadAt(p, off)
		if inside && at-off < int64(n) {
			p[at-off] ^= 1
		}
		return n, err
	}
	if at >= off+int64(len(p)) {
		return s.body.ReadAt(p, off)
	}
	n := 0
	if inside && at > off {
		var err error
		if n, err = s.body.ReadAt(p[:at-off], off); err != nil {
			return n, err
		}
	}
	if s.fault.Kind == Stall {
		<-s.ctx.Done()
		return n, s.ctx.Err()
	}
	return n, s.fault.Err
}

// lieParts returns what the caller is told of parts that the store confirmed.
func (fault Fault) lieParts(req *objstore.UploadRequest, parts []objstore.PartEvidence) []objstore.PartEvidence {
	parts = slices.Clone(parts)
	for i := range parts {
		p := &parts[i]
		switch {
		case fault.Kind == ShortObject || fault.Kind == FlipStored:
			p.Sum = req.PartSums[p.Part]
		case fault.Kind == WrongSum && int64(p.Part) == fault.At:
			p.Sum.CRC32C ^= 1
		}
	}
	if fault.Kind == DropPart {
		parts = slices.DeleteFunc(parts, func(p objstore.PartEvidence) bool { return int64(p.Part) == fault.At })
	}
	return parts
}

// lieEvidence returns what the caller is told of an object that was uploaded.
func (fault Fault) lieEvidence(req *objstore.UploadRequest, ev objstore.Evidence) objstore.Evidence {
	level := ev.Parts[0].Level
	ev.Parts = fault.lieParts(req, ev.Parts)
	switch fault.Kind {
	case WrongSize:
		ev.Size--
	case WrongIdentity:
		ev.Identity += "'"
	case ShortObject:
		ev.Size = req.Size
		for i := len(ev.Parts); i < len(req.PartSums); i++ {
			ev.Parts = append(ev.Parts, objstore.PartEvidence{Part: i, Sum: req.PartSums[i], Level: level})
		}
	}
	return ev
}
