package index_test

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/segtier/segtier/index"
	"github.com/segtier/segtier/segment"
)

// Made by Kafka's own classes.
func TestSnapshotGolden(t *testing.T) {
	const t0 = 1_700_000_000_000
	for _, c := range []struct {
		name, hex string
		want      []index.Producer
	}{
		{
			"a producer", "00014152357d000000010000000000000fa0000200000013000000000000000c000000020000018bcfe5680a00000003ffffffffffffffff",
			[]index.Producer{{
				ProducerID: 4000, Epoch: 2, LastSequence: 19, LastOffset: 12, OffsetDelta: 2,
				Timestamp: t0 + 10, CoordinatorEpoch: 3, TxnFirstOffset: -1,
			}},
		},
		{
			"only a marker", "0001a63252d0000000010000000000000fa10000ffffffffffffffffffffffff000000000000018bcfe5680affffffffffffffffffffffff",
			[]index.Producer{{
				ProducerID: 4001, LastSequence: -1, LastOffset: -1, Timestamp: t0 + 10, CoordinatorEpoch: -1, TxnFirstOffset: -1,
			}},
		},
		{"no producers", "000148674bc700000000", nil},
	} {
		got, err := index.ParseSnapshot(unhex(t, c.hex))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// sealed makes the CRC of a snapshot right.
func sealed(b []byte) []byte {
	b = slices.Clone(b)
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func TestParseSnapshot(t *testing.T) {
	good := unhex(t, "00014152357d000000010000000000000fa0000200000013000000000000000c000000020000018bcfe5680a00000003ffffffffffffffff")
	count := func(n uint32) []byte {
		b := slices.Clone(good)
		binary.BigEndian.PutUint32(b[6:], n)
		return sealed(b)
	}
	version := slices.Clone(good)
	version[1] = 2
	flipped := slices.Clone(good)
	flipped[20] ^= 1
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "0 bytes"},
		{"short", good[:9], "9 bytes"},
		{"version 2", version, "version 2"},
		{"flipped", flipped, "recorded CRC32C 4152357d"},
		{"cut", good[:40], "recorded CRC32C"},
		{"zeros behind", append(slices.Clone(good), 0), "recorded CRC32C"},
		{"bytes behind", sealed(append(slices.Clone(good), 0)), "1 producers in 47 bytes"},
		{"two of one", count(2), "2 producers in 46 bytes"},
		{"none of one", count(0), "0 producers in 46 bytes"},
		{"2^31-1 producers", count(1<<31 - 1), "2147483647 producers"},
		{"negative count", count(1 << 31), "-2147483648 producers"},
	} {
		got, err := index.ParseSnapshot(c.b)
		refused(t, c.name, err, segment.ProducerSnapshot, -1, c.want)
		if got != nil {
			t.Errorf("%s: %d producers", c.name, len(got))
		}
	}
}
