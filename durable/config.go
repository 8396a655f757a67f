package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// WorkerConfig configures a Worker. The zero value of each field means its
// default.
type WorkerConfig struct {
	// Name labels the worker for people: 1 to 128 bytes of text. It need not be unique, and
	// no decision depends on it. Default <hostname>-<pid>.
	Name string
	// Version is what the worker reports as the version of its program: at most
	// store.MaxVersion bytes. Default: the main module's version and the revision
	// from which the program was built, as far as it knows.
	Version string
	// Queues are the queues served. Default: "default", without a cap.
	Queues []Queue
	// MaxConcurrentRuns bounds the handlers that execute concurrently. Default 100.
	MaxConcurrentRuns int
	// ClaimBatchSize bounds the runs taken by one claim. Default
	// MaxConcurrentRuns; a larger value has no effect.
	ClaimBatchSize int
	// ClaimBatchBytes bounds the args that one claim brings, in bytes. Args are assumed to be
	// as large as those of the latest claims, and before the first claim as large as they may
	// be: a claim of runs that are larger than the earlier ones may bring more, up to
	// ClaimBatchSize times store.MaxArgsSize. The bound is on one claim, not on all runs that
	// the worker has. Default 16 MiB.
	ClaimBatchBytes int
	// PollInterval is how long the worker sleeps after it found nothing, if no wake-up
	// arrives: 1 ms to 100 years. Default 5 s.
	PollInterval time.Duration
	// PollJitter spreads each sleep over PollInterval·(1 ± PollJitter), at
	// most 1. Default 0.2; a negative value switches it off.
	PollJitter float64
	// NoListen makes the worker only poll: it does not listen for wake-ups.
	NoListen bool
	// Terms are the lease's duration and heartbeat interval. Default 30 s and
	// 10 s (a third).
	Terms lease.Terms
	// Retry is the policy of jobs that have none of their own. Default:
	// exponential from 5 s to 1 h, ±20 %.
	Retry RetryPolicy
	// DrainTimeout is how long handlers may continue after the worker's ctx has
	// ended, before their contexts are cancelled: at most 100 years. Default
	// 10 s; a negative value means not at all.
	DrainTimeout time.Duration
	// CancelGrace is how long a handler may take to return after its context
	// was cancelled: at most 100 years. Default 5 s; a negative value means not
	// at all.
	CancelGrace time.Duration
	// MaxCrashes is how many workers a run may crash, the last of them while
	// it was executed alone, before it is dead. 2 to 32767; default 4.
	MaxCrashes int
	// Orphans says what happens to schedules that no worker declares any more:
	// DisableOrphans(after), with after at least 2 h. Default: they are flagged.
	Orphans store.OrphanPolicy
	// OnDead is the job of which a run is stored for each death of a run of the worker's jobs
	// that have no OnDead of their own; see the option. Default: none.
	OnDead Job[Death]
	// NoRunLog keeps the worker from storing handlers' log lines with their
	// attempts.
	NoRunLog bool
	// Middleware is called around every handler, the first outermost. Default:
	// none.
	Middleware []Middleware
	// Hooks are called when the worker does something, and when a handler enqueues
	// through its Run. Default: none. A Client has hooks of its own, see
	// Client.WithHooks.
	Hooks observe.Hooks
	// Tally adds up what the worker does. The worker reports it to its store,
	// every 20 seconds or more; a Tally that several workers share is reported
	// once. Default: one of the worker's own.
	Tally *observe.Tally
	// Retention is how long succeeded and cancelled runs are kept, from their
	// end, unless their job has a Retention of its own. At least 1 s; default
	// 24 h; a negative value (KeepForever) means forever. Give all workers of a
	// store the same: any of them may be the one that deletes.
	Retention time.Duration
	// RetentionDead is the same for dead runs. Default 168 h.
	RetentionDead time.Duration
	// RetentionAudit is how long the changes of operators stay in the audit log.
	// Default 2160 h, 90 days.
	RetentionAudit time.Duration
	// SweepInterval is how often the worker deletes what is old enough, spread
	// like the poll. At least 1 s, at most 100 years; default 1 min.
	SweepInterval time.Duration
	// Logger receives the life of runs (debug), and what people should see (info and above).
	// The worker waits for its handler: if writes of yours may block, as those to a pipe do
	// when nothing reads it, write through package observe/logs, or outcomes are not settled
	// and timeouts not enforced meanwhile. Default: nothing is logged.
	Logger *slog.Logger

	// Elapsed is the worker's monotonic clock. Default lease.Elapsed. A
	// replacement must advance with the timers of package time.
	Elapsed func() time.Duration
	// NewClaimID creates claim ids. Default lease.NewClaimID.
	NewClaimID func() lease.ClaimID
	// Random returns numbers in [0, 1), for jitter. Default math/rand/v2.
	Random func() float64
	// SchedulingLatency measures how long a goroutine that can continue waits for a CPU: it
	// returns when one has, and how long that took. While it takes long the worker begins
	// fewer handlers. Default: it yields and takes the time by Elapsed.
	SchedulingLatency func() time.Duration
	// Process is what this worker shares with the other workers of its process.
	// Default: one for the whole program. In a test that simulates several
	// processes, give the workers of each process one new(Process).
	Process *Process
}

// Queue is a queue served by a worker.
type Queue struct {
	Name string
	Max  int // maximum number of this queue's runs that this worker executes concurrently; zero: no cap
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if len(c.Queues) == 0 {
		c.Queues = []Queue{{Name: DefaultQueue}}
	}
	orDefault(&c.MaxConcurrentRuns, 100)
	orDefault(&c.ClaimBatchSize, c.MaxConcurrentRuns)
	orDefault(&c.ClaimBatchBytes, 16<<20)
	orDefault(&c.PollInterval, 5*time.Second)
	orDefault(&c.PollJitter, 0.2)
	c.Terms = c.Terms.WithDefaults()
	if c.Retry == nil {
		c.Retry = Exponential(5*time.Second, time.Hour).WithJitter(0.2)
	}
	orDefault(&c.DrainTimeout, 10*time.Second)
	orDefault(&c.CancelGrace, 5*time.Second)
	orDefault(&c.MaxCrashes, 4)
	orDefault(&c.Retention, 24*time.Hour)
	orDefault(&c.RetentionDead, 7*24*time.Hour)
	orDefault(&c.RetentionAudit, 90*24*time.Hour)
	orDefault(&c.SweepInterval, time.Minute)
	if c.Tally == nil {
		c.Tally = observe.NewTally()
	}
	rare := c.Tally.Hooks() // the others are called for each run: see Worker.counts
	c.Hooks = observe.Join(observe.Hooks{Enqueue: rare.Enqueue, RunLost: rare.RunLost}, c.Hooks)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// orDefault replaces a zero by the default and a negative by zero ("off").
func orDefault[T int | float64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	} else if *field < 0 {
		*field = min(*field, -1) // negative stays recognisable for validate
	}
}

// validate reports every violation together.
func (c WorkerConfig) validate() error {
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	refuse(len(c.Name) > store.MaxNameLength || !utf8.ValidString(c.Name) || storable.HasControl(c.Name),
		"worker name %q: want 1 to %d bytes of text without control characters", storable.Clip(c.Name, 150), store.MaxNameLength)
	seen := map[string]bool{}
	for _, q := range c.Queues {
		if err := store.CheckName("queue", q.Name); err != nil {
			faults = append(faults, err)
		}
		refuse(q.Max < 0, "queue %s: cap %d is negative", q.Name, q.Max)
		refuse(seen[q.Name], "queue %s is named twice", q.Name)
		seen[q.Name] = true
	}
	refuse(c.MaxConcurrentRuns < 1 || c.MaxConcurrentRuns > 100_000, "max concurrent runs %d: want 1 to 100000", c.MaxConcurrentRuns)
	refuse(c.ClaimBatchSize < 1, "claim batch size %d: want 1 or more", c.ClaimBatchSize)
	refuse(c.ClaimBatchBytes < 1, "claim batch bytes %d: want 1 or more", c.ClaimBatchBytes)
	refuse(c.PollInterval < time.Millisecond, "poll interval %v: want at least 1ms", c.PollInterval)
	refuse(c.PollJitter > 1 || math.IsNaN(c.PollJitter), "poll jitter ratio %v: want at most 1", c.PollJitter)
	refuse(c.MaxCrashes < 2 || c.MaxCrashes > store.MostCrashes, "max crashes %d: want 2 to %d", c.MaxCrashes, store.MostCrashes)
	refuse(!store.ValidRetention(c.Retention), "retention %v: want at least 1s, or a negative value to keep them forever", c.Retention)
	refuse(!store.ValidRetention(c.RetentionDead), "retention of dead runs %v: want at least 1s, or a negative value to keep them forever", c.RetentionDead)
	refuse(!store.ValidRetention(c.RetentionAudit), "retention of the audit %v: want at least 1s, or a negative value to keep it forever", c.RetentionAudit)
	refuse(c.SweepInterval < time.Second, "sweep interval %v: want at least 1s", c.SweepInterval)
	for name, d := range map[string]time.Duration{ // beyond it sums of instants overflow
		"poll interval": c.PollInterval, "sweep interval": c.SweepInterval, "drain timeout": c.DrainTimeout, "cancel grace": c.CancelGrace,
	} {
		refuse(d > store.MaxDelay, "%s %v: want at most %v", name, d, store.MaxDelay)
	}
	for i, m := range c.Middleware {
		refuse(m == nil, "middleware %d is nil", i)
	}
	orphans := time.Duration(c.Orphans)
	refuse(orphans < 0 || orphans > 0 && orphans < 2*store.DeclareEvery, "orphans disabled after %v: want at least %v, or 0 for never", orphans, 2*store.DeclareEvery)
	if err := c.Terms.Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// debug reports whether the life of single runs is logged.
func (w *Worker) debug() bool {
	return w.config.Logger.Enabled(context.Background(), slog.LevelDebug)
}
