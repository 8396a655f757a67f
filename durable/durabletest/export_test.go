package durabletest

import (
	"testing"

	"github.com/durable-worker/durable-worker/durable"
)

// NewKit makes a kit whose failures are reported to t, and its end.
func NewKit(t testing.TB) (kit *Kit, end func()) {
	kit = newKit(t)
	return kit, kit.close
}

// Wire is the connection of a worker that is cut off, to no store at all.
func Wire() durable.Store {
	w := &Worker{link: dead, changed: make(chan struct{})}
	return wire{nil, w}
}
