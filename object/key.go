package object

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/segtier/segtier/segment"
)

// OwnerKey is the key of the owner marker of a prefix ([Owner]).
const OwnerKey = "segtier.json"

// RebuildKey is the key of the marker that is there while metadata of a prefix is
// rebuilt: an [Owner] that names the metadata store which is to own it.
const RebuildKey = "segtier-rebuild.json"

// keySuffix ends every key of a segment's object.
const keySuffix = ".seg"

// Key returns the key of a segment's object, without the store's prefix:
//
//	<topic>/<topic id>/<partition>/<start offset, 20 digits>-<segment id>.seg
//
// So keys of a partition sort by offset. The partition must be valid
// ([segment.Partition.Validate]) and startOffset not negative; other arguments
// give a key that [ParseKey] refuses.
func Key(p segment.Partition, startOffset int64, id segment.UUID) string {
	return fmt.Sprintf("%s/%s/%d/%020d-%s%s", p.Topic, p.TopicID, p.Number, startOffset, id, keySuffix)
}

// ParseKey parses what Key returns, and nothing else: a key has one spelling.
func ParseKey(key string) (p segment.Partition, startOffset int64, id segment.UUID, err error) {
	// "20 digits", "-", id, ".seg"
	const nameLen = 20 + 1 + 22 + len(keySuffix)

	fail := func(err error) (segment.Partition, int64, segment.UUID, error) {
		return segment.Partition{}, 0, segment.UUID{}, corrupt("key", "%.80q is not the key of a segment: %w", key, err)
	}
	elems := strings.SplitN(key, "/", 5)
	if len(elems) != 4 {
		return fail(fmt.Errorf("not topic/topic id/partition/offset-id%s", keySuffix))
	}
	p.Topic = elems[0]
	if p.TopicID, err = segment.ParseUUID(elems[1]); err != nil {
		return fail(err)
	}
	number, err := strconv.ParseInt(elems[2], 10, 32)
	if err != nil {
		return fail(fmt.Errorf("partition %.20q is no number", elems[2]))
	}
	p.Number = int32(number)
	if err := p.Validate(); err != nil {
		return fail(err)
	}
	name := elems[3]
	if len(name) != nameLen || name[20] != '-' || name[nameLen-len(keySuffix):] != keySuffix {
		return fail(fmt.Errorf("name is not offset-id%s", keySuffix))
	}
	if startOffset, err = strconv.ParseInt(name[:20], 10, 64); err != nil {
		return fail(fmt.Errorf("offset %q is no number", name[:20]))
	}
	if id, err = segment.ParseUUID(name[21 : 21+22]); err != nil {
		return fail(err)
	}
	if id.IsZero() {
		return fail(fmt.Errorf("no segment id"))
	}
	// Signs and leading zeros, which ParseInt lets pass.
	if startOffset < 0 || key != Key(p, startOffset, id) {
		return fail(fmt.Errorf("not spelled as segtier spells it"))
	}
	return p, startOffset, id, nil
}
