package endpoint

// Class says who waits for the bytes of a Read, and so whose turn it is when
// slots are short.
type Class uint8

const (
	// TailDemand: a reader near the tail waits. It reads little and soon comes
	// back. It is the zero value, so that who says nothing is not kept waiting.
	TailDemand Class = iota
	// BackfillDemand: a reader that catches up waits.
	BackfillDemand
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
	case Prefetch:
		return "prefetch"
	}
	return "unknown"
}
