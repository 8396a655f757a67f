// Package faulttest makes one statement of a store fail at a time, under a
// working worker, and wants everything that does not need that statement to
// continue, and all of it once the statement works again, with no crash counted.
package faulttest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Need is something that a worker does and that continues whatever statement
// fails, unless it needs that statement.
type Need string

// What a worker does.
const (
	Execution Need = "execution" // a run is claimed, executed and settled as succeeded
	Failure   Need = "failure"   // a run fails, is retried and succeeds
	Death     Need = "death"     // a run ends dead
	Report    Need = "report"    // a handler stores a checkpoint, its run succeeds
	Child     Need = "child"     // a handler enqueues a run with a key
	Complete  Need = "complete"  // a handler completes its run in a transaction
	Beat      Need = "beat"      // a run is kept for longer than one lease
	Reclaim   Need = "reclaim"   // the run of a worker that is gone is reclaimed
	Schedule  Need = "schedule"  // an occurrence of a schedule is executed
	Cancel    Need = "cancel"    // a running handler learns that its run is to be cancelled
	Sweep     Need = "sweep"     // a run that ended long ago is deleted
	Start     Need = "start"     // a second worker starts and executes a run
	Drain     Need = "drain"     // it ends when its context is cancelled
	Crashless Need = "crashless" // no run is charged a crash
)

// Every is each Need: what a statement stops that belongs to all of them.
func Every() []Need {
	return []Need{Execution, Failure, Death, Report, Child, Complete, Beat, Reclaim, Schedule, Cancel, Sweep, Start, Drain, Crashless}
}

// Stop says what a statement stops while it fails, and why that has to be so.
type Stop struct {
	Needs   []Need
	Because string
}

// Subject is one store under test.
type Subject struct {
	// Faulty is the store whose statements fail: the workers'.
	Faulty store.Store
	// Sound is another store of the same database, which nothing happens to.
	Sound store.Store
	// Fail makes the statement of this name fail from now on; "" is none.
	Fail func(name string)
	// Begin begins a transaction of a handler's own, on the faulty side.
	Begin func(ctx context.Context) (Transaction, error)
}

// Transaction is one of a handler's own.
type Transaction struct {
	Tx       store.Tx
	Commit   func(ctx context.Context) error
	Rollback func(ctx context.Context) error
}

// Pace says how long a test takes its time, and how much the worker has in hand.
type Pace struct {
	Lease  time.Duration // of the workers
	Within time.Duration // everything that can continue has to, in this time
	Leases int           // so many more runs are kept, each under a claim of its own; zero: claims take what they get
}

// PaceOf is short, unless DURABLE_TEST_LONG asks for the long form.
func PaceOf() Pace {
	if os.Getenv("DURABLE_TEST_LONG") != "" {
		return Pace{Lease: 6 * time.Second, Within: 10 * time.Second}
	}
	return Pace{Lease: 2 * time.Second, Within: 10 * time.Second}
}

// Paces are the first pace and slower ones. What goes wrong at a pace that the
// machine cannot keep, for other programs have it, goes well at a slower one; what
// has to go wrong does at each. All are too short for a schedule that rests with a
// fault, which takes a minute.
func (p Pace) Paces() []Pace {
	slow, slowest := p, p
	slow.Lease, slow.Within = 2*p.Lease, p.Within+p.Within/4
	slowest.Lease, slowest.Within = 4*p.Lease, p.Within+p.Within/2
	return []Pace{p, slow, slowest}
}

// Try has one statement fail under a worker of the subject and returns what
// went wrong. The subject is used up when that is not nil.
func Try(t *testing.T, s Subject, pace Pace, statement string, stop Stop) []string {
	t.Helper()
	r := &round{t: t, ctx: t.Context(), subject: s, pace: pace, statement: statement, stop: stop, began: time.Now()}
	r.prepare()
	s.Fail(statement)
	r.during()
	s.Fail("")
	r.after()
	r.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults
}

// stops reports whether the table lets the statement stop this.
func (s Stop) stops(need Need) bool { return slices.Contains(s.Needs, need) }

// logger shows what the workers log when the test fails.
func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(logs{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type logs struct{ t *testing.T }

// Write passes one line on.
func (l logs) Write(line []byte) (int, error) {
	if os.Getenv("DURABLE_TEST_LOGS") != "" {
		l.t.Log(string(line))
	}
	return len(line), nil
}

func (r *round) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf("%s: ", r.statement)+fmt.Sprintf(format, args...))
}
