package durabletest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// Fact is something that a run has recorded, or was sent, before PerformAfter or CheckParks
// executes its handler. Create one with Stored, Failed, Slept, Sent or NotSent.
type Fact struct {
	kind  factKind
	name  string
	value any
}

type factKind int8

const (
	factStored factKind = iota + 1
	factFailed
	factSlept
	factSent
	factNotSent
)

// Stored says that the step of this name has the result value: its function is not called.
func Stored(name string, value any) Fact { return Fact{factStored, name, value} }

// Failed says that the step of this name has failed for good with the text of err.
func Failed(name string, err error) Fact { return Fact{factFailed, name, err} }

// Slept says that the sleep of this name is over.
func Slept(name string) Fact { return Fact{factSlept, name, nil} }

// Sent says that the run was sent the input value under this name.
func Sent(name string, value any) Fact { return Fact{factSent, name, value} }

// NotSent says that the run has waited for the input of this name until its deadline, in vain.
func NotSent(name string) Fact { return Fact{factNotSent, name, nil} }

// PerformAfter is PerformOn for a run with a past: the steps of the facts are stored, its inputs
// are there, so the handler continues from that point. Facts that the handler does not ask for
// do no harm.
//
//	got := durabletest.PerformAfter(t, kit.Store, []durabletest.Fact{
//		durabletest.Stored("charge", Charge{ID: "c1"}), durabletest.Slept("three days"), durabletest.Sent("approved", true),
//	}, order(), fulfil, Order{ID: 7})
//
// Performed.Steps lists the steps that the execution has added, and Performed.Waits what it was
// parked at.
func PerformAfter[A any](
	t testing.TB, db durable.Store, past []Fact, job durable.Job[A], handler func(ctx context.Context, run *durable.Run[A]) error, args A,
	options ...durable.Option,
) Performed {
	t.Helper()
	return perform(t, setting{db: db, past: past}, job, handler, args, options...)
}

// recordedPast executes a handler that records the facts, on a store of its own, so that the job's codec
// encodes them and no limit is used up, and returns what was recorded.
func recordedPast[A any](t testing.TB, past []Fact, job durable.Job[A], run durable.NewRun) store.RunSteps {
	t.Helper()
	if len(past) == 0 {
		return store.RunSteps{}
	}
	p := newPerformance(t, setting{db: memory.New(memory.Config{})}, run, func(context.Context) error { return nil })
	outcome := performOnce(t, p, job, func(ctx context.Context, run *durable.Run[A]) error {
		for _, fact := range past {
			if err := fact.record(ctx, run); err != nil {
				return durable.Permanent(fmt.Errorf("fact %q: %w", fact.name, err))
			}
		}
		return durable.Snooze(time.Hour)
	})
	if outcome.Kind != store.Snoozed {
		t.Fatalf("perform: %s", outcome.Error)
	}
	return p.recorded
}

// sleeper is a run of any job.
type sleeper interface {
	durable.AnyRun
	SleepUntil(ctx context.Context, name string, t time.Time) error
}

// record records what the fact says as a handler does that lives through it.
func (f Fact) record(ctx context.Context, run sleeper) error {
	switch f.kind {
	case factStored, factFailed:
		_, err := durable.Step(ctx, run, f.name, func(context.Context) (any, error) {
			if f.kind == factStored {
				return f.value, nil
			}
			failure, _ := f.value.(error)
			return nil, durable.Permanent(failure)
		})
		if f.kind == factFailed && durable.Final(err) {
			return nil
		}
		return err
	case factSlept:
		return run.SleepUntil(ctx, f.name, time.Now().Add(-time.Hour))
	case factNotSent:
		_, err := durable.Receive[any](ctx, run, f.name, time.Microsecond)
		if errors.Is(err, durable.ErrNoInput) {
			return nil
		}
		return err
	case factSent: // after it is stored, by sendPast
	}
	return nil
}

// sendPast sends the inputs of the facts.
func sendPast[A any](ctx context.Context, in setting, job durable.Job[A], id durable.RunID) error {
	for _, fact := range in.past {
		if fact.kind != factSent {
			continue
		}
		if _, err := job.Send(ctx, in.db, id, fact.name, fact.value); err != nil {
			return fmt.Errorf("fact %q: %w", fact.name, err)
		}
	}
	return nil
}

// storePast stores what another run has recorded, for the holder.
func storePast(ctx context.Context, db durable.Store, holder store.Holder, past *store.RunSteps) error {
	for i := range past.Steps {
		step := &past.Steps[i]
		if step.Kind.IsWait() {
			if _, err := db.BeginWait(ctx, store.NewWait{Holder: holder, Name: step.Name, Kind: step.Kind, Until: step.Until}); err != nil {
				return err
			}
			continue
		}
		verdicts, err := db.RecordSteps(ctx, []store.NewStep{{
			Holder: holder, Name: step.Name, Kind: step.Kind, Tries: step.Tries, Took: step.Took, Value: step.Value, Error: step.Error, Code: step.Code,
		}})
		if err == nil && verdicts[0] != store.StepStored {
			err = fmt.Errorf("step %q: %w", step.Name, lease.ErrLost)
		}
		if err != nil {
			return err
		}
	}
	for i := range past.Inputs {
		input, err := db.GiveUp(ctx, holder, past.Inputs[i].Name)
		if err == nil && !input.GaveUp {
			err = fmt.Errorf("fact %q: sent, and not sent", input.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
