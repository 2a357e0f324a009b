package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
)

// SpotOptions says what a SpotCheck looks at.
type SpotOptions struct {
	// Chunk says whether to read a chunk of the log, i of n; nil reads none.
	Chunk func(i, n int) bool

	// Found and Pace are those of [ConfirmOptions].
	Found func(*DamageError)
	Pace  func(ctx context.Context, n int64) error
}

// SpotCheck reads an object's tail and some chunks of its log and holds them
// against the record, as [Confirm] does with all of them. Its errors are those of
// Confirm. It proves nothing about what it has not read, so it gives no receipt.
func SpotCheck(ctx context.Context, ep *endpoint.Endpoint, h object.Header, loc object.Location, o SpotOptions) error {
	r := &fullRead{ctx: ctx, ep: ep, key: h.Key(), loc: loc, found: o.Found, pace: o.Pace}
	if err := r.open(); err != nil {
		return err
	}
	if r.tail == nil {
		return r.verdict()
	}
	r.checkHeader(&h)
	t := &r.tail.Table
	for i := range t.Chunks {
		if o.Chunk == nil || !o.Chunk(i, len(t.Chunks)) {
			continue
		}
		if err := r.wait(t.Len(i)); err != nil {
			return err
		}
		_, err := r.ep.Read(ctx, endpoint.ReadRequest{
			Key: r.key, Off: t.Start(i), IfMatch: r.identity, ObjectSize: loc.ObjectSize,
			Pieces: []endpoint.Piece{{Buf: r.buf[:t.Len(i)], CRC32C: t.Chunks[i].CRC32C}},
		})
		if err == nil {
			continue
		}
		if err := r.judge(damage(r.key, t.Start(i), t.Len(i), fmt.Sprintf("chunk %d", i), err)); err != nil {
			return err
		}
	}
	return r.verdict()
}

// describeGuess is how much of an object's end is read at first: nearly every
// tail fits.
const describeGuess = 64 << 10

// Describe reads what an object says of itself: its tail, and with it the header
// from which a metadata record can be made again, and its location. size is the
// object's. Nothing of the log is read, so this proves nothing about it.
//
// An object that is none of ours, or is damaged in its tail, or has the key of
// another segment, gives a *DamageError. One that a newer version wrote gives
// object.ErrVersion.
func Describe(ctx context.Context, ep *endpoint.Endpoint, key string, size int64) (*object.Tail, object.Location, error) {
	fail := func(off int64, reason Damage, err error) (*object.Tail, object.Location, error) {
		if errors.Is(err, object.ErrVersion) {
			return nil, object.Location{}, fmt.Errorf("object %s: %w", key, err)
		}
		return nil, object.Location{}, &DamageError{Reason: reason, Key: key, Off: off, Len: size - off, What: "tail", Err: err}
	}
	if size < object.TrailerSize {
		return fail(0, Corrupt, fmt.Errorf("%w: %d bytes are no object", object.ErrCorrupt, size))
	}
	read := func(off int64, b []byte) error {
		if len(b) == 0 {
			return nil
		}
		_, err := ep.Read(ctx, endpoint.ReadRequest{Key: key, Off: off, ObjectSize: size, Pieces: []endpoint.Piece{{Buf: b, NoVerify: true}}})
		if err != nil {
			return damage(key, off, int64(len(b)), "tail", err)
		}
		return nil
	}
	end := make([]byte, min(size, describeGuess))
	if err := read(size-int64(len(end)), end); err != nil {
		return nil, object.Location{}, err
	}
	off, err := object.TailOffset(end, size)
	if err != nil {
		return fail(size-object.TrailerSize, Corrupt, err)
	}
	var tail []byte
	if missing := size - off - int64(len(end)); missing > 0 {
		tail = make([]byte, size-off)
		copy(tail[missing:], end)
		if err := read(off, tail[:missing]); err != nil {
			return nil, object.Location{}, err
		}
	} else {
		tail = end[-missing:]
	}
	loc, err := object.LocationOf(tail)
	if err != nil {
		return fail(off, Corrupt, err)
	}
	t, err := object.ParseTail(tail, loc)
	if err != nil {
		return fail(off, Corrupt, err)
	}
	if got := t.Header.Key(); got != key {
		return fail(t.Sections[object.HeaderSection].Off, Mismatch, fmt.Errorf("it says that it is %s", got))
	}
	return t, loc, nil
}
