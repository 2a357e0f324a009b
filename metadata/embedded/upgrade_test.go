package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/segment"
)

// payments is the second partition of testdata/v1.db.
func payments() segment.Partition {
	return segment.Partition{Topic: "payments", TopicID: segment.UUID{15: 10}}
}

// describe is what the release that wrote testdata/v1.db said of it.
func describe(t *testing.T, s *Store) string {
	t.Helper()
	var b strings.Builder
	for _, p := range []segment.Partition{testPartition(), payments()} {
		v, err := s.View(p)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", p)
		for s := range v.All() {
			fmt.Fprintf(&b, "  %s %d-%d %s %v broker %d epoch %d size %d max %d event %d custom %x txn %v\n",
				s.ID, s.StartOffset, s.EndOffset, s.State, s.Epochs, s.BrokerID, s.LeaderEpoch, s.SizeBytes, s.MaxTimestamp, s.EventTimestamp, s.Custom, s.TxnIndexEmpty)
		}
		fmt.Fprintf(&b, "  lineage %v\n", v.Lineage())
		for e := range int32(5) {
			h, ok := v.HighestOffset(e)
			fmt.Fprintf(&b, "  highest of %d: %d %v\n", e, h, ok)
		}
		for o := range int64(42) {
			if s, ok := v.Lookup(nil, o); ok {
				fmt.Fprintf(&b, "  %d: %d-%d\n", o, s.StartOffset, s.EndOffset)
			}
		}
		fmt.Fprintf(&b, "  copied up to %d\n", v.CopiedUpTo(nil))
	}
	return b.String()
}

// old returns a copy of the file that version 1 wrote, and what it said of it.
func old(t *testing.T) (path, want string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "v1.db"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "v1.txt"))
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "m.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, string(text)
}

func formatOf(t *testing.T, path string) (format uint32) {
	t.Helper()
	damage(t, path, func(tx *bolt.Tx) error {
		format = binary.BigEndian.Uint32(tx.Bucket([]byte(fileBucket)).Get([]byte(formatKey)))
		return nil
	})
	return format
}

// TestUpgrade: a file of version 1 says the same after it was upgraded, and has
// what version 2 needs.
func TestUpgrade(t *testing.T) {
	path, want := old(t)
	for _, o := range []Options{{ReadOnly: true}, {}, {}} {
		s := mustOpen(t, path, o)
		if got := describe(t, s); got != want {
			t.Fatalf("read-only %v: it says\n%s\nversion 1 said\n%s", o.ReadOnly, got, want)
		}
		v, err := s.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		ended := 0
		for s := range v.Ended() {
			ended++
			if s.StartOffset != 30 || s.State != metadata.DeleteSegmentFinished {
				t.Errorf("ended: %v", s)
			}
		}
		if ended != 1 {
			t.Errorf("%d segments have ended", ended)
		}
		_ = s.Close()
		wantFormat := uint32(formatVersion)
		if o.ReadOnly {
			wantFormat = 1
		}
		if got := formatOf(t, path); got != wantFormat {
			t.Errorf("read-only %v: format %d, want %d", o.ReadOnly, got, wantFormat)
		}
	}
	// Fencing and FINISHED events go on where they were.
	s := mustOpen(t, path, Options{})
	sample := metadatatest.NewSample(t, testPartition(), 50, 59, nil)
	late := metadata.Writer{BrokerID: 1, LeaderEpoch: 4}
	if err := s.Publish(t.Context(), sample.Event(t, metadata.CopySegmentStarted, late)); !errors.Is(err, metadata.ErrFenced) {
		t.Errorf("an older writer: %v", err)
	}
	publish(t, s, 0, 20, metadata.CopySegmentFinished)
	v, err := s.View(testPartition())
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := v.Lookup(segment.Lineage{{Epoch: 0, Start: 0}}, 6); !ok || got.EndOffset != 20 {
		t.Errorf("the last one that was FINISHED is %d-%d", got.StartOffset, got.EndOffset)
	}
}

// TestUpgradeKeepsHighestOffsets: version 1 kept them with the records of segments
// that have ended, which are forgotten now.
func TestUpgradeKeepsHighestOffsets(t *testing.T) {
	path, _ := old(t)
	now := time.UnixMilli(1_800_000_000_000)
	s := mustOpen(t, path, Options{Now: func() time.Time { return now }})
	now = now.Add(keepEnded)
	ev := metadatatest.NewSample(t, payments(), 20, 29, nil).Event(t, metadata.CopySegmentStarted, testWriter())
	if err := s.Publish(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		v, err := s.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		for range v.Ended() {
			t.Error("a segment that has ended is still known")
		}
		if got, ok := v.HighestOffset(3); !ok || got != 39 {
			t.Errorf("highest offset of epoch 3: %d, %v", got, ok)
		}
		_ = s.Close()
		s = mustOpen(t, path, Options{})
	}
}

// TestUpgradeIsAllOrNothing: a file of version 1 that cannot be understood stays
// as it is.
func TestUpgradeIsAllOrNothing(t *testing.T) {
	path, _ := old(t)
	damage(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(segmentsBucket))
		k, v := b.Cursor().Last()
		v = bytes.Clone(v)
		v[9] ^= 1
		return b.Put(bytes.Clone(k), v)
	})
	if _, err := Open(path, Options{}); !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if got := formatOf(t, path); got != 1 {
		t.Errorf("format %d", got)
	}
	damage(t, path, func(tx *bolt.Tx) error {
		if tx.Bucket([]byte(endedBucket)) != nil {
			t.Error("half upgraded")
		}
		return nil
	})
}

// TestLogStart: it only moves forward, obeys the fence, and stays.
func TestLogStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{})
	publish(t, s, 0, 9, metadata.CopySegmentFinished)
	if at, ok := s.LogStart(testPartition()); ok {
		t.Errorf("log start %d before it was set", at)
	}
	watched := s.Watch(testPartition())
	for _, at := range []int64{5, 7, 6, 7} {
		if err := s.SetLogStart(t.Context(), testPartition(), at, testWriter()); err != nil {
			t.Fatal(err)
		}
	}
	<-watched
	if err := s.SetLogStart(t.Context(), testPartition(), 8, metadata.Writer{LeaderEpoch: 4}); !errors.Is(err, metadata.ErrFenced) {
		t.Errorf("an older writer: %v", err)
	}
	for range 2 {
		v, err := s.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		at, ok := s.LogStart(testPartition())
		first, _, _ := v.EarliestOffset(nil)
		if at != 7 || !ok || v.LogStart() != 7 || first != 7 {
			t.Errorf("log start %d, %v; the view says %d, the earliest offset is %d", at, ok, v.LogStart(), first)
		}
		_ = s.Close()
		s = mustOpen(t, path, Options{})
	}
	_ = s.Close()
	if err := s.SetLogStart(context.Background(), testPartition(), 9, testWriter()); !errors.Is(err, metadata.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestRemember takes over what another store knew, and nothing less than before.
func TestRemember(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := mustOpen(t, path, Options{})
	publish(t, s, 0, 9, metadata.CopySegmentFinished)
	info := metadata.PartitionInfo{LogStart: 3, Epochs: []metadata.EpochInfo{
		{Epoch: 0, Start: 0, Highest: 5}, {Epoch: 2, Start: 50, Highest: 80},
	}}
	if err := s.Remember(t.Context(), testPartition(), info, testWriter()); err != nil {
		t.Fatal(err)
	}
	if err := s.Remember(t.Context(), testPartition(), metadata.PartitionInfo{LogStart: -1}, testWriter()); err == nil {
		t.Error("nonsense was taken")
	}
	for range 2 {
		v, err := s.View(testPartition())
		if err != nil {
			t.Fatal(err)
		}
		for epoch, want := range map[int32]int64{0: 9, 2: 80} {
			if got, ok := v.HighestOffset(epoch); !ok || got != want {
				t.Errorf("highest offset of epoch %d: %d, want %d", epoch, got, want)
			}
		}
		if v.LogStart() != 3 {
			t.Errorf("log start %d", v.LogStart())
		}
		_ = s.Close()
		s = mustOpen(t, path, Options{})
	}
}
