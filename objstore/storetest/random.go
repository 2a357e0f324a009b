package storetest

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// Random returns a plan in which about one call in three fails, in a way that a
// real store can fail: no lies, nothing that hangs. What happens to a call is a
// function of seed, Op, Key and Nth alone, so a schedule can be repeated
// however its goroutines interleave. More than half of the faults lie inside a body
// or come after the effect.
//
// A program that tries each call a few times succeeds most of the time, not
// always.
func Random(seed uint64) Plan {
	return func(c Call) Fault {
		rng := rand.New(rand.NewPCG(seed, checksum.XXH64([]byte(c.Op+" "+c.Key+" "+strconv.Itoa(c.Nth)))))
		if rng.IntN(3) != 0 {
			return Fault{}
		}
		return randomFault(rng, c)
	}
}

// randomFault is one of the honest faults that c can have.
func randomFault(rng *rand.Rand, c Call) Fault {
	before, after := Fault{Kind: FailBefore}, Fault{Kind: FailAfter}
	busy := Fault{Kind: FailBefore, Err: &objstore.Error{
		Op: c.Op, Key: c.Key, Off: c.Off, Len: c.Len,
		Err: objstore.ErrThrottled, RetryAfter: time.Duration(rng.IntN(3)) * time.Millisecond,
	}}
	inside := rng.Int64N(max(c.Len, 4)) // a list has no Len and few objects
	cut, flip := Fault{Kind: Cut, At: inside}, Fault{Kind: Flip, At: inside}

	n := rng.IntN(10)
	switch c.Op {
	case "get":
		return [10]Fault{cut, cut, cut, cut, flip, flip, after, before, before, busy}[n]
	case "upload":
		return [10]Fault{cut, cut, flip, after, after, after, after, before, before, busy}[n]
	case "list", "uploads":
		return [10]Fault{cut, cut, cut, cut, cut, after, after, before, before, busy}[n]
	default:
		return [10]Fault{after, after, after, after, after, after, before, before, before, busy}[n]
	}
}
