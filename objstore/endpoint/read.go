package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// ReadRequest asks for consecutive bytes of one object.
type ReadRequest struct {
	Key string
	Off int64 // of the first piece, in bytes from the start of the object

	// IfMatch is the Identity that the object must have; "" is any. Another one
	// is objstore.ErrChanged.
	IfMatch string

	// ObjectSize is the size that the object was recorded with; an object of
	// another size is objstore.ErrCorrupt. 0 is unknown.
	ObjectSize int64

	// Class says who waits for the bytes, Stream whose they are: streams of one
	// class take turns. 0 is one stream too, that of all who say nothing. Tenant
	// names who is held to Options.TenantRequests and TenantBytesInFlight; "" is
	// nobody.
	Class  Class
	Stream uint64
	Tenant string

	// Urgency, if not nil, is the class instead of Class, and may be raised while
	// the Read waits.
	Urgency *Urgency

	// Pieces are filled in order, without gaps between them.
	Pieces []Piece

	// Turn, if not nil, says what to read when it is the Read's turn, before each GET as
	// long as no byte has come: Off and Pieces, which the Read has waited for until then,
	// are replaced by what it returns. What is more than was waited for it has from
	// Turn.Take. An error ends the Read, with no GET. It must not block: a slot waits.
	Turn func(t *Turn) (off int64, pieces []Piece, err error)

	// Bind gives the memory of piece i if it came without: it is called once for each
	// such piece, in order, from the goroutine of Read, when the first byte of the
	// piece is about to be read from a body. A Read that waits, for a slot, for an
	// answer or for its next try, holds no memory for what is to come. What it returns
	// has the length of the piece and becomes its Buf.
	Bind func(i int) []byte

	// Done, if not nil, is called with the index of each piece in order, as soon
	// as it is filled and verified, from the goroutine of Read, while the rest
	// still arrives. From then on Read does not touch the piece. Done must not
	// block: no byte is read meanwhile.
	Done func(i int)
}

// Piece is a part of a ReadRequest that has a checksum of its own.
type Piece struct {
	Buf      []byte // filled completely; Read's until Done or its return. Nil: Bind gives it
	Len      int    // of a piece without Buf, in bytes; not 0
	CRC32C   uint32 // recorded sum of those bytes
	NoVerify bool   // there is no recorded sum: the caller checks the bytes itself
}

// size returns the bytes of the piece.
func (p *Piece) size() int {
	if p.Buf != nil {
		return len(p.Buf)
	}
	return p.Len
}

func (r *ReadRequest) validate() error {
	if err := objstore.ValidateKey(r.Key); err != nil {
		return err
	}
	if r.Class > Prefetch || r.Urgency != nil && r.Urgency.Class() > Prefetch {
		return errors.New("read of a class that there is not")
	}
	if r.Off < 0 || r.ObjectSize < 0 || len(r.Pieces) == 0 {
		return fmt.Errorf("read of %d pieces from byte %d of an object of %d bytes makes no sense", len(r.Pieces), r.Off, r.ObjectSize)
	}
	for i := range r.Pieces {
		p := &r.Pieces[i]
		if p.size() <= 0 || p.Buf == nil && r.Bind == nil {
			return fmt.Errorf("read into an empty buffer (piece %d)", i)
		}
	}
	if r.ObjectSize > 0 {
		return objstore.CheckRange(r.Off, r.size(), r.ObjectSize)
	}
	return nil
}

// size returns how many bytes are asked for.
func (r *ReadRequest) size() int64 {
	var n int64
	for i := range r.Pieces {
		n += int64(r.Pieces[i].size())
	}
	return n
}

// Read fills the pieces with one ranged GET, or with as many more as faults make
// necessary: a body that is cut or stalls is resumed at the first byte not yet
// had. It returns what the store said of the object. On an error the pieces
// that Done was not called for hold anything; the error is an *objstore.Error
// that names the range, and for damage wraps objstore.ErrCorrupt and, if it was
// a checksum, the *checksum.MismatchError.
func (e *Endpoint) Read(ctx context.Context, req ReadRequest) (objstore.Info, error) {
	r := reading{req: req, identity: req.IfMatch, size: req.size(), suspect: -1}
	at := r.at()
	if err := req.validate(); err != nil {
		at.Err = err
		return objstore.Info{}, &at
	}
	c, err := e.begin(ctx, forReads, req.Key)
	if err != nil {
		at.Err = err
		return objstore.Info{}, &at
	}
	defer c.end()
	r.call, c.urgency = c, req.Urgency
	for {
		err := c.ready()
		if err == nil {
			err = r.attempt()
		}
		if err == nil {
			c.succeeded()
			return r.info, nil
		}
		if err = c.retry(err, r.at()); err != nil {
			if errors.Is(err, objstore.ErrCorrupt) {
				e.opts.Logger.WarnContext(ctx, "object is damaged", "err", err)
			}
			return objstore.Info{}, err
		}
	}
}

// reading is the state of one Read: how far it has come.
type reading struct {
	call     *call
	req      ReadRequest
	size     int64         // bytes asked for in all
	identity string        // that the object must have from now on
	info     objstore.Info // of the latest answer

	got     int64 // bytes in place: all of the pieces before piece, and fill
	piece   int   // being filled
	fill    int   // bytes of it in place
	crc     uint32
	began   int // piece with which the latest answer began
	suspect int // piece that was wrong at the beginning of an answer; -1 none

	touched bool // a byte has come: what is read stays what it is
}

// at is the error of the whole Read, as it is by now.
func (r *reading) at() objstore.Error {
	return objstore.Error{Op: "get", Key: r.req.Key, Off: r.req.Off, Len: r.size}
}

// class returns who waits, by now.
func (r *reading) class() Class {
	if r.req.Urgency != nil {
		return r.req.Urgency.Class()
	}
	return r.req.Class
}

// attempt makes one GET for everything that is still missing.
func (r *reading) attempt() (err error) {
	c, e := r.call, r.call.e
	r.began = r.piece
	w, err := e.slots.acquireAs(c.ctx, want{line: line(r.class()), stream: r.req.Stream, tenant: r.req.Tenant, n: r.size - r.got, area: c.area, call: c}, r.req.Urgency)
	if err != nil {
		return err
	}
	defer func() { e.slots.ended(w, c.outcome(err)) }()
	if err = r.turn(&w); err != nil {
		return err
	}
	c.learn(e.readLimit)
	if r.got > 0 {
		e.stats.resumes.Add(1)
	}
	c.arm()
	defer c.disarm()
	info, body, join, err := r.get(w, r.req.Off+r.got, r.size-r.got)
	defer join()
	if err != nil {
		return r.blame(err)
	}
	defer body.Close() // aborts what is left of it; nothing to learn from its error
	if err := r.check(info); err != nil {
		return err
	}
	before, _ := e.slots.busy()
	got, began := r.got, time.Now()
	if err := r.drain(body); err != nil {
		return err
	}
	now := time.Now()
	after, full := e.slots.busy()
	e.crowd.arrived(r.got-got, now.Sub(began), max(before, after), full, now)
	return nil
}

// get opens the bytes [off, off+n). join is called when the body has been closed.
func (r *reading) get(w want, off, n int64) (info objstore.Info, body io.ReadCloser, join func(), err error) {
	if r.hedgeable(n) {
		return r.call.e.race(r.call, w, r.req.Key, r.identity, off)
	}
	r.call.e.stats.gets.Add(1)
	info, body, err = r.call.e.store.Get(r.call.ctx, r.req.Key, off, n, objstore.GetOptions{IfMatch: r.identity})
	return info, body, func() {}, err
}

// blame turns "range outside the object" into damage where the record says that
// the object is long enough.
func (r *reading) blame(err error) error {
	if r.req.ObjectSize > 0 && errors.Is(err, objstore.ErrRange) {
		r.call.e.stats.corrupt.Add(1)
		return r.failed(fmt.Errorf("%w: shorter than the %d bytes recorded: %w", objstore.ErrCorrupt, r.req.ObjectSize, err))
	}
	return err
}

// check compares what the store says of the object with what is known.
func (r *reading) check(info objstore.Info) error {
	if r.req.ObjectSize > 0 && info.Size != r.req.ObjectSize {
		r.call.e.stats.corrupt.Add(1)
		return r.failed(fmt.Errorf("%w: the object has %d bytes, recorded are %d", objstore.ErrCorrupt, info.Size, r.req.ObjectSize))
	}
	if r.identity != "" && info.Identity != "" && info.Identity != r.identity {
		return r.failed(fmt.Errorf("%w: it is %s, expected %s", objstore.ErrChanged, info.Identity, r.identity))
	}
	if r.info = info; info.Identity != "" {
		r.identity = info.Identity // a body that is resumed must go on with the same object
	}
	return nil
}

// step bounds how much is read before it is summed: little enough to be in the
// processor's cache still, much enough to make few calls.
const step = 256 << 10

// maxEmptyReads is how often a body may return neither bytes nor an error.
const maxEmptyReads = 100

// drain reads the body into the pieces and verifies each.
func (r *reading) drain(body io.Reader) error {
	empty := 0
	for {
		p := &r.req.Pieces[r.piece]
		if p.Buf == nil {
			if err := r.bind(p); err != nil {
				return err
			}
		}
		r.call.arm()
		n, err := body.Read(p.Buf[r.fill:min(len(p.Buf), r.fill+step)])
		if n > 0 {
			r.take(p.Buf[r.fill : r.fill+n])
			empty = 0
		} else if empty++; err == nil && empty >= maxEmptyReads {
			err = io.ErrNoProgress
		}
		if r.fill == len(p.Buf) {
			if err := r.finish(p); err != nil {
				return err
			}
			if r.got == r.size {
				return r.exhaust(body, err != nil)
			}
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF // the store broke its law; resume all the same
			}
			return err
		}
	}
}

// bind takes memory for the piece whose bytes come next. The answer has been checked:
// nobody else's body is ever read into it.
func (r *reading) bind(p *Piece) error {
	b := r.req.Bind(r.piece)
	if len(b) != p.Len {
		return r.failed(fmt.Errorf("%w: %d bytes for piece %d of %d", errUnbound, len(b), r.piece, p.Len))
	}
	p.Buf = b
	return nil
}

// errUnbound is permanent: the caller's mistake.
var errUnbound = errors.New("memory of another length than the piece")

// take accounts for bytes that have arrived.
func (r *reading) take(b []byte) {
	if !r.req.Pieces[r.piece].NoVerify {
		r.crc = checksum.Update(r.crc, b)
	}
	r.touched = true
	r.fill += len(b)
	r.got += int64(len(b))
	r.call.got.Add(int64(len(b)))
	r.call.e.stats.bytes.Add(int64(len(b)))
}

// finish verifies the piece that is full and goes to the next. A wrong piece is
// emptied, to be fetched again. If an answer begins with it and it is wrong again,
// it is asked for once more; wrong twice so, it is corrupt. Of a wrong piece in
// the middle of an answer the answer may be guilty, whatever came before it.
func (r *reading) finish(p *Piece) error {
	i, crc := r.piece, r.crc
	if !p.NoVerify && crc != p.CRC32C {
		off := r.req.Off + r.got - int64(len(p.Buf))
		err := r.mismatch(i, off, p, crc)
		r.got -= int64(len(p.Buf))
		r.fill, r.crc = 0, 0
		// The one more try that tries.next grants is per piece.
		r.call.tries.corrupt = r.suspect == i
		if r.suspect = -1; r.began == i {
			r.suspect = i
		}
		return err
	}
	r.piece, r.fill, r.crc = i+1, 0, 0
	r.call.tries.gained()
	if r.req.Done != nil {
		r.req.Done(i)
	}
	return nil
}

func (r *reading) mismatch(i int, off int64, p *Piece, got uint32) error {
	r.call.e.stats.corrupt.Add(1)
	n := int64(len(p.Buf))
	return &objstore.Error{Op: "get", Key: r.req.Key, Off: off, Len: n, Err: fmt.Errorf("%w: %w", objstore.ErrCorrupt,
		&checksum.MismatchError{What: "piece " + strconv.Itoa(i), Off: off, Len: n, Want: p.CRC32C, Got: got})}
}

// exhaust reads to the end of a body that has given all it should: a connection
// is only used again after its end was seen.
func (r *reading) exhaust(body io.Reader, ended bool) error {
	if ended {
		return nil // with io.EOF; or with a fault, too late to matter
	}
	var one [1]byte
	if n, _ := body.Read(one[:]); n > 0 {
		return r.failed(errTooLong)
	}
	return nil
}

// errTooLong is permanent: every piece has been verified and reported.
var errTooLong = errors.New("the store sent more bytes than it was asked for")

// failed returns err as the error of this get.
func (r *reading) failed(err error) error {
	return &objstore.Error{Op: "get", Key: r.req.Key, Off: r.req.Off + r.got, Len: r.size - r.got, Err: err}
}
