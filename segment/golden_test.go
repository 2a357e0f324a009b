package segment_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/segment"
)

// The bytes in this file and in testdata were made by Kafka's own classes.

const t0 = 1_700_000_000_000

// golden is a batch and what Kafka's classes read from it.
type golden struct {
	name    string
	hex     string
	header  segment.Header // Size and CRC are those in the bytes
	records []segment.Record
}

// v2 is the header of the batches in this file unless changed.
func v2(change func(h *segment.Header)) segment.Header {
	h := segment.Header{
		BaseOffset: 10, LastOffset: 12, LeaderEpoch: 5, Magic: 2, BaseTimestamp: t0, MaxTimestamp: t0 + 5,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Count: 3,
	}
	if change != nil {
		change(&h)
	}
	return h
}

// three are the records of most of them.
func three(times ...int64) []segment.Record {
	if times == nil {
		times = []int64{t0, t0 + 5, t0 + 3}
	}
	return []segment.Record{
		{Offset: 10, Timestamp: times[0], Key: []byte("k1"), Value: []byte("v1")},
		{
			Offset: 11, Timestamp: times[1], Value: []byte("value-two"),
			Headers: []segment.RecordHeader{{Key: "h", Value: []byte{9}}, {Key: "n"}},
		},
		{Offset: 12, Timestamp: times[2], Key: []byte("k3")},
	}
}

// marker is a control batch and its record.
func marker(offset, ts int64, kind byte) (segment.Header, []segment.Record) {
	h := v2(func(h *segment.Header) {
		h.BaseOffset, h.LastOffset, h.Count = offset, offset, 1
		h.BaseTimestamp, h.MaxTimestamp = ts, ts
		h.Attributes, h.ProducerID, h.ProducerEpoch = 0x30, 4000, 2
	})
	return h, []segment.Record{{Offset: offset, Timestamp: ts, Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 3}}}
}

func goldenBatches() []golden {
	commit, commitRecords := marker(20, t0+10, 1)
	abort, abortRecords := marker(21, t0+11, 0)
	return []golden{
		{
			"none, create time",
			"000000000000000a0000005c00000005026fdc47840000000000020000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff0000000314000000046b31047631002c000a02011276616c75652d74776f0402680209026e0110000604046b330100",
			v2(nil), three(),
		},
		{
			"none, log append time",
			"000000000000000a0000005c0000000502e156b6f10008000000020000018bcfe568000000018bcfe58f0fffffffffffffffffffffffffffff0000000314000000046b31047631002c000a02011276616c75652d74776f0402680209026e0110000604046b330100",
			v2(func(h *segment.Header) { h.Attributes, h.MaxTimestamp = 0x08, t0+9999 }), three(t0+9999, t0+9999, t0+9999),
		},
		{
			"none, transactional",
			"000000000000000a0000005c0000000502cbe5b6f90010000000020000018bcfe568000000018bcfe568050000000000000fa00002000000110000000314000000046b31047631002c000a02011276616c75652d74776f0402680209026e0110000604046b330100",
			v2(func(h *segment.Header) {
				h.Attributes, h.ProducerID, h.ProducerEpoch, h.BaseSequence = 0x10, 4000, 2, 17
			}), three(),
		},
		{
			"lz4",
			"000000000000000a0000006b00000005021ebc86410003000000020000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff0000000304224d186040822b00008014000000046b31047631002c000a02011276616c75652d74776f0402680209026e0110000604046b33010000000000",
			v2(func(h *segment.Header) { h.Attributes = 3 }), three(),
		},
		{
			"gzip",
			"000000000000000a0000007000000005025054f2ed0001000000020000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff000000031f8b08000000000000ff1361606060c93664293364d061e06262142a4bcc294dd52d29cf6761ca60e264ca631460606361c93666640000a18573f32b000000",
			v2(func(h *segment.Header) { h.Attributes = 1 }), three(),
		},
		{
			"snappy", // only records 1 and 3
			"000000000000000a0000005b00000005027faa7a9c0002000000010000018bcfe568000000018bcfe56803ffffffffffffffffffffffffffff0000000282534e4150505900000000010000000100000016144c14000000046b310476310010000602046b330100",
			v2(func(h *segment.Header) { h.Attributes, h.LastOffset, h.Count, h.MaxTimestamp = 2, 11, 2, t0+3 }),
			[]segment.Record{three()[0], {Offset: 11, Timestamp: t0 + 3, Key: []byte("k3")}},
		},
		{
			"commit marker",
			"00000000000000140000004200000005029d6739a10030000000000000018bcfe5680a0000018bcfe5680a0000000000000fa00002ffffffff000000012000000008000000010c00000000000300",
			commit, commitRecords,
		},
		{
			"abort marker",
			"00000000000000150000004200000005023ac4706a0030000000000000018bcfe5680b0000018bcfe5680b0000000000000fa00002ffffffff000000012000000008000000000c00000000000300",
			abort, abortRecords,
		},
		{
			"emptied by compaction",
			"000000000000001e00000031000000050263067409001000000004ffffffffffffffff0000018bcfe568630000000000000fa000020000001100000000",
			v2(func(h *segment.Header) {
				h.BaseOffset, h.LastOffset, h.Count, h.BaseTimestamp, h.MaxTimestamp = 30, 34, 0, -1, t0+99
				h.Attributes, h.ProducerID, h.ProducerEpoch, h.BaseSequence = 0x10, 4000, 2, 17
			}), nil,
		},
		{
			"delete horizon",
			"000000000000000a000000490000000502017fd90c0040000000010000018bcfed09200000018bcfe56805ffffffffffffffffffffffffffff000000021400bf843d00046b3101001800b5843d02046b3204763200",
			v2(func(h *segment.Header) {
				h.Attributes, h.LastOffset, h.Count, h.BaseTimestamp = 0x40, 11, 2, t0+500_000
			}),
			[]segment.Record{
				{Offset: 10, Timestamp: t0, Key: []byte("k1")},
				{Offset: 11, Timestamp: t0 + 5, Key: []byte("k2"), Value: []byte("v2")},
			},
		},
	}
}

func TestGoldenBatches(t *testing.T) {
	var d segment.Decoder
	for _, g := range goldenBatches() {
		t.Run(g.name, func(t *testing.T) {
			raw := unhex(t, g.hex)
			h, err := segment.VerifyBatch(raw)
			if err != nil {
				t.Fatal(err)
			}
			if h.Size != int32(len(raw)) {
				t.Errorf("Size = %d, want %d", h.Size, len(raw))
			}
			h.Size, h.CRC = 0, 0
			if h != g.header {
				t.Errorf("header\ngot  %+v\nwant %+v", h, g.header)
			}
			checkRecords(t, &d, raw, g.records)
		})
	}
}

func TestGoldenAttributes(t *testing.T) {
	codecs := map[string]segment.Codec{"lz4": segment.CodecLZ4, "gzip": segment.CodecGzip, "snappy": segment.CodecSnappy}
	for _, g := range goldenBatches() {
		h := g.header
		isMarker := strings.HasSuffix(g.name, "marker")
		if got := h.Codec(); got != codecs[g.name] {
			t.Errorf("%s: Codec = %v", g.name, got)
		}
		if got, want := h.LogAppendTime(), g.name == "none, log append time"; got != want {
			t.Errorf("%s: LogAppendTime = %v", g.name, got)
		}
		if got, want := h.Transactional(), isMarker || h.ProducerID == 4000; got != want {
			t.Errorf("%s: Transactional = %v", g.name, got)
		}
		if got := h.Control(); got != isMarker {
			t.Errorf("%s: Control = %v", g.name, got)
		}
		ms, ok := h.DeleteHorizon()
		if want := g.name == "delete horizon"; ok != want || ok && ms != t0+500_000 {
			t.Errorf("%s: DeleteHorizon = %d, %v", g.name, ms, ok)
		}
	}
}

// Offsets 10 and 11, ("k1", "v1") and (null, "v2") 5 ms later.
func TestGoldenOldFormats(t *testing.T) {
	for _, g := range []struct {
		name, hex string
		headers   []segment.Header
	}{
		{
			"v0 none",
			"000000000000000a0000001257e7496e0000000000026b31000000027631000000000000000b00000010d5960a780000ffffffff000000027632",
			[]segment.Header{old(0, 10, 0, -1, 1), old(0, 11, 0, -1, 1)},
		},
		{
			"v1 none",
			"000000000000000a0000001aa5da6a6201000000018bcfe56800000000026b31000000027631000000000000000b00000018820bfd0301000000018bcfe56805ffffffff000000027632",
			[]segment.Header{old(1, 10, 0, t0, 1), old(1, 11, 0, t0+5, 1)},
		},
		{
			"v0 gzip",
			"000000000000000b00000047d19cd4fe0001ffffffff000000391f8b08000000000000ff636000032e20160a7fee9907e631651b82c8324388240337100b5c9dc655c1c0f01f08c072460055fb8b673a000000",
			[]segment.Header{old(0, 11, 1, -1, 0)},
		},
		{
			"v1 gzip",
			"000000000000000b0000005548230c2401010000018bcfe56805ffffffff0000003f1f8b08000000000000ff63608003a9a5b7b29218810cc6eef34f3340224cd98620b2cc10aa022429d1c4fd9719ae8af53f1080d518010006f707a94a000000",
			[]segment.Header{old(1, 11, 1, t0+5, 0)},
		},
	} {
		t.Run(g.name, func(t *testing.T) {
			raw := unhex(t, g.hex)
			var headers []segment.Header
			var records []segment.Record
			var d segment.Decoder
			w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
				entry := raw[pos : pos+int64(h.Size)]
				if _, err := segment.VerifyBatch(entry); err != nil {
					t.Errorf("VerifyBatch: %v", err)
				}
				h.Size, h.CRC = 0, 0
				headers = append(headers, h)
				return d.Records(entry, func(r segment.Record) bool {
					records = append(records, clone(r))
					return true
				})
			}}
			if _, err := w.Write(raw); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(headers, g.headers) {
				t.Errorf("headers\ngot  %+v\nwant %+v", headers, g.headers)
			}
			want := []segment.Record{
				{Offset: 10, Timestamp: t0, Key: []byte("k1"), Value: []byte("v1")},
				{Offset: 11, Timestamp: t0 + 5, Value: []byte("v2")},
			}
			if g.headers[0].Magic == 0 {
				want[0].Timestamp, want[1].Timestamp = -1, -1
			}
			equalRecords(t, records, want)
		})
	}
}

// old is the header of an entry of magic 0 or 1.
func old(magic int8, offset int64, attributes int16, ts int64, count int32) segment.Header {
	return segment.Header{
		BaseOffset: offset, LastOffset: offset, LeaderEpoch: -1, Magic: magic, Attributes: attributes,
		BaseTimestamp: ts, MaxTimestamp: ts, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Count: count,
	}
}

// Larger batches: several blocks of each codec, and message sets of 100 records
// as several wrappers.
func TestGoldenFiles(t *testing.T) {
	var d segment.Decoder
	for _, name := range goldenFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var got []segment.Record
			w := segment.Walker{Batch: func(pos int64, h segment.Header) error {
				if want := filepath.Base(name); h.Magic == 2 && !strings.Contains(want, h.Codec().String()) {
					t.Errorf("codec %v", h.Codec())
				}
				return d.Records(raw[pos:pos+int64(h.Size)], func(r segment.Record) bool {
					got = append(got, clone(r))
					return true
				})
			}}
			if _, err := w.Write(raw); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			equalRecords(t, got, goldenRecords(filepath.Base(name)))
		})
	}
}

func goldenFiles(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(names) != 7 {
		t.Fatalf("golden files: %v, %v", names, err)
	}
	return names
}

// goldenRecords are the records of a golden file, by its name.
func goldenRecords(name string) []segment.Record {
	n, magic := 200, 2
	if strings.HasPrefix(name, "set-") {
		n, magic = 100, int(name[5]-'0')
	}
	out := make([]segment.Record, n)
	for i := range out {
		r := &out[i]
		*r = segment.Record{Offset: 1000 + int64(i), Timestamp: t0 + int64(i), Key: fmt.Appendf(nil, "key-%d", i), Value: goldenValue(i)}
		switch magic {
		case 0:
			r.Timestamp = -1
		case 2:
			if i%7 == 0 {
				r.Key = nil
			}
			if i%11 == 0 {
				r.Value = nil
			}
			if i%5 == 0 {
				r.Headers = []segment.RecordHeader{{Key: fmt.Sprintf("hdr-%d", i), Value: fmt.Appendf(nil, "hv%d", i)}}
			}
		}
	}
	return out
}

// goldenValue is the value that the golden files give record i: half noise, half
// letters.
func goldenValue(i int) []byte {
	out := make([]byte, 600)
	x := uint64(i)*2654435761 + 12345
	for k := range out {
		if k%8 == 0 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		out[k] = 'a' + byte(k%26)
		if k%3 == 0 {
			out[k] = byte(x >> 33)
		}
	}
	return out
}

// The test's own encoder makes the same bytes as Kafka's where there is only one
// way to.
func TestGoldenEncoder(t *testing.T) {
	p := &testseg.Producer{ID: 4000, Epoch: 2, Sequence: 17}
	plain := testseg.Batch{BaseOffset: 10, LeaderEpoch: 5, Records: three()}
	appended, txn := plain, plain
	appended.LogAppendTime, appended.MaxTimestamp = true, t0+9999
	txn.Transactional, txn.Producer = true, p
	horizon := testseg.Batch{BaseOffset: 10, LeaderEpoch: 5, DeleteHorizon: t0 + 500_000, Records: goldenBatches()[9].records}
	want := map[string]testseg.Batch{
		"none, create time":     plain,
		"none, log append time": appended,
		"none, transactional":   txn,
		"commit marker":         testseg.Marker(20, t0+10, 5, *p, true),
		"abort marker":          testseg.Marker(21, t0+11, 5, *p, false),
		"emptied by compaction": {BaseOffset: 30, LastOffset: 34, LeaderEpoch: 5, MaxTimestamp: t0 + 99, Producer: p, Transactional: true},
		"delete horizon":        horizon,
	}
	for _, g := range goldenBatches() {
		b, ok := want[g.name]
		if !ok {
			continue
		}
		if got := hex.EncodeToString(b.Append(nil)); got != g.hex {
			t.Errorf("%s\ngot  %s\nwant %s", g.name, got, g.hex)
		}
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// clone copies a record beyond the end of yield.
func clone(r segment.Record) segment.Record {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	return r
}

// checkRecords decodes raw and compares its records.
func checkRecords(t testing.TB, d *segment.Decoder, raw []byte, want []segment.Record) {
	t.Helper()
	var got []segment.Record
	err := d.Records(raw, func(r segment.Record) bool {
		got = append(got, clone(r))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	equalRecords(t, got, want)
}

// equalRecords compares records, null and empty being different.
func equalRecords(t testing.TB, got, want []segment.Record) {
	t.Helper()
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		equal := g.Offset == w.Offset && g.Timestamp == w.Timestamp && same(g.Key, w.Key) && same(g.Value, w.Value)
		equal = equal && slices.EqualFunc(g.Headers, w.Headers, func(a, b segment.RecordHeader) bool {
			return a.Key == b.Key && same(a.Value, b.Value)
		})
		if !equal {
			t.Fatalf("record %d\ngot  %.200q\nwant %.200q", i, fmt.Sprint(g), fmt.Sprint(w))
		}
	}
}
