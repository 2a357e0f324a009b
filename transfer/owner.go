package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
)

// OwnerError says that the store's prefix does not belong to the metadata store
// that wants to use it. Two metadata stores over one prefix would take each
// other's objects for orphans; one over two prefixes would take the objects of
// the first for lost.
type OwnerError struct {
	Owner string // the metadata store that owns the prefix, "" if none does
	Mine  string // the one that wants to use it
}

// Error says what to do.
func (e *OwnerError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("the store has no %s although metadata store %s has readable segments in it: this is another store, or it was emptied; use the store that was copied to",
			object.OwnerKey, e.Mine)
	}
	return fmt.Sprintf("%s: the prefix is owned by metadata store %s, not by %s: use that metadata store, or another prefix",
		object.OwnerKey, e.Owner, e.Mine)
}

// CheckOwner asks to whom the prefix belongs: nil if to the metadata store id,
// an *OwnerError with the owner's name if to another, and one without a name if
// there is no marker. It changes nothing.
func CheckOwner(ctx context.Context, ep *endpoint.Endpoint, id string) error {
	return checkMarker(ctx, ep, object.OwnerKey, id)
}

// checkMarker is CheckOwner of any marker.
func checkMarker(ctx context.Context, ep *endpoint.Endpoint, key, id string) error {
	owner, err := readOwner(ctx, ep, key)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return &OwnerError{Mine: id}
	case err != nil:
		return err
	case owner.MetadataID != id:
		return &OwnerError{Owner: owner.MetadataID, Mine: id}
	}
	return nil
}

// ClaimOwner makes the prefix the metadata store id's, unless it is another's:
// that is an *OwnerError. Creating the marker is conditional, so of two that race
// one wins and the other learns its name. Claiming again changes nothing.
func ClaimOwner(ctx context.Context, ep *endpoint.Endpoint, id string) error {
	return claimMarker(ctx, ep, object.OwnerKey, id)
}

// claimMarker is ClaimOwner of any marker.
func claimMarker(ctx context.Context, ep *endpoint.Endpoint, key, id string) error {
	marker, err := object.Owner{MetadataID: id}.Marshal()
	if err != nil {
		return err
	}
	sum := checksum.Sum{Len: int64(len(marker)), CRC32C: checksum.CRC32C(marker)}
	_, err = ep.Upload(ctx, objstore.UploadRequest{
		Key:      key,
		Body:     bytes.NewReader(marker),
		Size:     sum.Len,
		PartSize: sum.Len,
		PartSums: []checksum.Sum{sum},
		Token:    id,
	})
	if errors.Is(err, objstore.ErrConflict) {
		return checkMarker(ctx, ep, key, id) // who was faster, or what is wrong with the marker
	}
	return err
}

// CheckRebuild asks who rebuilds the metadata of the prefix: nil if the metadata
// store id does, an *OwnerError with another's name, or without a name if nobody
// does. It changes nothing.
func CheckRebuild(ctx context.Context, ep *endpoint.Endpoint, id string) error {
	return checkMarker(ctx, ep, object.RebuildKey, id)
}

// TakeOver makes the prefix the metadata store id's, whosever it was: for metadata
// that is rebuilt, and for nothing else. It leaves object.RebuildKey behind until
// [EndRebuild], so that it can be done again after a crash at any step, and so that
// nobody collects meanwhile. If another metadata store is being rebuilt, or claims
// the prefix at this moment, it is an *OwnerError.
func TakeOver(ctx context.Context, ep *endpoint.Endpoint, id string) error {
	if err := claimMarker(ctx, ep, object.RebuildKey, id); err != nil {
		return err
	}
	err := CheckOwner(ctx, ep, id)
	var owner *OwnerError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &owner):
		return err
	case owner.Owner != "":
		if err := ep.Delete(ctx, object.OwnerKey); err != nil {
			return err
		}
	}
	return ClaimOwner(ctx, ep, id)
}

// EndRebuild says that the metadata of the prefix is whole again.
func EndRebuild(ctx context.Context, ep *endpoint.Endpoint) error {
	return ep.Delete(ctx, object.RebuildKey)
}

// maxOwnerSize bounds the marker that is read: it is ours or nonsense.
const maxOwnerSize = 4096

// readOwner reads the marker: its first byte, which tells how long it is, then
// the rest. Unlike the answer to a HEAD, that to a GET says why it is refused, and
// this mostly is the first request that a store ever gets from us.
func readOwner(ctx context.Context, ep *endpoint.Endpoint, key string) (object.Owner, error) {
	first := make([]byte, 1)
	info, err := ep.Read(ctx, endpoint.ReadRequest{
		Key:    key,
		Pieces: []endpoint.Piece{{Buf: first, NoVerify: true}},
	})
	switch {
	case errors.Is(err, objstore.ErrRange):
		return object.Owner{}, badMarker(key, fmt.Errorf("%w: it is empty", object.ErrCorrupt))
	case err != nil:
		return object.Owner{}, err
	case info.Size < 2 || info.Size > maxOwnerSize:
		return object.Owner{}, badMarker(key, fmt.Errorf("%w: it has %d bytes", object.ErrCorrupt, info.Size))
	}
	rest := make([]byte, info.Size-1)
	_, err = ep.Read(ctx, endpoint.ReadRequest{
		Key:        key,
		Off:        1,
		ObjectSize: info.Size,
		IfMatch:    info.Identity,
		Pieces:     []endpoint.Piece{{Buf: rest, NoVerify: true}},
	})
	if err != nil {
		return object.Owner{}, err
	}
	owner, err := object.ParseOwner(slices.Concat(first, rest))
	if err != nil {
		return object.Owner{}, badMarker(key, err)
	}
	return owner, nil
}

func badMarker(key string, err error) error {
	return fmt.Errorf("%s cannot be read, so the prefix may be anybody's: %w (bring it back from a copy of the store, or use another prefix)",
		key, err)
}
