package segment

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
)

// EpochStart says at which offset a leader epoch began.
type EpochStart struct {
	Epoch int32
	Start int64
}

// Lineage is a partition's history of leader epochs, ascending in both epoch
// and start offset: what Kafka keeps in leader-epoch-checkpoint. Functions do
// not modify a Lineage given to them; a returned one is the caller's unless it
// says otherwise. The methods but Validate expect a valid Lineage.
type Lineage []EpochStart

// Validate reports what makes l no history: a negative epoch or offset, or
// epochs or offsets that do not ascend. Kafka allows two epochs to begin at the
// same offset (the first then had no records).
func (l Lineage) Validate() error {
	for i, e := range l {
		switch {
		case e.Epoch < 0 || e.Start < 0:
			return fmt.Errorf("leader epochs: entry %d (epoch %d from offset %d) is negative", i, e.Epoch, e.Start)
		case i > 0 && e.Epoch <= l[i-1].Epoch:
			return fmt.Errorf("leader epochs: entry %d (epoch %d from offset %d) does not follow epoch %d", i, e.Epoch, e.Start, l[i-1].Epoch)
		case i > 0 && e.Start < l[i-1].Start:
			return fmt.Errorf("leader epochs: entry %d (epoch %d from offset %d) begins before offset %d, where epoch %d began",
				i, e.Epoch, e.Start, l[i-1].Start, l[i-1].Epoch)
		}
	}
	return nil
}

// EpochFor returns the leader epoch in which offset was or will be written. It
// returns false if offset lies before the history.
func (l Lineage) EpochFor(offset int64) (epoch int32, ok bool) {
	i := sort.Search(len(l), func(i int) bool { return l[i].Start > offset })
	if i == 0 {
		return 0, false
	}
	return l[i-1].Epoch, true
}

// EndOf returns the first offset after an epoch of the history, where the next
// one begins; math.MaxInt64 for the latest, which has no end yet. It returns
// false if the history does not have the epoch.
func (l Lineage) EndOf(epoch int32) (end int64, ok bool) {
	i, ok := slices.BinarySearchFunc(l, epoch, func(e EpochStart, epoch int32) int { return int(int64(e.Epoch) - int64(epoch)) })
	switch {
	case !ok:
		return 0, false
	case i == len(l)-1:
		return math.MaxInt64, true
	}
	return l[i+1].Start, true
}

// Range returns the epochs of the offsets from start to end, both included: what
// Kafka records of a segment in segmentLeaderEpochs. The epoch in which start
// lies begins there at start.
func (l Lineage) Range(start, end int64) Lineage {
	from := sort.Search(len(l), func(i int) bool { return l[i].Start > start })
	to := sort.Search(len(l), func(i int) bool { return l[i].Start > end })
	var out Lineage
	if from > 0 && start <= end {
		out = append(out, EpochStart{Epoch: l[from-1].Epoch, Start: start})
	}
	if from < to {
		out = append(out, l[from:to]...)
	}
	return out
}

// UpTo returns the history as it was when end was the last offset: what Kafka
// sends along with a segment that ends there as its LEADER_EPOCH index. The
// result shares the memory of l.
func (l Lineage) UpTo(end int64) Lineage {
	n := sort.Search(len(l), func(i int) bool { return l[i].Start > end })
	return l[:n:n]
}

// Bounds of a leader-epoch-checkpoint. Each line takes at least 4 bytes, at most
// 11+1+20+1.
const (
	maxCheckpointSize = 64 << 20
	checkpointVersion = 0
)

// AppendText appends l as the text of Kafka's leader-epoch-checkpoint file. It
// never fails.
func (l Lineage) AppendText(dst []byte) ([]byte, error) {
	dst = append(dst, "0\n"...)
	dst = strconv.AppendInt(dst, int64(len(l)), 10)
	dst = append(dst, '\n')
	for _, e := range l {
		dst = strconv.AppendInt(dst, int64(e.Epoch), 10)
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, e.Start, 10)
		dst = append(dst, '\n')
	}
	return dst, nil
}

// ParseLineage parses the text of a leader-epoch-checkpoint file and validates
// it. As in Kafka, an empty file and one with nothing but the version have no
// epochs.
func ParseLineage(b []byte) (Lineage, error) {
	if len(b) > maxCheckpointSize {
		return nil, fmt.Errorf("leader epochs: %d bytes, more than %d", len(b), maxCheckpointSize)
	}
	line, rest, more := cutLine(b)
	if !more {
		return nil, nil
	}
	if v, err := strconv.ParseInt(string(line), 10, 32); err != nil || v != checkpointVersion {
		return nil, fmt.Errorf("leader epochs: line 1 %q is not the version %d", clip(string(line)), checkpointVersion)
	}
	line, rest, more = cutLine(rest)
	if !more {
		return nil, nil
	}
	count, err := strconv.ParseInt(string(line), 10, 32)
	if err != nil || count < 0 {
		return nil, fmt.Errorf("leader epochs: line 2 %q is no count", clip(string(line)))
	}
	var l Lineage // grows with the lines that are there, whatever count says
	for {
		line, rest, more = cutLine(rest)
		if !more {
			break
		}
		f := bytes.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("leader epochs: line %d %q is not an epoch and an offset", len(l)+3, clip(string(line)))
		}
		epoch, err1 := strconv.ParseInt(string(f[0]), 10, 32)
		start, err2 := strconv.ParseInt(string(f[1]), 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("leader epochs: line %d %q is not an epoch and an offset", len(l)+3, clip(string(line)))
		}
		l = append(l, EpochStart{Epoch: int32(epoch), Start: start})
	}
	if int64(len(l)) != count {
		return nil, fmt.Errorf("leader epochs: line 2 says %d entries, %d are there", count, len(l))
	}
	return l, l.Validate()
}

// cutLine returns the first line of b without its end and what follows it. It
// returns false if b is empty.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, nil, false
	}
	line, rest, _ = bytes.Cut(b, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'}), rest, true
}
