package checksum_test

import (
	"fmt"

	"github.com/segtier/segtier/checksum"
)

// One pass over a stream gives the sums of its chunks, of its parts and of the
// whole. What was summed in chunks need not be read again to be summed as parts.
func ExampleCutter() {
	c := checksum.NewCutter(4, 6)
	fmt.Fprint(c, "0123456789")
	for _, s := range c.Pieces(0) {
		fmt.Printf("chunk of %d: %08x\n", s.Len, s.CRC32C)
	}
	for _, s := range c.Pieces(1) {
		fmt.Printf("part of %d: %s\n", s.Len, checksum.Base64(s.CRC32C))
	}
	fmt.Printf("all %d: %08x\n", c.Total().Len, c.Total().CRC32C)
	// Output:
	// chunk of 4: 063962b9
	// chunk of 4: 6ad50193
	// chunk of 2: 646a3494
	// part of 6: T3EPOQ==
	// part of 4: wn5dsg==
	// all 10: 280c069e
}

func ExampleCombine() {
	a, b := checksum.CRC32C([]byte("1234")), checksum.CRC32C([]byte("56789"))
	fmt.Printf("%08x\n", checksum.Combine(a, b, 5))
	// Output: e3069283
}
