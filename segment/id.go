package segment

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// UUID is Kafka's Uuid: the id of a topic or of a remote log segment.
type UUID [16]byte

// NewUUID returns a random (version 4) UUID that Kafka would generate too: not
// one of its reserved ids, and its text does not begin with '-', which command
// lines would take for a flag.
func NewUUID() UUID {
	for {
		var u UUID
		_, _ = rand.Read(u[:]) // never fails: crypto/rand aborts the program instead
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if u.String()[0] != '-' {
			return u
		}
	}
}

// IsZero reports whether u is Kafka's reserved ZERO_UUID, "no id".
func (u UUID) IsZero() bool { return u == UUID{} }

// String returns u as Kafka prints it: 22 characters of URL-safe base64 without
// padding.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// ParseUUID parses what String returns.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 22 {
		return u, fmt.Errorf("id %q: not 22 characters of base64 as Kafka prints ids", clip(s))
	}
	// Strict: without it 22 characters have four spellings for one id. Line ends
	// are skipped even so, and then bytes are missing.
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("id %q: not URL-safe base64 as Kafka prints ids", s)
	}
	copy(u[:], b)
	return u, nil
}

// MarshalText returns u as Kafka prints it.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText parses what MarshalText returns.
func (u *UUID) UnmarshalText(b []byte) (err error) {
	*u, err = ParseUUID(string(b))
	return err
}

// Partition is Kafka's TopicIdPartition. The topic id decides; a name can be
// used again after its topic was deleted. It is comparable and can key a map.
type Partition struct {
	Topic   string
	TopicID UUID
	Number  int32
}

// String returns "topic/number (topic id)" for messages.
func (p Partition) String() string {
	return p.Topic + "/" + strconv.Itoa(int(p.Number)) + " (" + p.TopicID.String() + ")"
}

// Validate reports what makes p no partition: a topic name that Kafka does not
// allow, no topic id, or a negative number.
func (p Partition) Validate() error {
	if err := ValidateTopic(p.Topic); err != nil {
		return err
	}
	if p.TopicID.IsZero() {
		return fmt.Errorf("partition %s/%d: no topic id", p.Topic, p.Number)
	}
	if p.Number < 0 {
		return fmt.Errorf("partition %s/%d: negative partition number", p.Topic, p.Number)
	}
	return nil
}

// MaxTopicLen is the greatest length of a topic name in bytes.
const MaxTopicLen = 249

// ValidateTopic reports why name is no topic name by Kafka's rules: 1 to 249
// characters of a-z, A-Z, 0-9, '.', '_' and '-', and neither "." nor "..". What
// it accepts is safe as one element of a path or of an object key.
func ValidateTopic(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("topic name is empty")
	case name == "." || name == "..":
		return fmt.Errorf("topic name %q is not allowed", name)
	case len(name) > MaxTopicLen:
		return fmt.Errorf("topic name %q… is %d bytes long, the limit is %d", clip(name), len(name), MaxTopicLen)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("topic name %q: character %q is not allowed (only letters, digits, '.', '_' and '-')", name, c)
		}
	}
	return nil
}

// clip shortens s for an error message.
func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "")
	}
	return s
}
