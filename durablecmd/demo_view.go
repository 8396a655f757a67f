package durablecmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// frame is what the demo shows at one moment.
type frame struct {
	elapsed time.Duration
	tally   tally
	events  []string // the latest last
	last    bool
}

// demoView chooses how the demo is shown: redrawn in place on a terminal, else
// as about one line a second.
func (p *program) demoView(given time.Duration, pages string) func(frame) {
	size, terminal := p.terminal(p.stdout)
	if !terminal {
		return plainView(p.stdout, pages)
	}
	return screenView(p.stdout, size, given, pages)
}

func plainView(w io.Writer, pages string) func(frame) {
	fmt.Fprintf(w, "demo: a worker on a SQLite file of its own, with sample work; look at %s (--keep keeps it up)\n", pages)
	next := time.Second
	return func(f frame) {
		if f.elapsed < next && !f.last {
			return
		}
		next = f.elapsed.Truncate(time.Second) + time.Second
		fmt.Fprintf(w, "%4.1fs  %s\n", f.elapsed.Seconds(), f.tally.line())
	}
}

// screenView draws each frame over the one before.
func screenView(w io.Writer, size screen, given time.Duration, pages string) func(frame) {
	drawn := 0
	return func(f frame) {
		lines := demoScreen(f, size, given, pages)
		var b strings.Builder
		if drawn > 0 {
			fmt.Fprintf(&b, "\x1b[%dA", drawn) // up to the first line of the frame before
		}
		for _, line := range lines {
			b.WriteString("\r" + line + "\x1b[K\n") // and nothing behind it
		}
		b.WriteString("\x1b[J") // and nothing below
		drawn = len(lines)
		_, _ = io.WriteString(w, b.String()) // a terminal that is gone ends the program by signal
	}
}

// demoScreen lays a frame out, no line longer and no frame higher than fits.
func demoScreen(f frame, size screen, given time.Duration, pages string) []string {
	lines := []string{
		fmt.Sprintf("durable demo   %4.1fs of at most %v   one worker, 8 runs concurrently, on a SQLite file", f.elapsed.Seconds(), given),
		"look at " + pages,
		"",
	}
	for _, kind := range demoKinds(given) {
		k := f.tally.kinds[kind.job.Name()]
		line := fmt.Sprintf("  %-7s %s %3d/%-3d %-29s", kind.job.Name(), bar(k.finished, k.total, 24), k.finished, k.total, kind.shows)
		if k.running > 0 {
			line += fmt.Sprintf(" %d running", k.running)
		}
		if k.waiting > 0 {
			line += fmt.Sprintf(" %d waiting", k.waiting)
		}
		if k.dead > 0 {
			line += fmt.Sprintf(" %d dead", k.dead)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	lines = append(lines, "", "  "+f.tally.line(), "")
	for i := range 6 {
		line := ""
		if i < len(f.events) {
			line = "  " + printable(f.events[i])
		}
		lines = append(lines, line)
	}
	lines = lines[:min(len(lines), max(size.height-1, 1))]
	for i := range lines {
		lines[i] = clipped(lines[i], max(size.width-1, 10))
	}
	return lines
}

// line is the tally as people read it while it changes.
func (t tally) line() string {
	return fmt.Sprintf("pending %d   running %d   succeeded %d   dead %d   retried %d   schedules fired %d   waiting for limits %d",
		t.pending, t.running, t.succeeded, t.dead, t.retried, t.fired, t.waiting)
}

// bar draws n of total as a bar of the given width.
func bar(n, total, width int) string {
	full := 0
	if total > 0 {
		full = n * width / total
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

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
