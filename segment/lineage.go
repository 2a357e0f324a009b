package segment

// EpochStart says at which offset a leader epoch began.
type EpochStart struct {
	Epoch int32
	Start int64
}

// Lineage is a partition's history of leader epochs, ascending in both epoch
// and start offset: what Kafka keeps in leader-epoch-checkpoint. Functions do
// not modify a Lineage given to them; a returned one is the caller's unless it
// says otherwise.
type Lineage []EpochStart

// Validate reports what makes l no history: a negative epoch or offset, or
// epochs or offsets that do not ascend. Kafka allows two epochs to begin at the
// same offset (the first then had no records).
func (l Lineage) Validate() error { panic("not yet") }
