package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
)

// OwnerError says that the store's prefix belongs to another metadata store.
// Two metadata stores over one prefix would take each other's objects for
// orphans.
type OwnerError struct {
	Owner string // the metadata store that owns the prefix
	Mine  string // the one that tried to write
}

// Error says what to do.
func (e *OwnerError) Error() string {
	return fmt.Sprintf("%s: the prefix is owned by metadata store %s, not by %s: use that metadata store, or another prefix",
		object.OwnerKey, e.Owner, e.Mine)
}

// claim makes sure that the prefix names our metadata store as its owner. It
// asks the store once in the life of the Copier.
func (c *Copier) claim(ctx context.Context) error {
	c.owner.Lock()
	claimed := c.owner.claimed
	c.owner.Unlock()
	if claimed {
		return nil
	}
	if err := claimOwner(ctx, c.ep, c.meta.ID()); err != nil {
		return err
	}
	c.owner.Lock()
	c.owner.claimed = true
	c.owner.Unlock()
	return nil
}

// claimOwner creates the owner marker. Creation is conditional, so of two that
// race one wins and the other learns its name.
func claimOwner(ctx context.Context, ep *endpoint.Endpoint, id string) error {
	marker, err := object.Owner{MetadataID: id}.Marshal()
	if err != nil {
		return err
	}
	sum := checksum.Sum{Len: int64(len(marker)), CRC32C: checksum.CRC32C(marker)}
	_, err = ep.Upload(ctx, objstore.UploadRequest{
		Key:      object.OwnerKey,
		Body:     bytes.NewReader(marker),
		Size:     sum.Len,
		PartSize: sum.Len,
		PartSums: []checksum.Sum{sum},
		Token:    id,
	})
	if !errors.Is(err, objstore.ErrConflict) {
		return err
	}
	owner, rerr := readOwner(ctx, ep)
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	if owner.MetadataID == id {
		return nil // the same owner in another spelling of the marker
	}
	return &OwnerError{Owner: owner.MetadataID, Mine: id}
}

// maxOwnerSize bounds the marker that is read: it is ours or nonsense.
const maxOwnerSize = 4096

func readOwner(ctx context.Context, ep *endpoint.Endpoint) (object.Owner, error) {
	info, err := ep.Stat(ctx, object.OwnerKey)
	if err != nil {
		return object.Owner{}, err
	}
	if info.Size <= 0 || info.Size > maxOwnerSize {
		return object.Owner{}, fmt.Errorf("%s: %d bytes, not an owner marker", object.OwnerKey, info.Size)
	}
	b := make([]byte, info.Size)
	_, err = ep.Read(ctx, endpoint.ReadRequest{
		Key:        object.OwnerKey,
		ObjectSize: info.Size,
		IfMatch:    info.Identity,
		Pieces:     []endpoint.Piece{{Buf: b, NoVerify: true}},
	})
	if err != nil {
		return object.Owner{}, err
	}
	return object.ParseOwner(b)
}
