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

func busy() *Refusal {
	return &Refusal{Status: http.StatusServiceUnavailable, Code: "busy", RetryAfter: time.Second,
		Reason: "Too many requests are being answered. Try again in a second."}
}

// enter takes a place for a request, if one is free.
func (h *handler) enter() (*place, *Refusal) {
	select {
	case h.places <- struct{}{}:
		return &place{leave: sync.OnceFunc(func() { <-h.places })}, nil
	default:
		return nil, busy()
	}
}

// visit is a request whose maker is known.
type visit struct {
	who   Who
	place *place
	in    *handler
}

type visitKey struct{}

// visited returns the visit of a context; nil: there is none.
func visited(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

type acquaintedKey struct{}

// Acquainted returns the context of a connection, for http.Server.ConnContext: know is
// called with each of its requests whose maker is known, before it is answered. A listener
// may then close connections that no known client uses, when there are too many.
func Acquainted(ctx context.Context, know func()) context.Context {
	return context.WithValue(ctx, acquaintedKey{}, know)
}

// Release gives back the place that a request has among the 64 that are answered
// concurrently. Answers that last call it, and bound their own number.
func Release(ctx context.Context) {
	if v := visited(ctx); v != nil {
		v.place.leave()
	}
}
