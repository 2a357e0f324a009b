package cache

import "errors"

// A Fill is the duty to provide a chunk: exactly one of Done and Fail must be
// called in the end, from any goroutine; only the first call counts.
type Fill struct{ e *entry }

// Key returns the chunk to provide.
func (f Fill) Key() Key { return f.e.key }

// Place says where the chunk lies in its log, so that it is kept for the cursors
// that will reach it. Without, it is kept like what nobody is known to need: the
// latest first. It is called at most once, before Done, by whoever holds the
// Fill. One that has failed meanwhile lies nowhere.
func (f Fill) Place(p Place) {
	e := f.e
	log := e.c.logOf(p.Log)
	g := &e.c.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.region != filling { // it may be freed, and nobody would let go of the log any more
		log.held.Add(-1)
		return
	}
	e.log, e.place = log, p
}

// Buf returns the memory to fill, of the size given to Acquire, with any
// content. The first call takes it; it belongs to whoever holds the Fill until
// Done, or Release. It must not be called by two at once.
func (f Fill) Buf() []byte {
	e := f.e
	if e.buf != nil {
		return e.buf
	}
	return e.c.bind(e)
}

// Note attaches to the chunk what whoever filled it learned of its bytes, so that
// those who lease it need not find out again. v must not change from now on (a
// pointer costs no allocation when it is read); bytes is the memory that it
// takes, which counts against the budget as long as the chunk does. Where there
// is no memory for it, the chunk comes without: a reader must do without it. It
// is called at most once, before Done, by whoever holds the Fill.
func (f Fill) Note(v any, bytes int) {
	f.e.note, f.e.noteSize = v, int64(bytes)
}

// Done says that Buf is complete and verified. Everybody who waits gets it.
func (f Fill) Done() {
	e := f.e
	if !e.settled.Load() {
		f.Buf() // so that there are bytes, whatever they are
	}
	if !e.settled.CompareAndSwap(false, true) {
		e.c.letGo(e) // it has failed meanwhile
		return
	}
	e.c.publish(e)
}

// Fail gives the chunk up. Everybody who waits gets err, as it is; the next
// Acquire leads anew. It may be called while a read that hangs still holds Buf:
// that memory stays on the books and is nobody else's until Release.
func (f Fill) Fail(err error) {
	e := f.e
	if !e.settled.CompareAndSwap(false, true) {
		return
	}
	if err == nil {
		err = errors.New("cache: fill failed without a reason")
	}
	e.c.fail(e, err)
}

// Awaited reports whether somebody leases the chunk at this moment.
func (f Fill) Awaited() bool { return f.e.leased() }

// Abandon is Fail if nobody leases the chunk at this moment, and does nothing
// otherwise: who was in time to wait for it waits for it, who comes later leads
// anew. It must not be called together with Done.
func (f Fill) Abandon(err error) bool {
	e := f.e
	g := &e.c.ledger
	g.mu.Lock()
	ok := e.region == filling && !e.settled.Load() && e.kill()
	g.mu.Unlock()
	if ok {
		f.Fail(err)
	}
	return ok
}

// Release says that nobody will write to Buf any more. Whoever has called Buf
// calls it when the read has returned, whatever came of it: Fail may have been
// called by somebody else meanwhile. After Done it does nothing. A fill that is
// neither done nor failed has failed.
func (f Fill) Release() {
	f.Fail(errors.New("cache: the fill ended without result"))
	f.e.c.letGo(f.e)
}
