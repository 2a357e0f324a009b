package explore_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// check looks at the world after a step.
func (w *world) check() {
	w.look()
	v := w.view()
	w.readableAreWhole(v)
	for _, p := range w.procs {
		if p == nil {
			continue
		}
		if p.reading != nil {
			p.reading.witness(w, v)
		}
		for _, c := range p.copies {
			if c.ended && !c.checked {
				w.copied(p, c, v)
			}
		}
	}
}

// readableAreWhole: a readable segment has its object, with the bytes that were
// copied; and there is one for each range and history.
func (w *world) readableAreWhole(v *metadata.View) {
	seen := map[string]bool{}
	for s := range v.All() {
		if s.State != metadata.CopySegmentFinished {
			continue
		}
		w.readable[s.ID] = true
		if k := fmt.Sprint(s.StartOffset, s.EndOffset, s.Epochs); seen[k] {
			w.fail("offsets %d to %d are readable twice: %s", s.StartOffset, s.EndOffset, w.describeView(v))
		} else {
			seen[k] = true
		}
		key := object.Key(s.Partition, s.StartOffset, s.ID)
		if !w.present[key] {
			w.fail("%s is readable and has no object", w.named(key))
			continue
		}
		c := w.contents[key]
		loc, err := object.ParseLocation(s.Custom)
		log := w.source(s.StartOffset).Log
		if err != nil || loc.ObjectSize != int64(len(c.bytes)) || loc.ObjectCRC32C != c.crc || !bytes.HasPrefix(c.bytes, log) {
			w.fail("%s is readable and its object is another: %v", w.named(key), err)
		}
	}
}

func (w *world) source(base int64) *testseg.Segment { return w.logs[base/10] }

// knowledge is what a process has been told of metadata, and of objects.
type knowledge struct {
	blind  bool                            // the last time it was told that nothing is known
	states map[segment.UUID]metadata.State // as it has seen them last
	looked map[string]int                  // step at which it has last seen that there is no object, or has deleted it
}

func (k *knowledge) viewed(v *metadata.View) {
	if k.blind = v == nil; k.blind {
		return
	}
	k.states = map[segment.UUID]metadata.State{}
	for s := range v.All() {
		k.states[s.ID] = s.State
	}
	for s := range v.Ended() {
		k.states[s.ID] = s.State
	}
}

func (k *knowledge) published(ev metadata.Event) {
	if _, _, ok := ev.Deletion(); ok {
		return
	}
	if k.states == nil {
		k.states = map[segment.UUID]metadata.State{}
	}
	k.states[ev.Segment().ID] = ev.To()
	k.blind = false // as to this one
}

// looked takes down that a process has seen that there is no object.
func (p *proc) looked(key string, err error) {
	if !errors.Is(err, objstore.ErrNotExist) {
		return
	}
	if p.know.looked == nil {
		p.know.looked = map[string]int{}
	}
	p.know.looked[key] = p.w.steps
}

func ending(s metadata.State) bool {
	return s == metadata.DeleteSegmentStarted || s == metadata.DeleteSegmentFinished
}

// uploads is called when the first byte of an object is about to be sent.
func (w *world) uploads(key string) {
	if key == object.OwnerKey {
		return
	}
	_, _, id, err := object.ParseKey(key)
	if err != nil {
		w.fail("an object %s is written", key)
		return
	}
	if _, ok := w.view().Get(id); !ok {
		w.fail("the first byte of %s is sent before COPY_SEGMENT_STARTED is durable", w.named(key))
	}
}

// deletes is called when an object is about to be deleted.
func (w *world) deletes(p *proc, key string) {
	_, _, id, err := object.ParseKey(key)
	if err != nil {
		w.fail("%s deletes %s", p.name(), key)
		return
	}
	switch s, ok := w.view().Get(id); {
	case !ok && w.names[id] != "":
		w.fail("%s deletes %s, which metadata does not know", p.name(), w.named(key))
	case ok && !ending(s.State):
		w.fail("%s deletes %s, which is in %s", p.name(), w.named(key), s.State)
	case ok && (p.know.blind || !ending(p.know.states[id])):
		w.fail("%s deletes %s without knowing what it is (blind %v, last seen in %s)", p.name(), w.named(key), p.know.blind, p.know.states[id])
	}
}

// published is called when a process has published an event.
func (w *world) published(p *proc, ev metadata.Event, before *metadata.View) {
	if _, _, ok := ev.Deletion(); ok {
		return
	}
	s := ev.Segment()
	old, known := before.Get(s.ID)
	if known && old.State == ev.To() {
		return // a repetition
	}
	key := object.Key(s.Partition, s.StartOffset, s.ID)
	switch ev.To() {
	case metadata.CopySegmentFinished:
		if !known || old.State != metadata.CopySegmentStarted {
			w.fail("%s is FINISHED without having been STARTED, or after its end", w.named(key))
		}
		for _, c := range p.copies {
			if _, ok := w.view().Lookup(nil, c.base); c.base < s.StartOffset && !ok && w.view().LogStart() <= c.base {
				w.fail("%s is FINISHED before the segment at %d, whose copy was begun before in the same process", w.named(key), c.base)
			}
		}
	case metadata.DeleteSegmentStarted:
		if p.retiring && known && old.State == metadata.CopySegmentFinished && w.view().LogStart() <= s.EndOffset {
			w.fail("%s is expired while the log starts at %d", w.named(key), w.view().LogStart())
		}
	case metadata.DeleteSegmentFinished:
		if !known || old.State != metadata.DeleteSegmentStarted {
			w.fail("%s has ended without DELETE_SEGMENT_STARTED", w.named(key))
		}
		// One that has appeared since the process looked is the collector's.
		if at, ok := p.know.looked[key]; w.present[key] && (!ok || w.created[key] < at) {
			w.fail("%s has ended, and its object is there", w.named(key))
		}
	case metadata.None, metadata.CopySegmentStarted:
	}
}

// told looks at the error with which a process has ended: nothing here is another
// metadata store's, and nobody writes under another's key.
func (w *world) told(p *proc) {
	var owner *transfer.OwnerError
	if p.ended && !p.dead && (errors.As(p.err, &owner) || errors.Is(p.err, objstore.ErrConflict)) {
		w.fail("%s ended with: %v", p.name(), p.err)
	}
}

// copying is a copy that a process has begun.
type copying struct {
	base    int64
	by      metadata.Writer
	seg     *metadata.Segment // what came of it
	err     error
	ended   bool
	checked bool
}

// copied looks at what a copy returned, at the moment at which it did: who is told
// that it came through has ended what older leaders announced, and who is told that
// it failed has not just been made readable, unless more went wrong than an answer.
func (w *world) copied(p *proc, c *copying, v *metadata.View) {
	if c.checked = true; p.isDead() {
		return
	}
	end := w.source(c.base).Info().EndOffset
	for _, s := range v.Exactly(c.base, end) {
		switch {
		case c.err == nil && c.seg.LeaderEpoch == c.by.LeaderEpoch && s.State == metadata.CopySegmentStarted && s.LeaderEpoch < c.by.LeaderEpoch:
			w.fail("%s has copied %d, and %s, which an older leader has announced, is left", p.actor.name, c.base, w.names[s.ID])
		case c.err != nil && p.hurt == 1 && s.ID == p.unheard && s.State == metadata.CopySegmentFinished:
			w.fail("%s is told that its copy failed (%v), and it is readable", p.actor.name, c.err)
		}
	}
}

// reading is a fetch under way, and what was true at some moment of it.
type reading struct {
	offset int64
	hurt   int // faults that its process had met

	below   bool // below the log start, at its beginning
	got     bool // readable, at some moment
	not     bool // not readable, at some moment
	going   bool // in a segment that was readable and is being deleted, at some moment
	gone    bool // the same, at its beginning
	begun   bool // there was a first moment
	toldGot bool // readable when it was first told of metadata
	wasTold bool
	now     bool // readable now
}

func (r *reading) digest() string {
	if r == nil {
		return ""
	}
	return fmt.Sprint(*r)
}

// witness takes in what is true now.
func (r *reading) witness(w *world, v *metadata.View) {
	_, ok := v.Lookup(nil, r.offset)
	ok = ok && v.LogStart() <= r.offset
	going := false
	for _, s := range slices.Concat(slices.Collect(v.All()), slices.Collect(v.Ended())) {
		going = going || ending(s.State) && w.readable[s.ID] && s.StartOffset <= r.offset && r.offset <= s.EndOffset
	}
	if !r.begun {
		r.begun, r.below, r.gone = true, v.LogStart() > r.offset, going
	}
	r.now = ok
	r.got = r.got || ok
	r.not = r.not || !ok
	r.going = r.going || going
}

// holed says that an offset was deleted although the log start is below it: what
// readers are told then, once the record has ended, is the host's own doing.
func (w *world) holed(offset int64) bool {
	v := w.view()
	_, going := v.Deleting(nil, offset, nil)
	return !going && v.LogStart() <= offset
}

// viewed is called when the reader was told of metadata.
func (r *reading) viewed() {
	if r != nil && !r.wasTold {
		r.wasTold, r.toldGot = true, r.now
	}
}

// read is called when a fetch has ended.
func (p *proc) read(err error, res *fetch.Result) {
	w, r := p.w, p.reading
	p.reading = nil
	if p.isDead() {
		return
	}
	r.witness(w, w.view())
	hurt := p.hurt > r.hurt
	says := func(format string, args ...any) {
		w.fail("%s reads offset %d and is told %q, although %s (%+v)", p.name(), r.offset, fmt.Sprint(err), fmt.Sprintf(format, args...), *r)
	}
	w.reads++
	switch {
	case err == nil:
		w.wholeBatches(p, r.offset, res)
		if r.below || !r.got {
			says("nothing was readable there")
		}
	case errors.Is(err, fetch.ErrOutOfRange):
		if w.view().LogStart() <= r.offset {
			says("the log starts at %d", w.view().LogStart())
		}
	case errors.Is(err, fetch.ErrSkipped):
		if !r.going {
			says("nothing there was ever deleted")
		}
		if w.sc.patient && r.toldGot && !hurt {
			says("it had begun before the deletion, which waits for readers")
		}
	case errors.Is(err, fetch.ErrEndOfTier):
		if !r.not || r.gone && !w.holed(r.offset) {
			says("it is tiered")
		}
	case errors.Is(err, fetch.ErrCorruption):
		says("nothing is damaged")
	default:
		if !hurt && !r.not && !r.going {
			says("nothing was wrong")
		}
	}
	p.note(fmt.Sprint("read ", r.offset, kindOfRead(err)))
}

func kindOfRead(err error) string {
	for _, target := range []error{fetch.ErrOutOfRange, fetch.ErrSkipped, fetch.ErrEndOfTier, fetch.ErrUnavailable} {
		if errors.Is(err, target) {
			return target.Error()
		}
	}
	return fmt.Sprint(err != nil)
}

// wholeBatches: what a read has returned are the batches of the log from the one
// with its offset on.
func (w *world) wholeBatches(p *proc, offset int64, res *fetch.Result) {
	var got, want []byte
	for _, b := range res.AppendTo(net.Buffers{}) {
		got = append(got, b...)
	}
	for _, log := range w.logs {
		for _, b := range log.Batches {
			if b.Header.LastOffset >= offset {
				want = append(want, log.Log[b.Pos:b.Pos+int64(b.Header.Size)]...)
			}
		}
	}
	if len(got) == 0 || !bytes.HasPrefix(want, got) {
		w.fail("%s reads offset %d and is given other bytes (%d)", p.name(), offset, len(got))
	}
}
