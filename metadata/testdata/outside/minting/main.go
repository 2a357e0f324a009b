// A program outside the module that makes a receipt where transfer does.
package main

import "github.com/segtier/segtier/internal/mint"

func main() {
	_ = mint.New(mint.Facts{})
}
