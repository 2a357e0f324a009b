package s3

import (
	"context"
	"errors"
	"fmt"

	"github.com/segtier/segtier/objstore"
)

// end settles a try that made the object out of parts, or did not. Nothing is
// aborted before it is known which.
func (m *multipart) end(ctx context.Context, err error) (objstore.Evidence, error) {
	m.mu.Lock()
	completed := m.completed
	m.mu.Unlock()
	var ev objstore.Evidence
	switch {
	case err == nil:
		var h *head
		if h, err = m.s.head(ctx, m.name, m.s.opts.StallTimeout); err == nil {
			ev, err = m.conclude(ctx, h, written)
		} else {
			err = fmt.Errorf("looking at what was written: %w", plain(err))
		}
		m.id = "" // it is complete
	case completed || errors.Is(err, errNoUpload):
		ev, err = m.unclear(ctx, err)
	}
	return ev, m.tidy(ctx, err)
}

// tidy decides what becomes of the parts, and of what earlier tries left.
func (m *multipart) tidy(ctx context.Context, err error) error {
	switch {
	case err == nil:
		// The object is there: no other upload of it can be of use. (The own one
		// is complete, or lost to another that made the object.)
		_ = m.discard(ctx, m.others...) // logged; Uploads lists what stays
		if m.id != "" {
			_ = m.discard(ctx, m.id)
		}
		return nil
	case m.id == "" || errors.Is(err, errUnresolved):
		return err
	case ctx.Err() != nil:
		if m.s.opts.OnCancel == KeepUpload {
			return err
		}
	case errors.Is(err, objstore.ErrConflict), errors.Is(err, objstore.ErrCorrupt), errors.Is(err, errRace), errors.Is(err, errBody):
		// None of these is cured by going on with the parts that are there.
	case malformed(err), unusable(err), errors.Is(err, errGhost), m.refused && broken(err):
		// The service cannot make the object out of this upload. One that was found
		// may be a ghost: a part that arrives behind an abort brings the upload back
		// to life in some servers, without what it was created with. There may be
		// several, so that the next try would only find another one.
		m.spoiled = m.resumed
	default:
		return err // for the next try
	}
	if cause := m.discard(ctx, m.id); cause != nil {
		return within(err, func(err error) error {
			return fmt.Errorf("%w (and upload %s of the object is left behind, since aborting it failed: %s)", err, m.id, cause.Error())
		})
	}
	return err
}

// broken reports whether the service failed at a request that it did not ask to
// be sent later.
func broken(err error) bool {
	var e *ServiceError
	return errors.As(err, &e) && e.Status >= 500 && !errors.Is(err, objstore.ErrThrottled)
}

// malformed reports whether the service found something wrong with the request
// itself. That credentials have expired is nothing of the kind.
func malformed(err error) bool {
	var e *ServiceError
	return errors.Is(err, objstore.ErrRefused) && errors.As(err, &e) && e.Status == 400 && e.Hint == ""
}

// unusable reports whether the service did not find the parts, or not as they
// were sent.
func unusable(err error) bool {
	var e *ServiceError
	return errors.As(err, &e) && (e.Code == "InvalidPart" || e.Code == "InvalidPartOrder")
}

// discard aborts uploads, whether or not the caller is still there.
func (m *multipart) discard(ctx context.Context, ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var errs []error
	for _, id := range ids {
		err := m.s.abort(ctx, m.name, id)
		if err == nil && id == m.id {
			err = m.lay(ctx, id)
		}
		if err != nil {
			m.s.opts.Logger.WarnContext(ctx, "an unfinished upload is left behind", "store", m.s.String(), "key", m.req.Key, "upload", id, "err", err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// lay sees that an aborted upload rests: parts that were on their way when it was
// aborted may arrive after that, and are paid for until it is aborted again.
func (m *multipart) lay(ctx context.Context, id string) error {
	m.mu.Lock()
	cut := m.cut
	m.mu.Unlock()
	for range 3 {
		if !cut {
			return nil
		}
		listed, err := m.listParts(ctx, id)
		if err != nil || len(listed) == 0 {
			return nil //nolint:nilerr // it is gone, or cannot be asked for: Uploads lists what stays
		}
		if err := m.s.abort(ctx, m.name, id); err != nil {
			return err
		}
	}
	return nil
}

// errUnresolved: whether a write took effect could not be found out. Nothing may
// be thrown away.
var errUnresolved = errors.New("whether the write took effect is not known")

// ambiguous reports whether a write may have taken effect although its answer is
// err. What the service refuses outright has not.
func ambiguous(err error) bool {
	if errors.Is(err, errBody) || errors.Is(err, objstore.ErrCorrupt) || errors.Is(err, objstore.ErrFull) {
		return false
	}
	return !errors.Is(err, objstore.ErrRefused)
}

// unclear settles a write that did not simply succeed: lost, broken or late
// answers, 5xx, an error within a 200, 404, 409 and 412 may all come of a write
// that is done. The object itself says.
func (u *upload) unclear(ctx context.Context, cause error) (objstore.Evidence, error) {
	if !ambiguous(cause) {
		return objstore.Evidence{}, cause
	}
	look, cancel := ctx, context.CancelFunc(func() {})
	if ctx.Err() != nil {
		// The caller has left, but what is done is still to be found out.
		look, cancel = context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	}
	defer cancel()
	h, err := u.s.head(look, u.name, u.s.opts.StallTimeout)
	if err != nil && !errors.Is(err, objstore.ErrNotExist) {
		looked := err
		return objstore.Evidence{}, within(cause, func(cause error) error {
			return fmt.Errorf("%w: %w (and looking for the object: %s)", errUnresolved, cause, looked.Error())
		})
	}
	u.s.opts.Logger.DebugContext(look, "resolved the outcome of a write", "store", u.s.String(), "key", u.req.Key, "found", err == nil, "cause", cause)
	if told := u.s.opts.Events.Resolved; told != nil {
		told(u.req.Key, err == nil, cause)
	}
	if err != nil {
		return objstore.Evidence{}, cause
	}
	from := found
	if u.req.Token != "" && h.info.Token == u.req.Token {
		from = written
	}
	ev, err := u.conclude(look, h, from)
	if err != nil && ctx.Err() != nil {
		return objstore.Evidence{}, cause // of which the caller's leaving is part
	}
	return ev, err
}
