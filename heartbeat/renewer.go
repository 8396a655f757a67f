package heartbeat

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Renewer is a store that can extend leases.
type Renewer interface {
	// Renew extends every named lease that still exists to d from now on the
	// store's clock, all in one call, and returns the claims it extended. A
	// claim that is not among them is lost for good. An expired lease that
	// has not been taken over is extended. A lease is not extended once any part of
	// it was taken over, even while the rest still exists. The ids may come back in any
	// order. A repeat is harmless. An error means that nothing is known about
	// any of them, except a lease.UnknownError, which names the claims
	// whose outcome is unknown.
	Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error)
}
