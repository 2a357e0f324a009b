package mint

import (
	"testing"

	"github.com/segtier/segtier/segment"
)

// TestReceiptIsImmutable: neither what New was given nor what Facts returns is
// a way into a receipt.
func TestReceiptIsImmutable(t *testing.T) {
	location := []byte("here")
	r := New(Facts{SegmentID: segment.UUID{1}, Location: location})
	location[0] = 'X'
	r.Facts().Location[1] = 'X'
	if got := string(r.Facts().Location); got != "here" {
		t.Errorf("the location is %q now", got)
	}
	if r.IsZero() || r.Facts().SegmentID != (segment.UUID{1}) {
		t.Errorf("got %+v", r.Facts())
	}
}

func TestZeroReceipt(t *testing.T) {
	var r Receipt
	if f := r.Facts(); !r.IsZero() || !f.SegmentID.IsZero() || f.Location != nil {
		t.Errorf("got %+v", f)
	}
}
