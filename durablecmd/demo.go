package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oklog/run"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// demoVerb shows a worker at work. It reads no configuration and touches
// nothing but its own folder.
type demoVerb struct {
	For  time.Duration `placeholder:"12s" help:"Duration of the demo, 3s to 19s."`
	Keep bool          `help:"Keep the demo and its dashboard running until you press Ctrl-C, or for as long as --for says, and keep the database file."`
}

// demoFor is how long the demo lasts when nothing else is said.
const demoFor = 12 * time.Second

// The demo stops its worker so long before its time is over: what the worker
// may take to stop, and what is then left to print.
const (
	demoDrain = 600 * time.Millisecond
	demoGrace = 200 * time.Millisecond
	demoSpare = 400 * time.Millisecond
)

// Run shows the demo and prints its sum as the last line.
func (v demoVerb) Run(ctx context.Context, p *program) (err error) {
	began := p.now()
	endless := v.Keep && v.For == 0
	if v.For == 0 {
		v.For = demoFor
	}
	if v.For < 3*time.Second || v.For > 19*time.Second {
		return usage("--for %v: want 3s to 19s", v.For)
	}
	dir, err := os.MkdirTemp("", "durable-demo-")
	if err != nil {
		return err
	}
	if !v.Keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	ctx, cancel := p.untilSignal(ctx)
	defer cancel()
	dsn := "sqlite:" + filepath.ToSlash(filepath.Join(dir, "durable.db"))
	store, err := backend.Open(ctx, dsn, backend.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	sum, err := v.play(ctx, p, store, demoStage{began: began, endless: endless})
	if v.Keep {
		fmt.Fprintf(p.stdout, "demo: the database is kept; inspect it with\n  DURABLE_DATABASE_URL=%s %s runs list\n", dsn, p.name)
	}
	if left := sum.pending + sum.running; left > 0 {
		fmt.Fprintf(p.stdout, "demo: %d unfinished at the end\n", left)
	}
	fmt.Fprintln(p.stdout, sum)
	if ctx.Err() != nil && !endless {
		err = errors.Join(err, context.Cause(ctx))
	}
	return err
}

// demoStage is what a demo is played on.
type demoStage struct {
	began   time.Time
	endless bool // until a signal
}

// play runs the worker and the pages beside the director until there is nothing left
// to show, and counts what the store then holds.
func (v demoVerb) play(ctx context.Context, p *program, db backend.Store, on demoStage) (tally, error) {
	worker := durable.NewWorker(db, durable.WorkerConfig{
		Name: "demo", MaxConcurrentRuns: 8, PollInterval: 200 * time.Millisecond,
		DrainTimeout: demoDrain, CancelGrace: demoGrace,
	})
	registerDemo(worker, v.For)
	pages, err := p.demoPages(ctx)
	if err != nil {
		return tally{}, err
	}
	defer pages.open(db, db.Locks(), nil)()
	d := director{
		operator: p.operator(db, nil), client: durable.NewClient(db), plan: demoPlan(v.For), show: p.demoView(v.For, pages.address()),
		now: p.now, began: on.began, deadline: v.For - demoDrain - demoGrace - demoSpare,
		every: demoEvery(v.For), fires: int(v.For / (2 * demoEvery(v.For))),
	}
	if on.endless {
		d.stays = p.demoStays(pages.address())
	}
	lock, err := holdDemoLock(ctx, db.Locks())
	if err != nil {
		return tally{}, err
	}
	defer lock()
	var group run.Group
	var worked, directed, served error
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	directing, stopDirecting := context.WithCancel(ctx)
	defer stopDirecting()
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	group.Add(func() error { worked = worker.Run(working); return worked }, func(error) { stopWork() })
	group.Add(func() error { directed = d.direct(directing); return directed }, func(error) { stopDirecting() })
	group.Add(func() error { served = pages.serve(serving); return served }, func(error) { stopServing() })
	_ = group.Run() // it is worked, directed or served

	last := context.WithoutCancel(ctx)
	runs, err := demoRuns(last, d.operator)
	sum := count(runs)
	d.show(frame{elapsed: p.now().Sub(on.began), tally: sum, events: d.events, last: true})
	return sum, errors.Join(worked, directed, served, err)
}

// director enqueues the demo's work as its time comes, watches the store and
// says when all has been shown.
type director struct {
	operator *operate.Operator
	client   *durable.Client
	plan     []demoStep
	show     func(frame)
	now      func() time.Time
	began    time.Time
	deadline time.Duration
	every    time.Duration // between two occurrences of the schedule
	fires    int           // occurrences to wait for
	stays    func()        // says that the demo stays up after its show; nil: it does not

	known  map[durable.RunID]durable.Record
	events []string
}

func (d *director) direct(ctx context.Context) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		elapsed := d.now().Sub(d.began)
		if err := d.feed(ctx, elapsed); err != nil {
			return ignoreEnd(ctx, err)
		}
		runs, err := demoRuns(ctx, d.operator)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		d.notice(runs)
		sum := count(runs)
		d.show(frame{elapsed: elapsed, tally: sum, events: d.events})
		if elapsed >= d.deadline || len(d.plan) == 0 && d.complete(elapsed, sum) {
			if d.stays == nil {
				return nil
			}
			d.stays()
			return d.goOn(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// ignoreEnd drops the error of a call that ctx has interrupted.
func ignoreEnd(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// feed enqueues the steps whose time has come, in one call, once the worker has
// declared the limit that some of the runs name.
func (d *director) feed(ctx context.Context, elapsed time.Duration) error {
	var due []durable.NewRun
	rest := d.plan
	for len(rest) > 0 && rest[0].at <= elapsed {
		due = append(due, rest[0].runs...)
		rest = rest[1:]
	}
	_, err := d.client.Enqueue(ctx, due...)
	if errors.Is(err, store.ErrUnknownLimit) {
		return nil
	}
	d.plan = rest
	return err
}

// complete reports whether everything has ended and the schedule is not about to
// fire, so that nothing begins that would be left unfinished.
func (d *director) complete(elapsed time.Duration, sum tally) bool {
	now := d.now()
	last := now.Truncate(d.every)
	caughtUp := !sum.lastFire.Before(last) || last.Before(d.began)
	quiet := last.Add(d.every).Sub(now) > 200*time.Millisecond
	enough := sum.fired >= d.fires || elapsed > d.deadline-d.every
	return sum.pending+sum.running == 0 && enough && caughtUp && quiet
}

// notice turns what has changed since the last look into lines for people.
func (d *director) notice(runs []durable.Record) {
	if d.known == nil {
		d.known = map[durable.RunID]durable.Record{}
	}
	for i := len(runs) - 1; i >= 0; i-- {
		if line := demoEvent(d.known[runs[i].ID], runs[i]); line != "" {
			d.events = append(d.events, line)
		}
		d.known[runs[i].ID] = runs[i]
	}
	d.events = d.events[max(len(d.events)-6, 0):]
}

// demoRuns reads every run, newest first.
func demoRuns(ctx context.Context, o *operate.Operator) ([]durable.Record, error) {
	var runs []durable.Record
	filter := durable.Filter{Limit: 200}
	for {
		list, err := o.Runs(ctx, filter)
		if err != nil {
			return nil, err
		}
		runs = append(runs, list.Runs...)
		if list.Next == nil {
			return runs, nil
		}
		filter.Before = *list.Next
	}
}
