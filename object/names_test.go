package object

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
)

const (
	goldenKey   = "orders.eu/AAECAwQFBgcICQoLDA0ODw/7/00000000000000000100-EBESExQVFhcYGRobHB0eHw.seg"
	goldenOwner = "{\"format\":1,\"metadataId\":\"9dWbv3fvSeGiWeIgDNTrMw\"}\n"
)

func TestKey(t *testing.T) {
	if got := goldenInput(t).Header.Key(); got != goldenKey {
		t.Errorf("got %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := segment.Partition{
			Topic:   rapid.StringMatching(`[a-zA-Z0-9._-]{3,249}`).Draw(t, "topic"),
			TopicID: drawUUID(t, "topic id"), Number: rapid.Int32Min(0).Draw(t, "partition"),
		}
		start, id := rapid.Int64Min(0).Draw(t, "start"), drawUUID(t, "id")
		key := Key(p, start, id)
		if err := objstore.ValidateKey(key); err != nil {
			t.Fatal(err)
		}
		gp, gs, gi, err := ParseKey(key)
		if err != nil || gp != p || gs != start || gi != id {
			t.Fatalf("%q: got %v %d %v (%v)", key, gp, gs, gi, err)
		}
	})
}

// Keys of a partition sort as their offsets do.
func TestKeysSort(t *testing.T) {
	h := goldenInput(t).Header
	var keys []string
	for _, start := range []int64{0, 9, 10, 99, 1 << 31, 1 << 62} {
		keys = append(keys, Key(h.Partition, start, h.SegmentID))
	}
	if !slices.IsSorted(keys) {
		t.Error(keys)
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for name, key := range map[string]string{
		"empty":             "",
		"owner marker":      OwnerKey,
		"with prefix":       "tier/" + goldenKey,
		"leading slash":     "/" + goldenKey,
		"three elements":    goldenKey[strings.Index(goldenKey, "/")+1:],
		"topic dots":        ".." + goldenKey[len("orders.eu"):],
		"topic empty":       goldenKey[len("orders.eu"):],
		"topic character":   strings.Replace(goldenKey, "orders", "ord rs", 1),
		"topic id short":    strings.Replace(goldenKey, "AAECAwQFBgcICQoLDA0ODw", "AAECAwQFBgcICQoLDA0OD", 1),
		"topic id zero":     strings.Replace(goldenKey, "AAECAwQFBgcICQoLDA0ODw", "AAAAAAAAAAAAAAAAAAAAAA", 1),
		"topic id spelling": strings.Replace(goldenKey, "AAECAwQFBgcICQoLDA0ODw", "AAECAwQFBgcICQoLDA0ODx", 1),
		"partition zeros":   strings.Replace(goldenKey, "/7/", "/07/", 1),
		"partition sign":    strings.Replace(goldenKey, "/7/", "/+7/", 1),
		"partition minus":   strings.Replace(goldenKey, "/7/", "/-7/", 1),
		"partition large":   strings.Replace(goldenKey, "/7/", "/2147483648/", 1),
		"partition none":    strings.Replace(goldenKey, "/7/", "//", 1),
		"offset sign":       strings.Replace(goldenKey, "/00000000000000000100", "/+0000000000000000100", 1),
		"offset minus":      strings.Replace(goldenKey, "/00000000000000000100", "/-0000000000000000100", 1),
		"offset short":      strings.Replace(goldenKey, "/00000000000000000100", "/0000000000000000100", 1),
		"offset large":      strings.Replace(goldenKey, "/00000000000000000100", "/99999999999999999999", 1),
		"no dash":           strings.Replace(goldenKey, "100-", "100_", 1),
		"id zero":           strings.Replace(goldenKey, "EBESExQVFhcYGRobHB0eHw", "AAAAAAAAAAAAAAAAAAAAAA", 1),
		"id spelling":       strings.Replace(goldenKey, "EBESExQVFhcYGRobHB0eHw", "EBESExQVFhcYGRobHB0eHx", 1),
		"suffix":            strings.Replace(goldenKey, ".seg", ".tmp", 1),
		"suffix more":       goldenKey + "x",
		"line feed":         goldenKey + "\n",
	} {
		p, start, id, err := ParseKey(key)
		if err == nil {
			t.Errorf("%s: %q accepted", name, key)
			continue
		}
		if !errors.Is(err, ErrCorrupt) || p != (segment.Partition{}) || start != 0 || !id.IsZero() {
			t.Errorf("%s: %v %d %v, %v", name, p, start, id, err)
		}
		if len(err.Error()) > 400 {
			t.Errorf("%s: error of %d bytes", name, len(err.Error()))
		}
	}
}

func TestLocation(t *testing.T) {
	_, want := golden(t)
	b := want.Append([]byte("prefix"))[len("prefix"):]
	if len(b) != 31 {
		t.Errorf("%d bytes", len(b))
	}
	got, err := ParseLocation(b)
	if err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	for i := range b {
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if l, err := ParseLocation(c); err == nil || l != (Location{}) {
				t.Errorf("byte %d, bit %d flipped: %+v, %v", i, bit, l, err)
			}
		}
		if _, err := ParseLocation(b[:i]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := ParseLocation(append(bytes.Clone(b), 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("one byte longer: %v", err)
	}
}

// What parses is safe to allocate for, whoever wrote it with a right sum.
func TestLocationBounds(t *testing.T) {
	_, good := golden(t)
	for name, c := range map[string]struct {
		change func(*Location)
		want   error
	}{
		"codec":          {func(l *Location) { l.Codec = 1 }, ErrVersion},
		"negative size":  {func(l *Location) { l.ObjectSize = -1 }, ErrCorrupt},
		"huge size":      {func(l *Location) { l.ObjectSize = 1 << 62 }, ErrCorrupt},
		"negative tail":  {func(l *Location) { l.TailOffset = -1 }, ErrCorrupt},
		"no head":        {func(l *Location) { l.TailOffset = 0 }, ErrCorrupt},
		"no tail":        {func(l *Location) { l.TailOffset = l.ObjectSize }, ErrCorrupt},
		"no trailer":     {func(l *Location) { l.TailOffset = l.ObjectSize - TrailerSize + 1 }, ErrCorrupt},
		"tail too large": {func(l *Location) { l.ObjectSize = l.TailOffset + MaxTailSize + 1 }, ErrCorrupt},
	} {
		l := good
		c.change(&l)
		if _, err := ParseLocation(l.Append(nil)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ParseTail(nil, l); !errors.Is(err, c.want) {
			t.Errorf("%s: ParseTail: %v", name, err)
		}
	}
	newer := good.Append(nil)
	newer[1] = 2
	if _, err := ParseLocation(append(newer, "and more"...)); !errors.Is(err, ErrVersion) {
		t.Errorf("a newer version: %v", err)
	}
}

func TestOwner(t *testing.T) {
	o := Owner{MetadataID: "9dWbv3fvSeGiWeIgDNTrMw"}
	b, err := o.Marshal()
	if err != nil || string(b) != goldenOwner {
		t.Errorf("got %q (%v)", b, err)
	}
	got, err := ParseOwner(b)
	if err != nil || got.MetadataID != o.MetadataID || got.Format != 1 {
		t.Errorf("got %+v (%v)", got, err)
	}
	for _, id := range []string{"", strings.Repeat("x", 257), "a b", "a\"b", `a\b`, "a<b", "a\nb", "ä", "\x00"} {
		if b, err := (Owner{MetadataID: id}).Marshal(); err == nil {
			t.Errorf("id %q: %q", id, b)
		}
	}
	if _, err := (Owner{MetadataID: "x", Format: 2}).Marshal(); !errors.Is(err, ErrVersion) {
		t.Errorf("format 2: %v", err)
	}
}

func TestParseOwnerRefuses(t *testing.T) {
	for b, want := range map[string]error{
		"":                                     ErrCorrupt,
		"{}":                                   ErrCorrupt,
		"null":                                 ErrCorrupt,
		`{"format":1}` + "\n":                  ErrCorrupt,
		`{"format":0,"metadataId":"x"}` + "\n": ErrCorrupt,
		`{"format":-1,"metadataId":"x"}`:       ErrCorrupt,
		`{"format":1,"metadataId":"x"}`:        ErrCorrupt, // no line feed
		goldenOwner + "x":                      ErrCorrupt,
		" " + goldenOwner:                      ErrCorrupt,
		strings.ToUpper(goldenOwner):           ErrCorrupt,
		`{"format":2,"metadataId":"x","y":1}`:  ErrVersion,
		`{"format":2,"y":"` + strings.Repeat("x", 5000) + `"}`:             ErrCorrupt, // nobody needs as much
		`{"format":1,"metadataId":"` + strings.Repeat("x", 5000) + "\"}\n": ErrCorrupt,
	} {
		if o, err := ParseOwner([]byte(b)); !errors.Is(err, want) || o != (Owner{}) {
			t.Errorf("%.60q: %+v, %v", b, o, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(goldenKey)
	f.Add(OwnerKey)
	f.Add("a/b/c/d")
	f.Fuzz(func(t *testing.T, key string) {
		p, start, id, err := ParseKey(key)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		if Key(p, start, id) != key || p.Validate() != nil || id.IsZero() || start < 0 {
			t.Errorf("%q: %v %d %v", key, p, start, id)
		}
	})
}

func FuzzParseLocation(f *testing.F) {
	_, loc := golden(f)
	f.Add(loc.Append(nil), false)
	f.Add([]byte("L"), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= locationSize { // so that the fuzzer gets past the sum
			b = b[:locationSize]
			putUint32(b[locationSize-4:], checksum.CRC32C(b[:locationSize-4]))
		}
		l, err := ParseLocation(b)
		if err != nil {
			return
		}
		if !bytes.Equal(l.Append(nil), b) || l.TailSize() > MaxTailSize || l.TailSize() < TrailerSize || l.TailOffset <= 0 {
			t.Errorf("% x: %+v", b, l)
		}
	})
}

func FuzzParseOwner(f *testing.F) {
	f.Add([]byte(goldenOwner))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOwner(b)
		if err != nil {
			return
		}
		if again, err := o.Marshal(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%q: %q (%v)", b, again, err)
		}
	})
}

// FuzzParseTail mutates the sections of a tail, and makes all sums fit, so that
// every check is reached.
func FuzzParseTail(f *testing.F) {
	r := rawGolden(f)
	f.Add(r.sections[rawTxn], r.sections[rawEpochs], r.sections[rawTable], r.sections[rawHeader], []byte{}, uint16(0))
	f.Add([]byte{}, []byte("0\n1\n0 0\n"), []byte{}, []byte{}, []byte{1, 2}, uint16(106))
	f.Fuzz(func(t *testing.T, txn, epochs, table, header, trailer []byte, at uint16) {
		r := &rawTail{head: goldenInput(t).Head, sections: [4][]byte{txn, epochs, table, header}, sealed: true}
		if len(trailer) > 0 {
			r.trailer = func(b []byte) { copy(b[int(at)%len(b):], trailer) }
		}
		loc, b := r.build()
		tail, err := ParseTail(b, loc)
		if err != nil {
			if tail != nil || errors.Is(err, ErrCorrupt) == errors.Is(err, ErrVersion) {
				t.Errorf("%v, %v", tail, err)
			}
			return
		}
		// One spelling: what parses is what the writer makes of it.
		again, err := AppendTail(nil, TailInput{Header: tail.Header, Table: tail.Table, Head: r.head, TxnIndex: txn, Epochs: tail.Epochs})
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("parses, and is written as other bytes (%v)", err)
		}
		tail.Table.ForOffset(tail.Header.StartOffset)
		tail.Table.ForTime(tail.Header.MaxTimestamp)
	})
}

// FuzzTailOffset feeds the bytes that a rebuild reads without a location.
func FuzzTailOffset(f *testing.F) {
	tail, loc := golden(f)
	f.Add(tail, loc.ObjectSize)
	f.Add(tail[len(tail)-TrailerSize:], loc.ObjectSize)
	f.Add([]byte{}, int64(-1))
	f.Add(tail[len(tail)-100:], loc.ObjectSize)
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		if at, err := TailOffset(b, size); err == nil && (at <= 0 || at > size-TrailerSize || size-at > MaxTailSize) {
			t.Errorf("tail at %d of %d", at, size)
		}
		if l, err := LocationOf(b); err == nil && (l.TailSize() != int64(len(b)) || l.check() != nil) {
			t.Errorf("%+v for %d bytes", l, len(b))
		}
	})
}
