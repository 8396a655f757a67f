package durabletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// wire is the connection of one worker to the kit's store. Every method by
// which a worker writes or reads goes through it; TestNothingPassesACutWire
// finds one that does not.
type wire struct {
	durable.Store
	w *Worker
}

var (
	errKilled  = errors.New("the worker is killed")
	errTooMany = errors.New("more executions than Kit.Limits allows")
)

// pass waits until a call may be sent.
func (w *Worker) pass(ctx context.Context) error {
	for {
		w.mu.Lock()
		link, changed := w.link, w.changed
		w.mu.Unlock()
		var given <-chan struct{}
		switch link {
		case connected:
			return nil
		case dead:
			return errKilled
		case cut:
			given = ctx.Done()
		case frozen, gone:
		}
		select {
		case <-changed:
		case <-given:
			return fmt.Errorf("no answer from the store: %w", ctx.Err())
		}
	}
}

// through makes a call when it may be sent.
func through[T any](ctx context.Context, w *Worker, call func() (T, error)) (T, error) {
	if err := w.pass(ctx); err != nil {
		var zero T
		return zero, err
	}
	return call()
}

// errOnly is a call that answers nothing.
func errOnly(call func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, call() }
}

func (x wire) Enqueue(ctx context.Context, runs ...durable.NewRun) ([]durable.Receipt, error) {
	return through(ctx, x.w, func() ([]durable.Receipt, error) { return x.Store.Enqueue(ctx, runs...) })
}

func (x wire) EnqueueUnder(ctx context.Context, holder store.Holder, runs ...durable.NewRun) ([]durable.Receipt, error) {
	return through(ctx, x.w, func() ([]durable.Receipt, error) { return x.Store.EnqueueUnder(ctx, holder, runs...) })
}

func (x wire) Run(ctx context.Context, id durable.RunID) (durable.Record, error) {
	return through(ctx, x.w, func() (durable.Record, error) { return x.Store.Run(ctx, id) })
}

func (x wire) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	return through(ctx, x.w, func() ([]store.Head, error) { return x.Store.Heads(ctx, serves) })
}

// Claim notes what the worker is given.
func (x wire) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	return through(ctx, x.w, func() ([]store.ClaimedRun, error) {
		if !x.w.kit.spend(0) {
			x.w.kit.poke()
			return nil, errTooMany
		}
		claimed, err := x.Store.Claim(ctx, request)
		x.w.mu.Lock()
		for i := range claimed {
			x.w.held[claimed[i].ID] = struct{}{}
		}
		if len(claimed) > 0 {
			x.w.claims = append(x.w.claims, request.Claim)
		}
		x.w.mu.Unlock()
		x.w.kit.spend(len(claimed))
		x.w.kit.poke()
		return claimed, err
	})
}

// HandBack forgets what the worker was given under a claim that it takes back.
func (x wire) HandBack(ctx context.Context, request store.ClaimRequest) (int, error) {
	return through(ctx, x.w, func() (int, error) { return x.Store.HandBack(ctx, request) })
}

// Settle notes what happened to what the worker was given.
func (x wire) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	return through(ctx, x.w, func() ([]store.Verdict, error) {
		verdicts, err := x.Store.Settle(ctx, settlements)
		if err == nil {
			x.settled(settlements, verdicts)
		}
		x.w.kit.poke()
		return verdicts, err
	})
}

func (x wire) StillHeld(ctx context.Context, holders []store.Holder) ([]durable.RunID, error) {
	return through(ctx, x.w, func() ([]durable.RunID, error) { return x.Store.StillHeld(ctx, holders) })
}

func (x wire) settled(settlements []store.Settlement, verdicts []store.Verdict) {
	i := 0
	for _, settlement := range settlements {
		for _, run := range settlement.Runs {
			verdict := verdicts[i]
			i++
			if verdict == store.Applied || verdict == store.AlreadyApplied {
				x.w.kit.count(landed(x.Store, run, verdict).Kind)
			}
			x.w.mu.Lock()
			if verdict != store.Deferred {
				delete(x.w.held, run.ID)
			}
			if verdict == store.Rejected {
				x.w.refused = append(x.w.refused, run.ID)
			}
			x.w.mu.Unlock()
		}
	}
}

// landed is the outcome that the store has: the one written now, or what an
// earlier write under the same claim has made of the run.
func landed(db store.Inspector, run store.Settled, verdict store.Verdict) store.Outcome {
	if verdict == store.AlreadyApplied {
		if record, err := db.Run(context.Background(), run.ID); err == nil && record.State == durable.Succeeded {
			return store.Outcome{Kind: store.Success, Result: record.Result}
		}
	}
	return run.Outcome
}

// Reclaim notifies RunAll that a run is back.
func (x wire) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	return through(ctx, x.w, func() (store.ReclaimResult, error) {
		done, err := x.Store.Reclaim(ctx, request)
		if len(done.Runs) > 0 {
			x.w.kit.poke()
		}
		return done, err
	})
}

func (x wire) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	return through(ctx, x.w, func() ([]lease.ClaimID, error) { return x.Store.Renew(ctx, claims, d) })
}

// Declare notes what the worker serves.
func (x wire) Declare(ctx context.Context, declaration store.Declaration) error {
	if x.w.schedules != nil {
		declaration.Schedules = slices.DeleteFunc(slices.Clone(declaration.Schedules), func(s store.Schedule) bool { return !x.w.schedules[s.Name] })
	}
	_, err := through(ctx, x.w, errOnly(func() error { return x.Store.Declare(ctx, declaration) }))
	serves := store.Serves{}
	for _, job := range declaration.Jobs {
		serves.Jobs = append(serves.Jobs, job.Name)
	}
	for _, queue := range x.w.config.Queues {
		serves.Queues = append(serves.Queues, queue.Name)
	}
	if len(serves.Queues) == 0 {
		serves.Queues = []string{durable.DefaultQueue}
	}
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.w.serves = serves
	return err
}

func (x wire) Touch(ctx context.Context, worker store.WorkerID) error {
	_, err := through(ctx, x.w, errOnly(func() error { return x.Store.Touch(ctx, worker) }))
	return err
}

func (x wire) ReevaluateNow(ctx context.Context, names ...string) error {
	_, err := through(ctx, x.w, errOnly(func() error { return x.Store.ReevaluateNow(ctx, names...) }))
	return err
}

func (x wire) Materialize(ctx context.Context, limit int, decide func(time.Time, store.Schedule) store.Decision) (store.MaterializeResult, error) {
	return through(ctx, x.w, func() (store.MaterializeResult, error) { return x.Store.Materialize(ctx, limit, decide) })
}

func (x wire) Report(ctx context.Context, holder store.Holder, report store.Report) error {
	_, err := through(ctx, x.w, errOnly(func() error { return x.Store.Report(ctx, holder, report) }))
	return err
}

func (x wire) Checkpoint(ctx context.Context, id durable.RunID) ([]byte, error) {
	return through(ctx, x.w, func() ([]byte, error) { return x.Store.Checkpoint(ctx, id) })
}

func (x wire) Steps(ctx context.Context, ids []durable.RunID) ([]store.RunSteps, error) {
	return through(ctx, x.w, func() ([]store.RunSteps, error) { return x.Store.Steps(ctx, ids) })
}

func (x wire) Links(ctx context.Context, id durable.RunID) (store.RunLinks, error) {
	return through(ctx, x.w, func() (store.RunLinks, error) { return x.Store.Links(ctx, id) })
}

func (x wire) AwaitBatch(ctx context.Context, holder store.Holder, id store.BatchID, name string) (store.Batch, error) {
	return through(ctx, x.w, func() (store.Batch, error) { return x.Store.AwaitBatch(ctx, holder, id, name) })
}

func (x wire) Holds(ctx context.Context) ([]store.Hold, error) {
	return through(ctx, x.w, func() ([]store.Hold, error) { return x.Store.Holds(ctx) })
}

func (x wire) Outcomes(ctx context.Context, ids []durable.RunID) ([]store.RunOutcome, error) {
	return through(ctx, x.w, func() ([]store.RunOutcome, error) { return x.Store.Outcomes(ctx, ids) })
}

// RecordSteps notes which steps are stored; the worker may crash then.
func (x wire) RecordSteps(ctx context.Context, steps []store.NewStep) ([]store.StepVerdict, error) {
	return through(ctx, x.w, func() ([]store.StepVerdict, error) {
		verdicts, err := x.Store.RecordSteps(ctx, steps)
		if err != nil {
			return nil, err
		}
		var names []string
		for i := range steps {
			if verdicts[i] == store.StepStored {
				names = append(names, steps[i].Name)
			}
		}
		return verdicts, x.w.hasStored(ctx, names...)
	})
}

// BeginWait notes that a wait is stored.
func (x wire) BeginWait(ctx context.Context, wait store.NewWait) (store.RunSteps, error) {
	return through(ctx, x.w, func() (store.RunSteps, error) {
		recorded, err := x.Store.BeginWait(ctx, wait)
		if err != nil {
			return recorded, err
		}
		return recorded, x.w.hasStored(ctx, wait.Name)
	})
}

// Call notes that children, and the waits for them, are stored.
func (x wire) Call(ctx context.Context, calls []store.Call) error {
	_, err := through(ctx, x.w, errOnly(func() error {
		if err := x.Store.Call(ctx, calls); err != nil {
			return err
		}
		var names []string
		for i := range calls {
			names = append(names, calls[i].Name)
		}
		return x.w.hasStored(ctx, names...)
	}))
	return err
}

// GiveUp notes that the end of a wait is stored.
func (x wire) GiveUp(ctx context.Context, holder store.Holder, name string) (store.Input, error) {
	return through(ctx, x.w, func() (store.Input, error) {
		input, err := x.Store.GiveUp(ctx, holder, name)
		if err != nil {
			return input, err
		}
		return input, x.w.hasStored(ctx, name)
	})
}

func (x wire) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	return through(ctx, x.w, func() (store.SendReceipt, error) { return x.Store.Send(ctx, input) })
}

func (x wire) Release(ctx context.Context, request store.ReleaseRequest) (store.ReleaseResult, error) {
	return through(ctx, x.w, func() (store.ReleaseResult, error) { return x.Store.Release(ctx, request) })
}

func (x wire) Deaths(ctx context.Context, jobs []string, limit int) ([]store.DeathRecord, error) {
	return through(ctx, x.w, func() ([]store.DeathRecord, error) { return x.Store.Deaths(ctx, jobs, limit) })
}

func (x wire) EnqueueForDeaths(ctx context.Context, runs []store.DeathRun) (int, error) {
	return through(ctx, x.w, func() (int, error) { return x.Store.EnqueueForDeaths(ctx, runs) })
}

func (x wire) Publish(ctx context.Context, signal store.Signal) error {
	_, err := through(ctx, x.w, errOnly(func() error { return x.Store.Publish(ctx, signal) }))
	return err
}

func (x wire) CancelRequests(ctx context.Context, claims []lease.ClaimID) ([]store.CancelRequest, error) {
	return through(ctx, x.w, func() ([]store.CancelRequest, error) { return x.Store.CancelRequests(ctx, claims) })
}

func (x wire) UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	return through(ctx, x.w, func() (store.LimitGrant, error) { return x.Store.UseLimit(ctx, request) })
}

func (x wire) Sweep(ctx context.Context, request store.SweepRequest) (store.SweepResult, error) {
	return through(ctx, x.w, func() (store.SweepResult, error) { return x.Store.Sweep(ctx, request) })
}

// rareReports is how many workers the kit's take their fleet to have, so that they report every ten
// minutes, as those of a fleet of that size: three times a minute of virtual time would
// be most of what an idle worker costs.
const rareReports = 30_000

// ReportWorker makes reports rare.
func (x wire) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	return through(ctx, x.w, func() (store.Shared, error) {
		shared, err := x.Store.ReportWorker(ctx, report)
		shared.Alive = rareReports
		return shared, err
	})
}
