package transfer

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/storetest"
)

// golden is the source of object/testdata/golden.seg, whose files Kafka's own
// classes wrote.
func golden(t *testing.T) (src infoSource, h object.Header, want []byte) {
	t.Helper()
	want, err := os.ReadFile("../object/testdata/golden.seg")
	if err != nil {
		t.Fatal(err)
	}
	loc, err := object.LocationOf(want[11627:])
	if err != nil {
		t.Fatal(err)
	}
	tail, err := object.ParseTail(want[loc.TailOffset:], loc)
	if err != nil {
		t.Fatal(err)
	}
	file := func(s object.Section) []byte { return want[tail.Sections[s].Off:][:tail.Sections[s].Len] }
	src.Segment = &testseg.Segment{
		Log: file(object.Log), Offset: file(object.OffsetIndex), Time: file(object.TimeIndex),
		Txn: file(object.TxnIndex), Snapshot: file(object.ProducerSnapshot),
	}
	h = tail.Header
	src.info.Partition, src.info.StartOffset, src.info.EndOffset, src.info.Epochs = h.Partition, h.StartOffset, h.EndOffset, tail.Epochs
	return src, h, want
}

// What is uploaded of a segment that Kafka wrote is the golden object.
func TestGoldenObject(t *testing.T) {
	src, h, want := golden(t)
	p := scan(t, src, ScanOptions{ChunkSize: 4096})
	store := storetest.NewMem()
	if _, err := Upload(context.Background(), newEndpoint(t, store), src, p, h, UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored(t, store, h.Key()), want) {
		t.Error("another object")
	}
}

// The page of stored bytes has the fingerprint's, field by field.
func TestFormatPageFingerprint(t *testing.T) {
	src, _, _ := golden(t)
	got := scan(t, src, ScanOptions{ChunkSize: 4096, PartSize: DefaultPartSize}).Fingerprint()
	page, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "the fingerprint of its plan is:")
	table, _, _ = strings.Cut(strings.TrimLeft(table, "\n"), "\n\n")
	var want strings.Builder
	for _, row := range regexp.MustCompile("\\| \\d+ \\| `([0-9a-f]+)` \\|").FindAllStringSubmatch(table, -1) {
		want.WriteString(row[1])
	}
	if hex.EncodeToString(got) != want.String() {
		t.Errorf("page %s\ncode %x", want.String(), got)
	}
}
