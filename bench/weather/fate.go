package weather

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// ask is what the weather looks at in a request.
type ask struct {
	client    string // access key
	operation string
	object    string // bucket and name
	start     int64  // of the range; of a part its number; else 0
	attempt   uint32 // how often this client has asked for the same before
}

// hash is the identity of a request, whoever makes it, without the attempt.
func (a *ask) hash(seed uint64) uint64 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], seed)
	binary.BigEndian.PutUint64(b[8:], uint64(a.start))
	d := xxhash.New()
	_, _ = d.Write(b[:])              // never fails
	_, _ = d.WriteString(a.operation) // never fails
	_, _ = d.WriteString("\x00")      // never fails
	_, _ = d.WriteString(a.object)    // never fails
	return d.Sum64()
}

// fate is what happens to a request.
type fate struct {
	firstByte time.Duration
	fault     *Fault  // nil: none
	at        float64 // 0 to 1: where in the body, if that is random
	bit       byte    // of Flip
}

// fate decides. It is a pure function.
func (s *Schedule) fate(a *ask) fate {
	roll := dice{a.hash(s.Seed) + uint64(a.attempt)*0xd1342543de82ef95}
	f := fate{firstByte: s.FirstByte.draw(roll.next(), roll.next(), roll.next())}
	for i := range s.Faults {
		hit, at, bit := roll.next(), roll.next(), roll.next()
		if f.fault == nil && hit < s.Faults[i].Share && s.Faults[i].concerns(a) {
			f.fault, f.at, f.bit = &s.Faults[i], at, byte(bit*8)
		}
	}
	if f.fault != nil && f.fault.Kind == Late {
		f.firstByte += time.Duration(f.fault.For)
	}
	return f
}

// concerns reports whether the fault can happen to a.
func (f *Fault) concerns(a *ask) bool {
	switch {
	case f.Operation != "" && f.Operation != a.operation,
		f.Object != "" && !strings.Contains(a.object, f.Object),
		f.Attempts > 0 && a.attempt >= uint32(f.Attempts),
		f.Until != 0 && (a.start < f.From || a.start >= f.Until):
		return false
	case f.Kind.ofReads():
		return a.operation == opGetObject
	case f.Kind == ErrorIn200:
		return a.operation == opComplete
	case f.Kind == WrongEcho:
		return a.operation == opPutObject || a.operation == opUploadPart
	case f.Kind == Lost:
		switch a.operation {
		case opPutObject, opUploadPart, opComplete, opDeleteObject, opAbort:
			return true
		default:
			return false
		}
	}
	return true
}

// position returns where in a body of n bytes the fault strikes.
func (f *fate) position(n int64) int64 {
	if f.fault.At < 0 {
		return min(int64(f.at*float64(n)), max(n-1, 0))
	}
	return min(f.fault.At, n)
}

// dice is a sequence of random numbers (splitmix64).
type dice struct{ state uint64 }

// next returns a number in [0,1).
func (d *dice) next() float64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return float64(z>>11) / (1 << 53)
}

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

// tailAlpha is the exponent of the power law of HeavyTail.
const tailAlpha = 1.1

// draw returns a latency. u1, u2 and u3 are in [0,1).
func (l Latency) draw(u1, u2, u3 float64) time.Duration {
	d := float64(l.Median)
	switch l.Kind {
	case Lognormal, HeavyTail:
		normal := math.Sqrt(-2*math.Log(1-u1)) * math.Cos(2*math.Pi*u2)
		d *= math.Exp(math.Log(float64(l.P99)/float64(l.Median)) / z99 * normal)
		if l.Kind == HeavyTail && u3 < l.Tail {
			d = float64(l.P99) * math.Pow(u3/l.Tail+1e-12, -1/tailAlpha)
		}
	default: // constant
	}
	if l.Max > 0 {
		d = min(d, float64(l.Max))
	}
	return time.Duration(min(d, float64(time.Hour)))
}
