// A program outside the module that writes FINISHED down without a receipt.
package main

import "github.com/segtier/segtier/metadata"

func main() {
	seg := &metadata.Segment{State: metadata.CopySegmentFinished}
	_ = metadata.Event{seg: seg, from: metadata.CopySegmentStarted}
}
