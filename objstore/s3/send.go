package s3

import (
	"context"
	"net/http"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// send makes one request, one attempt. It is ended if it takes longer than
// limit, unless limit is 0.
func send[I, O any](ctx context.Context, s *Store, operation string, limit time.Duration,
	method func(context.Context, *I, ...func(*awss3.Options)) (*O, error), in *I, opts ...func(*awss3.Options),
) (*O, error) {
	ctx, w := watch(ctx, limit)
	defer w.stop()
	out, err := method(ctx, in, opts...)
	if err != nil {
		return nil, s.fault(ctx, operation, err)
	}
	s.answered.Store(true)
	return out, nil
}

// watcher ends a context when nothing happens for a while.
type watcher struct {
	timer  *time.Timer // nil if there is no limit
	limit  time.Duration
	cancel context.CancelCauseFunc
}

// watch returns a context that ends, with a stallError, when limit has passed
// since the last call of progress. A limit of 0 is none.
func watch(ctx context.Context, limit time.Duration) (context.Context, *watcher) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watcher{limit: limit, cancel: cancel}
	if limit > 0 {
		w.timer = time.AfterFunc(limit, func() { cancel(stallError{limit}) })
	}
	return ctx, w
}

func (w *watcher) progress() {
	if w.timer != nil {
		w.timer.Reset(w.limit)
	}
}

func (w *watcher) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}

// answer returns the status and the header of an answer.
func answer(md middleware.Metadata) (int, http.Header) {
	if resp, ok := awsmiddleware.GetRawResponse(md).(*smithyhttp.Response); ok && resp.Response != nil {
		return resp.StatusCode, resp.Header
	}
	return 0, http.Header{}
}

// serverTime returns the service's clock, zero if it does not say.
func serverTime(md middleware.Metadata) time.Time {
	_, header := answer(md)
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return now
}
