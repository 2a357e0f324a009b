package storetest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
)

// ErrInjected is the cause of a fault whose Err is nil.
var ErrInjected = errors.New("injected fault")

// Kind says what goes wrong in a call.
type Kind uint8

// What a fault does to the operations named; to others it does nothing. "The
// effect" of a Get is that the store was asked; its answer is thrown away.
const (
	None       Kind = iota
	FailBefore      // every call: fails with Err, without its effect
	FailAfter       // every call: takes effect, then fails with Err (the answer was lost); a List fails after its last object
	Hang            // every call: never reaches the store, returns when its ctx is done
	Wait            // every call: waits for Gate (or ctx), then goes on as usual

	Cut      // Get: the body fails with Err at byte At (default io.ErrUnexpectedEOF); Upload: reading the body fails there; List: fails after At objects
	Stall    // Get, Upload: reading the body hangs at byte At until ctx is done (Get: or the body is closed)
	Flip     // Get, Upload: the lowest bit of byte At of the body is flipped on its way
	EarlyEOF // Get: the body ends with io.EOF at byte At, as no store may

	// Lies: the call succeeds, and what it answers is wrong.
	WrongSum      // Upload: the evidence has another sum for part At
	DropPart      // Upload: the evidence lacks part At
	WrongSize     // Get, Stat, Upload: the size is one less
	WrongIdentity // Get, Stat, Upload: the identity is another
	ShortObject   // Upload: only the first At bytes are stored; the answer speaks of all of them
	FlipStored    // Upload: the lowest bit of byte At is flipped in what is stored
)

// String returns the kind's name.
func (k Kind) String() string {
	names := [...]string{
		"None", "FailBefore", "FailAfter", "Hang", "Wait", "Cut", "Stall", "Flip", "EarlyEOF",
		"WrongSum", "DropPart", "WrongSize", "WrongIdentity", "ShortObject", "FlipStored",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Fault is what happens to one call. The zero Fault is none.
type Fault struct {
	Kind Kind
	At   int64           // byte of the body from its first, part, or number of objects: see Kind
	Err  error           // nil is ErrInjected; it is wrapped in an *objstore.Error unless it is one
	Gate <-chan struct{} // for Wait
}

// Call is one call that a Plan decides on.
type Call struct {
	Op  string // "get", "stat", "upload", "delete", "list", "uploads", "abort"
	Key string // for "list" and "uploads" the prefix; "delete" is asked key by key
	Off int64  // of a get; else 0
	Len int64  // bytes asked for by a get or given to an upload; else 0

	// Nth counts the calls with this Op and Key, from 1. It does not depend on
	// how calls on different keys interleave; Seq, which counts all calls from
	// 1, does.
	Nth, Seq int
}

// String describes the call for messages and logs.
func (c Call) String() string {
	if c.Len != 0 {
		return fmt.Sprintf("%s %s [%d,%d) #%d", c.Op, c.Key, c.Off, c.Off+c.Len, c.Nth)
	}
	return fmt.Sprintf("%s %s #%d", c.Op, c.Key, c.Nth)
}

// Plan decides what goes wrong. It is called once for each call, from several
// goroutines, and must not call the store.
type Plan func(Call) Fault

// Rule is a fault for the calls that match it.
type Rule struct {
	Op  string // "" is any
	Key string // a pattern of path.Match ('*' stops at '/'), "" is any

	// Nth is the first call that the rule applies to, counted among the calls
	// that match Op and Key, from 1; 0 is 1. Times is how many it applies to
	// from there on; 0 is 1, less than 0 all.
	Nth, Times int

	Fault Fault
}

// Rules returns a plan in which the first rule that applies to a call decides.
// Every rule counts the calls that match it, also those that another rule
// decided. It panics if a pattern is malformed.
func Rules(rules ...Rule) Plan {
	rules = slices.Clone(rules)
	for _, r := range rules {
		if _, err := path.Match(r.Key, ""); err != nil {
			panic(fmt.Sprintf("storetest: pattern %q: %v", r.Key, err))
		}
	}
	var mu sync.Mutex
	seen := make([]int, len(rules)) // guarded by mu
	return func(c Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		var fault Fault
		for i, r := range rules {
			if r.Op != "" && r.Op != c.Op {
				continue
			}
			if match, _ := path.Match(r.Key, c.Key); r.Key != "" && !match {
				continue
			}
			seen[i]++
			first, times := max(r.Nth, 1), r.Times
			if times == 0 {
				times = 1
			}
			if fault.Kind == None && seen[i] >= first && (times < 0 || seen[i] < first+times) {
				fault = r.Fault
			}
		}
		return fault
	}
}
