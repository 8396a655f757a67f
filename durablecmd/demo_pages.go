package durablecmd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// demoPages opens the listener of the demo's pages, on its usual port if that is free.
func (p *program) demoPages(ctx context.Context) (*board, error) {
	quiet := slog.New(slog.DiscardHandler)
	pages, err := p.listenDashboard(ctx, Config{DashboardAddr: dashboardAlone}, quiet)
	if err != nil {
		pages, err = p.listenDashboard(ctx, Config{DashboardAddr: "127.0.0.1:0"}, quiet)
	}
	if err != nil {
		return nil, err
	}
	pages.title = "demo"
	return pages, nil
}

// address is where the pages are.
func (b *board) address() string { return "http://" + b.listener.Addr().String() + "/" }

// demoStays says that the demo stays up.
func (p *program) demoStays(address string) func() {
	return func() {
		fmt.Fprintf(p.stdout, "demo: it stays up until you press Ctrl-C; look at %s\n", address)
	}
}

// holdDemoLock takes a lock for as long as the demo lasts, so that there is one to see.
func holdDemoLock(ctx context.Context, locks lock.Locks) (release func(), err error) {
	const most = 24 * time.Hour // nothing renews it
	locker := lock.NewLocker(locks, lock.LockerConfig{Owner: "demo"})
	grant, err := locker.TryAcquire(ctx, "search-index", lock.Terms{Terms: lease.Terms{Duration: most}})
	return func() { _ = locker.Release(context.WithoutCancel(ctx), grant) }, err // the file goes, or the lock expires
}

// goOn enqueues a little of everything each second, until ctx ends.
func (d *director) goOn(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for second := 0; ; second++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, err := d.client.Enqueue(ctx, demoSecond(second)...); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
}

// demoSecond is what is enqueued in one second of a demo that stays up.
func demoSecond(second int) (runs []durable.NewRun) {
	kinds := demoKinds(demoFor)
	add := func(kind int, each int, takes time.Duration, options ...durable.Option) {
		if second%each == 0 {
			runs = append(runs, kinds[kind].job.New(newDemoArgs(second, takes), options...))
		}
	}
	add(mailKind, 1, 200*time.Millisecond)
	add(mailKind, 2, 350*time.Millisecond, durable.Priority(2), durable.Tags("urgent"))
	add(mailKind, 60, 150*time.Millisecond, durable.After(10*time.Minute), durable.Tags("later"))
	add(flakyKind, 5, 80*time.Millisecond)
	add(brokenKind, 20, 80*time.Millisecond)
	add(importKind, 7, 4*time.Second)
	for range 2 {
		add(syncKind, 3, 900*time.Millisecond)
	}
	return runs
}
