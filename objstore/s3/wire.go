package s3

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/segtier/segtier/checksum"
)

// tokenName is the name in an object's user metadata of the token of the write
// that made it: x-amz-meta-segtier-token.
const tokenName = "segtier-token"

// maxToken bounds an encoded token: S3 allows 2 KiB of user metadata.
const maxToken = 1536

// metadata returns the user metadata of an object written with token. The token
// is escaped, since a header neither keeps all spaces nor may hold any byte.
func metadata(token string) (map[string]string, error) {
	text := url.QueryEscape(token)
	if len(text) > maxToken {
		return nil, errors.New("the upload's token is too long for user metadata")
	}
	return map[string]string{tokenName: text}, nil
}

// token returns the token in an object's user metadata, "" if there is none.
func token(metadata map[string]string) string {
	for name, text := range metadata {
		if strings.EqualFold(name, tokenName) {
			if token, err := url.QueryUnescape(text); err == nil {
				return token
			}
		}
	}
	return ""
}

// tagging returns tags as the header x-amz-tagging wants them.
func tagging(tags map[string]string) *string {
	values := url.Values{}
	for name, value := range tags {
		values.Set(name, value)
	}
	return optional(values.Encode())
}

// parseCRC reads the CRC32C of one run of bytes: base64 of four bytes.
func parseCRC(text string) (uint32, bool) {
	if len(text) != 8 {
		return 0, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// composite returns the CRC32C of a multipart object as S3 puts it together: the
// sum of the parts' sums, and how many they are.
func composite(parts []sentPart) string {
	sums := make([]byte, 0, 4*len(parts))
	for i := range parts {
		sums = binary.BigEndian.AppendUint32(sums, parts[i].sum.CRC32C)
	}
	return checksum.Base64(checksum.CRC32C(sums)) + "-" + strconv.Itoa(len(parts))
}

// unquote strips what is optional off a part's checksum: where S3 shows the sum
// of a part, some services show the suffix of a composite one.
func unquote(text string) string {
	text, _, _ = strings.Cut(text, "-")
	return text
}

// mismatch is the error of bytes that have another sum than they were sent with.
func mismatch(i int, p *sentPart, got string) error {
	crc, ok := parseCRC(got)
	if !ok {
		return fmt.Errorf("the service answered with CRC32C %q", shorten(got, 40))
	}
	return &checksum.MismatchError{What: "part " + strconv.Itoa(i), Off: p.off, Len: p.sum.Len, Want: p.sum.CRC32C, Got: crc}
}
