package rules

import (
	"math"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

const (
	// Forever is how long a run is kept whose retention never ends: 292 years.
	Forever time.Duration = math.MaxInt64
	// WorkersKept is how long the row of a worker is kept, at least, after its last
	// declaration.
	WorkersKept = 7 * 24 * time.Hour
	// AuditPruned is how many changes are deleted from the audit log at a time.
	AuditPruned = 5000
	// SkipsKept is how many skips of each schedule are kept, the latest.
	SkipsKept = 1000
)

// Kept is a retention as it is compared: zero or less is Forever.
func Kept(d time.Duration) time.Duration {
	if d <= 0 {
		return Forever
	}
	return d
}

// Retention is how long an ended run is kept. A job's own retention, unless it is
// zero, counts before that of the request.
func Retention(state store.State, own time.Duration, request *store.SweepRequest) time.Duration {
	switch {
	case own != 0:
		return Kept(own)
	case state == store.Dead:
		return Kept(request.RetentionDead)
	default:
		return Kept(request.Retention)
	}
}

const (
	// sweepLag is how far behind the age of deletion a walk along the runs stays, at
	// most, so that runs have ended when it comes by. A quarter of the retention when
	// that is less.
	sweepLag = time.Hour
	// PassLeast is the least time from the beginning of one full pass to the next: a
	// small store is passed often, a large one every store.SweepPassEvery.
	PassLeast = 30 * time.Second
	// PassStep is how much of that time each step of a pass needs.
	PassStep = 10 * time.Second
)

// WalkAge is how long ago a run was stored when the walk along the runs comes to
// it; Forever when it comes to none.
func WalkAge(request *store.SweepRequest) time.Duration {
	age := min(Kept(request.Retention), Kept(request.RetentionDead))
	if age == Forever {
		return age
	}
	return age + min(age/4, sweepLag)
}
