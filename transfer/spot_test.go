package transfer

import (
	"errors"
	"testing"

	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

// What SpotCheck looks at it judges as Confirm does; what it does not look at, it
// says nothing of.
func TestSpotCheck(t *testing.T) {
	w := copySegment(t, smallSegment(), ScanOptions{ChunkSize: 512, PartSize: 512})
	chunks := len(mustTail(t, w).Table.Chunks)
	for i := range chunks {
		damaged := append([]byte(nil), w.obj...)
		damaged[i*512] ^= 1
		ep := holding(t, w.h.Key(), damaged)
		for j := range chunks {
			var found []*DamageError
			err := SpotCheck(t.Context(), ep, w.h, w.loc, SpotOptions{
				Chunk: func(k, n int) bool { return k == j && n == chunks },
				Found: func(d *DamageError) { found = append(found, d) },
			})
			if i == j && (!errors.Is(err, ErrDamaged) || len(found) != 1 || found[0].Reason != Corrupt || found[0].Off != int64(i*512)) || i != j && err != nil {
				t.Errorf("chunk %d is damaged, %d is read: %v", i, j, err)
			}
		}
	}
	other := w.h
	other.MaxTimestamp++
	var d *DamageError
	if err := SpotCheck(t.Context(), holding(t, w.h.Key(), w.obj), other, w.loc, SpotOptions{}); !errors.As(err, &d) || d.Reason != Mismatch {
		t.Errorf("another record: %v", err)
	}
}

func mustTail(t *testing.T, w copied) *object.Tail {
	t.Helper()
	tail, err := object.ParseTail(w.tail, w.loc)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

// Describe has from the object alone what its record says, or a damage: of every
// byte of the tail that is flipped, of every length that is cut.
func TestDescribe(t *testing.T) {
	w := copySegment(t, smallSegment(), ScanOptions{ChunkSize: 512, PartSize: 512})
	key := w.h.Key()
	tail, loc, err := Describe(t.Context(), holding(t, key, w.obj), key, int64(len(w.obj)))
	if err != nil || !tail.Header.Equal(w.h) || loc != w.loc {
		t.Fatalf("%+v, %+v, %v", tail, loc, err)
	}
	for i := int(loc.TailOffset); i < len(w.obj); i++ {
		damaged := append([]byte(nil), w.obj...)
		damaged[i] ^= 1 << (i % 8)
		if _, _, err := Describe(t.Context(), holding(t, key, damaged), key, int64(len(damaged))); !errors.Is(err, ErrDamaged) && !errors.Is(err, object.ErrVersion) {
			t.Fatalf("byte %d of %d flipped: %v", i, len(w.obj), err)
		}
	}
	for n := 1; n < len(w.obj); n += 7 {
		if _, _, err := Describe(t.Context(), holding(t, key, w.obj[:n]), key, int64(n)); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	other := w.h
	other.SegmentID[3]++
	if _, _, err := Describe(t.Context(), holding(t, other.Key(), w.obj), other.Key(), int64(len(w.obj))); !errors.Is(err, ErrDamaged) {
		t.Errorf("under the key of another segment: %v", err)
	}
	if _, _, err := Describe(t.Context(), holding(t, "x", w.obj), key, int64(len(w.obj))); !errors.Is(err, ErrDamaged) {
		t.Errorf("missing: %v", err)
	}
}

// holding returns an endpoint of a store that holds b under key.
func holding(t *testing.T, key string, b []byte) *endpoint.Endpoint {
	t.Helper()
	store := storetest.NewMem()
	put(t, store, key, b)
	return newEndpoint(t, store)
}
