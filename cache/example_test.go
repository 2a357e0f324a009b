package cache_test

import (
	"context"
	"fmt"

	"github.com/segtier/segtier/cache"
)

func Example() {
	c, err := cache.New(cache.Options{MemoryBytes: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	ctx := context.Background()
	k := cache.Key{Chunk: 3}
	var lease cache.Lease
	outcome, fill := c.Acquire(k, 5, nil, &lease)
	if outcome == cache.Missing {
		var room cache.Reservation
		if err := c.Reserve(ctx, 5, &room); err != nil {
			fmt.Println(err)
			return
		}
		outcome, fill = c.Acquire(k, 5, &room, &lease)
		room.Release() // what was not used after all
	}
	if outcome == cache.Led {
		go func() { // on the library's time, not the caller's
			copy(fill.Buf(), "bytes")
			fill.Done()
		}()
	}
	if err := lease.Wait(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", lease.Bytes())
	lease.Release()
	// Output: bytes
}
