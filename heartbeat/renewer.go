package heartbeat

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Renewer is a store that can extend leases.
type Renewer interface {
	// Renew extends every named lease that still stands to d from now on the
	// store's clock, all at once, and returns the claims it extended. A
	// claim that is not among them is lost for good. An expired lease that
	// nobody has taken over is extended; one of which any part was taken over
	// is not, even while the rest still stands. The ids may come back in any
	// order. Renewing twice is harmless. An error means that
	// nothing is known about any of them, save a lease.UnknownError, which names
	// those of which nothing is known.
	Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error)
}
