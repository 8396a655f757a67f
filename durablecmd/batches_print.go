package durablecmd

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
)

// barWide is how many characters a bar has.
const barWide = 40

// barOf shows which part of the members has ended: # those that have succeeded, x those that have
// not, and . those that have not ended.
func barOf(b *operate.BatchView) string {
	if b.Counts.Members == 0 {
		return "[" + strings.Repeat(".", barWide) + "]"
	}
	cells := func(n int64) int { return int(n * barWide / b.Counts.Members) }
	failed := cells(b.Counts.Failed())
	if failed == 0 && b.Counts.Failed() > 0 {
		failed = 1 // one failure of a million is one to be seen
	}
	succeeded := min(cells(b.Counts.Succeeded), barWide-failed)
	return "[" + strings.Repeat("#", succeeded) + strings.Repeat("x", failed) + strings.Repeat(".", barWide-succeeded-failed) + "]"
}

// printBatch prints one batch.
func (p *program) printBatch(b *operate.BatchView) error {
	now := p.now()
	instant := func(t *time.Time) string { return instantOf(*t, now) }
	table := p.newTable()
	table.row("id", b.ID.String())
	table.row("name", b.Name)
	table.row("state", batchState(b))
	table.row("done", barOf(b)+" "+percentOf(b))
	table.row("members", decimal(b.Counts.Members))
	table.row("succeeded", decimal(b.Counts.Succeeded))
	table.row("dead", decimal(b.Counts.Dead))
	table.row("cancelled", decimal(b.Counts.Cancelled))
	table.row("unfinished", decimal(b.Unfinished))
	if b.Rate != nil {
		table.row("rate", strconv.FormatFloat(*b.Rate, 'g', 3, 64)+" a second")
	}
	if b.TimeLeft != nil {
		table.row("time left", "about "+timeLeft(b))
	}
	if b.FailFast {
		table.row("fail fast", "yes")
	}
	if b.Owner != nil {
		table.row("made by run", b.Owner.String())
	}
	table.row("created", instant(&b.CreatedAt))
	for _, at := range []struct {
		name string
		at   *time.Time
	}{{"open until", b.OpenUntil}, {"ends by", b.EndsBy}, {"failed", b.FailedAt}, {"ended", b.EndedAt}} {
		if at.at != nil {
			table.row(at.name, instant(at.at))
		}
	}
	if b.Reason != nil {
		table.row("reason", *b.Reason)
	}
	return table.flush()
}

// printBatchDetail prints one batch, its failed members, and the runs that wait for it.
func (p *program) printBatchDetail(b *operate.BatchDetail) error {
	if err := p.printBatch(&b.BatchView); err != nil {
		return err
	}
	if err := p.printFailed(b); err != nil || len(b.Waiters) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(p.stdout); err != nil {
		return err
	}
	table := p.newTable("STEP", "JOB")
	table.row("WAITS FOR IT", "JOB", "STATE", "WANTS", "MET", "STEP")
	for i := range b.Waiters {
		w := &b.Waiters[i]
		met := "no"
		if w.Met {
			met = "yes"
		}
		table.row(w.Run.String(), w.Job, w.State.String(), w.Want.String(), met, orDash(w.Step))
	}
	return table.flush()
}

func (p *program) printFailed(b *operate.BatchDetail) error {
	if b.Counts.Failed() == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(p.stdout); err != nil {
		return err
	}
	if len(b.Failed) == 0 {
		_, err := fmt.Fprintf(p.stdout, "no failed member is among the first: find them with runs list --state dead\n")
		return err
	}
	table := p.newTable("JOB")
	table.row("FAILED MEMBER", "JOB", "STATE", "REASON")
	for i := range b.Failed {
		m := &b.Failed[i]
		table.row(m.ID.String(), m.Job, m.State.String(), clipped(orDash(m.Reason), 100))
	}
	if err := table.flush(); err != nil {
		return err
	}
	if more := b.Counts.Failed() - int64(len(b.Failed)); more > 0 {
		_, err := fmt.Fprintf(p.stdout, "and %d more\n", more)
		return err
	}
	return nil
}
