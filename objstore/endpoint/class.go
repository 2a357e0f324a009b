package endpoint

import "sync/atomic"

// Class says who waits for the bytes of a Read, and so whose turn it is when
// slots are short.
type Class uint8

// The classes, the most urgent one first.
const (
	// TailDemand: a reader near the tail waits. It reads little and soon comes
	// back. It is the zero value, so that who says nothing is not kept waiting.
	TailDemand Class = iota
	// BackfillDemand: a reader that catches up waits.
	BackfillDemand
	// TailPrefetch: nobody waits yet, but a reader that keeps pace will come for it.
	TailPrefetch
	// Prefetch: nobody waits yet.
	Prefetch
)

// String returns the class's name in lower case.
func (c Class) String() string {
	switch c {
	case TailDemand:
		return "tail demand"
	case BackfillDemand:
		return "backfill demand"
	case TailPrefetch:
		return "tail prefetch"
	case Prefetch:
		return "prefetch"
	}
	return "unknown"
}

// Urgency is the Class of a Read that may become more urgent while the Read waits
// for a slot: somebody asks for what was to be fetched ahead. It belongs to one
// Read. Its methods may be called concurrently, before the Read, during and after
// it.
type Urgency struct {
	class  atomic.Uint32
	queue  atomic.Pointer[slots]  // where the Read has ever waited; nil: nowhere
	also   atomic.Pointer[string] // tenant who waits for the Read too, the latest; nil: none
	paused atomic.Bool            // the Read waits for its next try

	waiter *waiter // of the Read; guarded by queue.mu
}

// NewUrgency returns the Urgency of a Read that begins with class c.
func NewUrgency(c Class) *Urgency {
	u := new(Urgency)
	u.class.Store(uint32(c))
	return u
}

// Class returns the class by now.
func (u *Urgency) Class() Class { return Class(u.class.Load()) }

// Raise makes the Read as urgent as c, if it was less so. If it waits for a slot it
// goes to the back of the queue of its stream in that class. A Read that has its
// slot keeps it: only its next try is more urgent.
func (u *Urgency) Raise(c Class) {
	for {
		old := u.class.Load()
		if old <= uint32(c) {
			return
		}
		if u.class.CompareAndSwap(old, uint32(c)) {
			break
		}
	}
	u.raised()
}

// RaiseFor is Raise by a tenant who waits for the Read too. If the Read waits because its
// own tenant has as much in flight as it may, and this one has not, it becomes his.
func (u *Urgency) RaiseFor(c Class, tenant string) {
	u.also.Store(&tenant)
	u.Raise(c)
	u.raised()
}

// raised has the queue see what has changed. Who is about to wait says where before it
// looks at that, so either it sees the change or it is seen here.
func (u *Urgency) raised() {
	if s := u.queue.Load(); s != nil {
		s.raise(u)
	}
}

// Waiting reports whether the Read waits for its turn: for a slot, or for its next try.
// Its next GET, if any, comes after its next call of ReadRequest.Turn.
func (u *Urgency) Waiting() bool {
	if u.paused.Load() {
		return true
	}
	s := u.queue.Load()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return u.waiter != nil
}
