package dashboard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
)

const (
	hintWithin   = 5 * time.Second  // to write one
	commentEvery = 15 * time.Second // so that proxies keep the connection
)

// live streams hints that something may have changed, never what: the page then asks
// for itself again. It ends with the session, a few seconds after a logout.
func (d *dashboard) live(w http.ResponseWriter, r *http.Request) {
	stream, err := d.operator.StreamWithoutSurveys()
	if err != nil { // too many are open: the page asks by the clock
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer stream.Close()
	ctx := r.Context()
	access.Release(ctx)
	if until := access.WhoFrom(ctx).Until; !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	text := "retry: 5000\n\n"
	for sent(w, text) && ctx.Err() == nil && !access.Ended(ctx) {
		text = nextHint(ctx, stream)
	}
}

// nextHint is the text of the next hint, or a comment when there is none for a while.
func nextHint(ctx context.Context, stream *operate.Stream) string {
	ctx, cancel := context.WithTimeout(ctx, commentEvery)
	defer cancel()
	if _, err := stream.Next(ctx); err != nil {
		return ": alive\n\n"
	}
	return "event: changed\ndata: {}\n\n"
}

// sent sends a part of a stream. A client that does not read loses it.
func sent(w http.ResponseWriter, text string) bool {
	to := http.NewResponseController(w)
	if err := to.SetWriteDeadline(time.Now().Add(hintWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false
	}
	if _, err := w.Write([]byte(text)); err != nil {
		return false
	}
	return to.Flush() == nil
}
