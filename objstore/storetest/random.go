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
	inside := int64(0)
	if c.Len > 0 {
		inside = rng.Int64N(c.Len)
	}
	busy := &objstore.Error{Op: c.Op, Key: c.Key, Off: c.Off, Len: c.Len,
		Err: objstore.ErrThrottled, RetryAfter: time.Duration(rng.IntN(3)) * time.Millisecond}
	var choice []Fault // with a weight each, in tenths
	switch c.Op {
	case "get":
		choice = []Fault{
			{Kind: Cut, At: inside}, {Kind: Cut, At: inside}, {Kind: Cut, At: inside}, {Kind: Cut, At: inside},
			{Kind: Flip, At: inside}, {Kind: Flip, At: inside},
			{Kind: FailAfter}, {Kind: FailBefore}, {Kind: FailBefore}, {Kind: FailBefore, Err: busy},
		}
	case "upload":
		choice = []Fault{
			{Kind: FailAfter}, {Kind: FailAfter}, {Kind: FailAfter}, {Kind: FailAfter},
			{Kind: Cut, At: inside}, {Kind: Cut, At: inside}, {Kind: Flip, At: inside},
			{Kind: FailBefore}, {Kind: FailBefore}, {Kind: FailBefore, Err: busy},
		}
	case "list", "uploads":
		at := rng.Int64N(4)
		choice = []Fault{
			{Kind: Cut, At: at}, {Kind: Cut, At: at}, {Kind: Cut, At: at}, {Kind: Cut, At: at}, {Kind: Cut, At: at},
			{Kind: FailAfter}, {Kind: FailAfter}, {Kind: FailBefore}, {Kind: FailBefore}, {Kind: FailBefore, Err: busy},
		}
	default:
		choice = []Fault{
			{Kind: FailAfter}, {Kind: FailAfter}, {Kind: FailAfter}, {Kind: FailAfter}, {Kind: FailAfter}, {Kind: FailAfter},
			{Kind: FailBefore}, {Kind: FailBefore}, {Kind: FailBefore}, {Kind: FailBefore, Err: busy},
		}
	}
	return choice[rng.IntN(len(choice))]
}
