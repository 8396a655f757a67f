package access

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// place is one of the places of requests that are being answered.
type place struct {
	leave func()
}

type placeKey struct{}

// enter takes a place for a request, if one is free.
func (h *handler) enter() (*place, *Refusal) {
	select {
	case h.places <- struct{}{}:
		return &place{leave: sync.OnceFunc(func() { <-h.places })}, nil
	default:
		return nil, &Refusal{Status: http.StatusServiceUnavailable, Code: "busy", RetryAfter: time.Second,
			Reason: "Too many requests are being answered. Try again in a second."}
	}
}

// Release gives back the place that a request has among the 64 that are answered
// concurrently. Answers that last call it, and bound their own number.
func Release(ctx context.Context) {
	if p, ok := ctx.Value(placeKey{}).(*place); ok {
		p.leave()
	}
}
