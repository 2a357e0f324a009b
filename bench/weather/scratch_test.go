package weather

import (
	"bytes"
	"testing"
)

// Scratch memory is pooled: one that a stream of larger batches has used must not
// show in the bytes of another.
func TestScratchOfAnotherStream(t *testing.T) {
	tier, err := Spec{SegmentBytes: 1 << 20, BatchBytes: 100, Records: 1}.Tier()
	if err != nil {
		t.Fatal(err)
	}
	o, err := tier.Object(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 1000)
	if _, err := o.ReadAt(want, 50); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	o.read(got, 50, bytes.Repeat([]byte{0xff}, 16<<10))
	if !bytes.Equal(got, want) {
		t.Fatal("bytes of the scratch memory are among those of the object")
	}
}
