package store

import (
	"context"
	"errors"
	"time"
)

// DeathRecord is one death of a run whose job has a job for that; see JobCode.OnDead. A run that is
// retried and dies again has another one.
type DeathRecord struct {
	ID     int64 // rises, and is never used again
	Run    RunID
	Job    string // as it is declared
	RanAs  string // the name that the run has: the job's, or an earlier one
	At     time.Time
	Age    time.Duration // since then, on the store's clock
	Args   []byte        // of the run, as they are stored
	Reason string
}

// DeathRun is the run that is stored for a death.
type DeathRun struct {
	Death int64 // its ID
	Run   NewRun
}

// MaxDeaths bounds the deaths of one call.
const MaxDeaths = 500

// Deaths keeps what has died, whatever made it dead, until the run for it is stored. A death is kept
// in the transaction that makes the run dead, if a worker has declared its job with an OnDead within
// DeclaredWithin; with what the run was then, so that neither a retry nor a deletion changes it.
type Deaths interface {
	// Deaths returns the oldest deaths of runs of the jobs, at most MaxDeaths.
	Deaths(ctx context.Context, jobs []string, limit int) ([]DeathRecord, error)
	// EnqueueForDeaths removes deaths and stores their runs, in one transaction, and returns how
	// many. A death that is not there any more, or that another call has in hand, gets no run. The
	// runs have no conditions.
	EnqueueForDeaths(ctx context.Context, runs []DeathRun) (int, error)
}

// CheckDeathRuns reports what is wrong with runs for deaths, wrapped in ErrInvalid. Stores call it
// before they change anything.
func CheckDeathRuns(deaths []DeathRun) ([]NewRun, error) {
	runs := make([]NewRun, len(deaths))
	for i := range deaths {
		runs[i] = deaths[i].Run
	}
	if AnyLinked(runs) {
		return nil, invalid("runs for deaths", []error{errors.New("want runs without conditions")})
	}
	return runs, CheckRuns(runs)
}
