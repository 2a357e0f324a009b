package lifecycle

import (
	"context"
	"fmt"

	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
)

// readHeader reads the header of an object that no metadata locates: its trailer,
// which says where the tail is, and the tail. object.ErrCorrupt: it is no object
// of segtier, or a damaged one.
func readHeader(ctx context.Context, ep *endpoint.Endpoint, key string, info objstore.Info) (object.Header, error) {
	read := func(off int64) ([]byte, error) {
		b := make([]byte, info.Size-off)
		_, err := ep.Read(ctx, endpoint.ReadRequest{
			Key: key, Off: off, IfMatch: info.Identity, ObjectSize: info.Size, Class: endpoint.Prefetch,
			Pieces: []endpoint.Piece{{Buf: b, NoVerify: true}}, // it sums up itself
		})
		return b, err
	}
	if info.Size < object.TrailerSize {
		return object.Header{}, fmt.Errorf("%w: it has %d bytes", object.ErrCorrupt, info.Size)
	}
	trailer, err := read(info.Size - object.TrailerSize)
	if err != nil {
		return object.Header{}, err
	}
	at, err := object.TailOffset(trailer, info.Size)
	if err != nil {
		return object.Header{}, err
	}
	b, err := read(at) // at most object.MaxTailSize
	if err != nil {
		return object.Header{}, err
	}
	loc, err := object.LocationOf(b)
	if err != nil {
		return object.Header{}, err
	}
	tail, err := object.ParseTail(b, loc)
	if err != nil {
		return object.Header{}, err
	}
	return tail.Header, nil
}
