package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// demoArgs are the args of every job of the demo.
type demoArgs struct {
	Number int            `json:"number"`
	Tenant string         `json:"tenant"`
	Takes  store.Duration `json:"takes"`
}

// newDemoArgs are the args of one run.
func newDemoArgs(number int, takes time.Duration) demoArgs {
	return demoArgs{Number: number, Tenant: []string{"acme", "globex", "initech"}[number%3], Takes: store.Duration(takes)}
}

// demoEvery is the interval of the demo's schedule, so that it fires a few
// times.
func demoEvery(given time.Duration) time.Duration {
	if given < 8*time.Second {
		return time.Second
	}
	return 2 * time.Second
}

// demoKind is one kind of work the demo shows.
type demoKind struct {
	job     durable.Job[demoArgs]
	shows   string
	handler func(ctx context.Context, run *durable.Run[demoArgs]) error
}

// The places of the kinds in the list.
const (
	mailKind = iota
	flakyKind
	brokenKind
	importKind
	syncKind
	ledgerKind
	reportKind
)

// demoKinds lists them in the order in which people see them.
func demoKinds(given time.Duration) []demoKind {
	soon := durable.Fixed(min(given/40, 300*time.Millisecond)).WithJitter(0.3)
	return []demoKind{
		{durable.NewJob[demoArgs]("mail"), "quick work", demoWork},
		{durable.NewJob[demoArgs]("flaky", durable.MaxAttempts(5), durable.Retry(soon)), "fails twice, is retried", demoFlaky},
		{durable.NewJob[demoArgs]("broken", durable.MaxAttempts(3), durable.Retry(soon)), "never succeeds, ends dead", demoBroken},
		{durable.NewJob[demoArgs]("import", durable.Timeout(10*time.Second)), "slow work", demoWork},
		{durable.NewJob[demoArgs]("sync", durable.Limited(durable.NewLimit("tenant", durable.Semaphore(2)), durable.KeyOf("{tenant}"))), "a limit: two for each tenant", demoWork},
		{durable.NewJob[demoArgs]("ledger", durable.Limited(durable.NewLimit("ledger", durable.Mutex()))), "a lock: one at a time", demoWork},
		{durable.NewJob[demoArgs]("report"), fmt.Sprintf("a schedule, every %v", demoEvery(given)), demoWork},
	}
}

func registerDemo(worker *durable.Worker, given time.Duration) {
	kinds := demoKinds(given)
	for _, kind := range kinds {
		durable.Register(worker, kind.job, kind.handler)
	}
	args := newDemoArgs(0, 150*time.Millisecond)
	durable.AddSchedule(worker, "report", kinds[reportKind].job, args, durable.Every(demoEvery(given)))
}

func demoWork(ctx context.Context, run *durable.Run[demoArgs]) error {
	timer := time.NewTimer(time.Duration(run.Args.Takes))
	defer timer.Stop()
	run.Log().Info("at work", "event", "demo.working", "number", run.Args.Number)
	if run.Args.Takes > store.Duration(time.Second) {
		if err := run.Progress(ctx, 0.3, "reading"); err != nil {
			return err
		}
	}
	select {
	case <-timer.C:
		return run.SetResult(map[string]int{"handled": run.Args.Number})
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func demoFlaky(ctx context.Context, run *durable.Run[demoArgs]) error {
	if err := demoWork(ctx, run); err != nil {
		return err
	}
	if run.Attempt < 3 {
		return errors.New("the service is busy")
	}
	return nil
}

func demoBroken(ctx context.Context, run *durable.Run[demoArgs]) error {
	if err := demoWork(ctx, run); err != nil {
		return err
	}
	return errors.New("there is no such account")
}

// demoStep is work that is enqueued some time after the start.
type demoStep struct {
	at   time.Duration
	runs []durable.NewRun
}

// demoPlan spreads the work over the first part of the time, so that the rest
// is enough to finish it: five seconds less than given, a quarter at least.
func demoPlan(given time.Duration) []demoStep {
	kinds := demoKinds(given)
	mail, flaky, broken, slow := kinds[mailKind].job, kinds[flakyKind].job, kinds[brokenKind].job, kinds[importKind].job
	limited, locked := kinds[syncKind].job, kinds[ledgerKind].job
	feeding := max(given-5*time.Second, given/4)
	slowly := min(given/6, 2*time.Second)
	number := 0
	args := func(takes time.Duration) demoArgs {
		number++
		return newDemoArgs(number, takes)
	}
	quick := func() demoArgs { return args(time.Duration(120+number*37%240) * time.Millisecond) }
	short := func() demoArgs { return args(80 * time.Millisecond) }

	var steps []demoStep
	at := func(instant time.Duration, runs ...durable.NewRun) { steps = append(steps, demoStep{instant, runs}) }
	at(0, slow.New(args(slowly)), flaky.New(short()), flaky.New(short()), broken.New(short()),
		mail.New(quick(), durable.After(feeding), durable.Tags("later")))
	for range 10 {
		at(0, mail.New(quick()))
	}
	for t := 250 * time.Millisecond; t < feeding; t += 250 * time.Millisecond {
		at(t, mail.New(quick()))
	}
	at(feeding/3, slow.New(args(slowly)), broken.New(short()), flaky.New(short()), flaky.New(short()))
	for _, instant := range []time.Duration{0, feeding / 2} {
		for range 9 {
			at(instant, limited.New(args(given/40)))
		}
		for range 4 {
			at(instant, locked.New(args(slowly/3)))
		}
	}
	for range 6 {
		at(feeding*2/3, mail.New(quick(), durable.Priority(2), durable.Tags("urgent")))
	}
	slices.SortStableFunc(steps, func(a, b demoStep) int { return int(a.at - b.at) })
	return steps
}
