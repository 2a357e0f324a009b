package object

import (
	"bytes"
	"encoding/json"
	"fmt"
)

const (
	// ownerFormat is the format of the objects under a prefix that this module
	// creates.
	ownerFormat = 1

	maxMetadataID = 256     // bytes
	maxOwnerSize  = 4 << 10 // bytes; a newer format may have more to say
)

// Owner is the content of the marker that names the metadata store to which a
// prefix belongs.
type Owner struct {
	MetadataID string // as metadata.Store.ID returns it
	Format     int    // of the objects; 0 to write what this module writes, which is 1
}

// Marshal returns the marker's bytes, the same for the same owner, so that
// creating another owner's marker is a conflict. An id that is not 1 to 256
// printable ASCII characters (without space, quote, backslash, <, > and &), or
// a format that this module does not write, is an error.
func (o Owner) Marshal() ([]byte, error) {
	const what = "owner marker"
	if o.Format == 0 {
		o.Format = ownerFormat
	}
	if o.Format != ownerFormat {
		return nil, newer(what, "format", o.Format, ownerFormat)
	}
	if len(o.MetadataID) == 0 || len(o.MetadataID) > maxMetadataID {
		return nil, corrupt(what, "metadata id of %d bytes, allowed are 1 to %d", len(o.MetadataID), maxMetadataID)
	}
	for i := range len(o.MetadataID) {
		// What JSON need not escape has one spelling.
		switch c := o.MetadataID[i]; {
		case c <= ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return nil, corrupt(what, "metadata id %q: character %q is not allowed", o.MetadataID, c)
		}
	}
	return fmt.Appendf(nil, "{\"format\":%d,\"metadataId\":\"%s\"}\n", o.Format, o.MetadataID), nil
}

// ParseOwner parses a marker. It is ErrVersion if a newer segtier wrote it, and
// ErrCorrupt if none did.
func ParseOwner(b []byte) (Owner, error) {
	const what = "owner marker"
	if len(b) > maxOwnerSize {
		return Owner{}, corrupt(what, "%d bytes long, the limit is %d", len(b), maxOwnerSize)
	}
	var v struct {
		Format     int    `json:"format"`
		MetadataID string `json:"metadataId"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return Owner{}, corrupt(what, "%w", err)
	}
	o := Owner{MetadataID: v.MetadataID, Format: v.Format}
	if o.Format < 1 {
		return Owner{}, corrupt(what, "format %d", o.Format)
	}
	want, err := o.Marshal()
	if err != nil {
		return Owner{}, err
	}
	if !bytes.Equal(b, want) {
		return Owner{}, corrupt(what, "not spelled as segtier spells it")
	}
	return o, nil
}
