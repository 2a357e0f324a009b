package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
)

// damage returns the error of a request for a range of an object as a
// *DamageError if it says something about the object, else as it is: a store
// that cannot be reached proves nothing.
func damage(key string, off, n int64, what string, err error) error {
	d := &DamageError{Key: key, Off: off, Len: n, What: what, Err: err}
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		d.Reason, d.Off, d.Len = Missing, 0, 0
	case errors.Is(err, objstore.ErrCorrupt):
		d.Reason = Corrupt
	case errors.Is(err, objstore.ErrRange):
		d.Reason = WrongSize
	case errors.Is(err, objstore.ErrChanged):
		d.Reason, d.Off, d.Len = Mismatch, 0, 0
	default:
		return err
	}
	return d
}

// checkSize compares what the store says of the object with its location.
func checkSize(key string, info objstore.Info, loc object.Location) error {
	if info.Size == loc.ObjectSize {
		return nil
	}
	return &DamageError{
		Reason: WrongSize, Key: key, What: "object",
		Err: fmt.Errorf("it has %d bytes, recorded are %d", info.Size, loc.ObjectSize),
	}
}

// readTail reads and parses the tail of an object.
func readTail(ctx context.Context, ep *endpoint.Endpoint, key, identity string, loc object.Location) ([]byte, *object.Tail, error) {
	// A location that parses bounds this; one made by hand is refused below.
	if size := loc.TailSize(); size <= 0 || size > object.MaxTailSize {
		return nil, nil, fmt.Errorf("object %s: location with a tail of %d bytes", key, size)
	}
	b := make([]byte, loc.TailSize())
	_, err := ep.Read(ctx, endpoint.ReadRequest{
		Key: key, Off: loc.TailOffset, IfMatch: identity, ObjectSize: loc.ObjectSize,
		Pieces: []endpoint.Piece{{Buf: b, CRC32C: loc.TailCRC32C}},
	})
	if err != nil {
		return nil, nil, damage(key, loc.TailOffset, loc.TailSize(), "tail", err)
	}
	tail, err := object.ParseTail(b, loc)
	switch {
	case errors.Is(err, object.ErrVersion):
		return nil, nil, fmt.Errorf("object %s: %w", key, err)
	case err != nil:
		return nil, nil, &DamageError{Reason: Corrupt, Key: key, Off: loc.TailOffset, Len: loc.TailSize(), What: "tail", Err: err}
	}
	return b, tail, nil
}

// runSize is how many bytes a full read asks for with one GET, in whole chunks;
// a chunk that is larger is read alone.
const runSize = 8 << 20

// fullRead reads a whole object and collects its damages.
type fullRead struct {
	ctx   context.Context // of the one call that it lives in
	ep    *endpoint.Endpoint
	key   string
	loc   object.Location
	found func(*DamageError)
	pace  func(ctx context.Context, n int64) error // before n bytes are asked for; may be nil

	identity  string // from the first answer on
	tailBytes []byte
	tail      *object.Tail
	buf       []byte
	first     *DamageError
	damages   int
}

// report takes a damage down.
func (r *fullRead) report(d *DamageError) {
	if r.damages++; r.first == nil {
		r.first = d
	}
	if r.found != nil {
		r.found(d)
	}
}

// judge takes err down if it is a damage, and returns it if it is anything
// else.
func (r *fullRead) judge(err error) error {
	var d *DamageError
	if errors.As(err, &d) {
		r.report(d)
		return nil
	}
	return err
}

// fail ends a full read that cannot go on because of err.
func (r *fullRead) fail(err error) error {
	if err := r.judge(err); err != nil {
		return err
	}
	return r.verdict()
}

// verdict returns the error of a full read that came to its end.
func (r *fullRead) verdict() error {
	switch {
	case r.first == nil:
		return nil
	case r.damages == 1:
		return r.first
	}
	return fmt.Errorf("%w (and %d more)", r.first, r.damages-1)
}

// open looks at the object and reads its tail. Without a sound tail there is
// nothing to hold the rest against, and r.tail stays nil.
func (r *fullRead) open() error {
	info, err := r.ep.Stat(r.ctx, r.key)
	if err != nil {
		return r.judge(damage(r.key, 0, 0, "object", err))
	}
	if err := checkSize(r.key, info, r.loc); err != nil {
		return r.judge(err)
	}
	r.identity = info.Identity
	if err := r.wait(r.loc.TailSize()); err != nil {
		return err
	}
	r.tailBytes, r.tail, err = readTail(r.ctx, r.ep, r.key, r.identity, r.loc)
	if err != nil {
		return r.judge(err)
	}
	largest := max(runSize, r.tail.Table.ChunkSize)
	r.buf = make([]byte, min(largest, r.loc.TailOffset))
	return nil
}

// log reads the log run by run and calls chunk for every chunk in order, with
// its bytes, or with nil if they are damaged. The bytes are valid until chunk
// returns.
func (r *fullRead) log(chunk func(i int, b []byte) error) error {
	t := &r.tail.Table
	for first := 0; first < len(t.Chunks); {
		pieces := r.run(first)
		if err := r.waitFor(pieces); err != nil {
			return err
		}
		done := 0
		_, err := r.ep.Read(r.ctx, endpoint.ReadRequest{
			Key: r.key, Off: t.Start(first), IfMatch: r.identity, ObjectSize: r.loc.ObjectSize,
			Pieces: pieces, Done: func(i int) { done = i + 1 },
		})
		for i := range done {
			if err := chunk(first+i, pieces[i].Buf); err != nil {
				return err
			}
		}
		first += done
		if err == nil {
			continue
		}
		// The pieces are filled in order: the first that is not done is at fault.
		err = damage(r.key, t.Start(first), t.Len(first), fmt.Sprintf("chunk %d", first), err)
		var mismatch *checksum.MismatchError
		if !errors.As(err, &mismatch) {
			return err // not a matter of this chunk alone
		}
		if err := r.judge(err); err != nil {
			return err
		}
		if err := chunk(first, nil); err != nil {
			return err
		}
		first++
	}
	return nil
}

// wait waits until n more bytes may be asked for.
func (r *fullRead) wait(n int64) error {
	if r.pace == nil {
		return nil
	}
	return r.pace(r.ctx, n)
}

func (r *fullRead) waitFor(pieces []endpoint.Piece) error {
	var n int64
	for _, p := range pieces {
		n += int64(len(p.Buf))
	}
	return r.wait(n)
}

// run returns the pieces of the run that begins with a chunk.
func (r *fullRead) run(first int) []endpoint.Piece {
	t := &r.tail.Table
	var pieces []endpoint.Piece
	at := int64(0)
	for i := first; i < len(t.Chunks) && at+t.Len(i) <= int64(len(r.buf)); i++ {
		pieces = append(pieces, endpoint.Piece{Buf: r.buf[at : at+t.Len(i)], CRC32C: t.Chunks[i].CRC32C})
		at += t.Len(i)
	}
	return pieces
}

// section reads one of the files behind the log in pieces, gives them to write
// and compares the sum in the end. What write was given before is only proven
// when section returns true.
func (r *fullRead) section(s object.Section, write func([]byte) error) (sound bool, err error) {
	e := r.tail.Sections[s]
	var sum uint32
	for off := int64(0); off < e.Len; {
		b := r.buf[:min(e.Len-off, int64(len(r.buf)))]
		if err := r.piece(s, off, b); err != nil {
			return false, err
		}
		sum = checksum.Update(sum, b)
		if err := write(b); err != nil {
			return false, err
		}
		off += int64(len(b))
	}
	return r.checkSection(s, sum), nil
}
