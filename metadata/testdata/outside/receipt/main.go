// A program outside the module that writes a receipt down.
package main

import "github.com/segtier/segtier/metadata"

func main() {
	facts := struct{ SegmentID [16]byte }{}
	_ = metadata.Receipt{facts: &facts}
}
