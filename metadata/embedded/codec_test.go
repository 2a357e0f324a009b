package embedded

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

func goldenSegment() segmentRecord {
	return segmentRecord{order: 3, seg: &metadata.Segment{
		Partition: testPartition(), ID: segment.UUID{0: 0xaa, 15: 0xbb},
		StartOffset: 100, EndOffset: 299, MaxTimestamp: 1_700_000_000_123, EventTimestamp: 1_700_000_000_456,
		BrokerID: 7, LeaderEpoch: 5, SizeBytes: 1 << 30,
		Epochs: segment.Lineage{{Epoch: 4, Start: 100}, {Epoch: 5, Start: 250}},
		Custom: []byte("where"), State: metadata.CopySegmentFinished, TxnIndexEmpty: true,
	}}
}

// TestGoldenRecords pins the bytes of doc.go's tables.
func TestGoldenRecords(t *testing.T) {
	key := segmentKey(keyOf(testPartition()), goldenSegment().seg.ID)
	if got := hex.EncodeToString(key); got != "0000000000000000000000000000000900000004aa0000000000000000000000000000bb" {
		t.Errorf("segment key is %s", got)
	}
	rec := goldenSegment()
	const want = "01" + "01" + "01" + "0000000000000003" +
		"0000000000000064" + "000000000000012b" + "0000018bcfe5687b" + "0000018bcfe569c8" +
		"00000007" + "00000005" + "40000000" + "06" + "7768657265" +
		"00000002" + "00000004" + "0000000000000064" + "00000005" + "00000000000000fa"
	got := rec.encode(key)
	if sum := len(got) - sumSize; hex.EncodeToString(got[:sum]) != want {
		t.Errorf("segment record is\n%x, want\n%s", got[:sum], want)
	}
	part := partitionRecord{partition: testPartition(), epoch: 5, finished: 3}
	pk := keyOf(testPartition())
	got = part.encode(pk[:])
	if sum := len(got) - sumSize; hex.EncodeToString(got[:sum]) != "01"+"00000005"+"0000000000000003"+"06"+hex.EncodeToString([]byte("orders")) {
		t.Errorf("partition record is %x", got[:sum])
	}
}

// TestRecordsRoundTrip: what is written is read, and any flipped bit is noticed.
func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := testPartition()
		start := rapid.Int64Range(0, 1<<62).Draw(t, "start")
		s := &metadata.Segment{
			Partition: p, ID: segment.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
			StartOffset: start, EndOffset: start + rapid.Int64Range(0, 1000).Draw(t, "size"),
			MaxTimestamp: rapid.Int64().Draw(t, "max"), EventTimestamp: rapid.Int64().Draw(t, "event"),
			BrokerID: rapid.Int32().Draw(t, "broker"), LeaderEpoch: rapid.Int32Range(-1, 1<<30).Draw(t, "leader"),
			SizeBytes:     rapid.Int64Range(0, metadata.MaxSegmentSize).Draw(t, "bytes"),
			State:         metadata.State(rapid.IntRange(0, 3).Draw(t, "state")),
			TxnIndexEmpty: rapid.Bool().Draw(t, "txn"),
		}
		s.ID[0] |= 1
		if rapid.Bool().Draw(t, "has custom") {
			s.Custom = rapid.SliceOfN(rapid.Byte(), 0, metadata.MaxCustomSize).Draw(t, "custom")
		}
		for i := range rapid.Int64Range(1, 5).Draw(t, "epochs") {
			if start+i <= s.EndOffset || i == 0 {
				s.Epochs = append(s.Epochs, segment.EpochStart{Epoch: int32(3 * i), Start: start + i})
			}
		}
		r := segmentRecord{seg: s}
		if s.State == metadata.CopySegmentFinished || s.State > metadata.CopySegmentFinished && rapid.Bool().Draw(t, "was finished") {
			r.order = rapid.Uint64Range(1, 1<<60).Draw(t, "order")
		}
		key := segmentKey(keyOf(p), s.ID)
		b := r.encode(key)
		got, err := decodeSegment(p, key, b)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("got %+v, %v, want %+v", got.seg, err, r.seg)
		}
		bit := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeSegment(p, key, b); err == nil {
			t.Fatalf("bit %d flipped: not noticed", bit)
		}
	})
}

// FuzzDecodeSegment: any bytes, with a right checksum, are refused or are what
// would be written again.
func FuzzDecodeSegment(f *testing.F) {
	p := testPartition()
	key := segmentKey(keyOf(p), goldenSegment().seg.ID)
	golden := goldenSegment()
	whole := golden.encode(key)
	f.Add(whole[:len(whole)-sumSize])
	f.Add([]byte{})
	f.Add(make([]byte, segmentFixed+4))
	many := bytes.Clone(whole[:len(whole)-sumSize])
	many[segmentFixed+5] = 0xff // 4 billion leader epochs
	f.Add(many)
	for i, v := range map[int]byte{
		0: 2, // another version
		1: 0, // STARTED, but with a FINISHED event
		2: 3, // unknown flags
		3: 1, 11: 0xff, 19: 0xff, 55: 0x80,
	} {
		changed := bytes.Clone(whole[:len(whole)-sumSize])
		changed[i] = v
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sealed := seal(key, b)
		r, err := decodeSegment(p, key, sealed)
		if err != nil {
			return
		}
		if again := r.encode(key); !bytes.Equal(again, sealed) {
			t.Errorf("%x is read as %+v and written as %x", sealed, r.seg, again)
		}
		if err := r.seg.Validate(); err != nil {
			t.Error(err)
		}
		if s := r.seg.State; s == metadata.CopySegmentStarted && r.order != 0 || s == metadata.CopySegmentFinished && r.order == 0 {
			t.Errorf("%s with FINISHED event %d", s, r.order)
		}
	})
}

// FuzzDecodePartition is the same for partition records.
func FuzzDecodePartition(f *testing.F) {
	key := keyOf(testPartition())
	golden := partitionRecord{partition: testPartition(), epoch: 5, finished: 3}
	whole := golden.encode(key[:])
	f.Add(whole[:len(whole)-sumSize])
	f.Add([]byte{})
	f.Add(make([]byte, partitionFixed))
	f.Add(append(bytes.Clone(whole[:len(whole)-sumSize]), 'x'))
	f.Fuzz(func(t *testing.T, b []byte) {
		sealed := seal(key[:], bytes.Clone(b))
		r, err := decodePartition(key[:], sealed)
		if err != nil {
			return
		}
		if again := r.encode(key[:]); !bytes.Equal(again, sealed) {
			t.Errorf("%x is read as %+v and written as %x", sealed, r, again)
		}
	})
}
