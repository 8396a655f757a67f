package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// batchesVerb is the command batches.
type batchesVerb struct {
	List   batchesListVerb   `cmd:"" help:"List batches, newest first, with their counts."`
	Show   batchesShowVerb   `cmd:"" help:"Show a batch: its counts, rate and time left, its failed members, and which runs wait for it."`
	Wait   batchesWaitVerb   `cmd:"" help:"Wait until a batch has ended. Exits 0 if it succeeded, 3 if it failed or was cancelled, 4 after --timeout."`
	Close  batchesCloseVerb  `cmd:"" help:"Close a batch: no run is added to it any more, except by its members."`
	Cancel batchesCancelVerb `cmd:"" help:"Cancel a batch: it takes no more runs, and its unfinished members are cancelled."`
	Retry  batchesRetryVerb  `cmd:"" help:"Make the dead members of a batch pending again, with a full set of attempts."`
}

type (
	batchesListVerb struct {
		watchFlag

		State  words `placeholder:"STATE,…" help:"Only batches in these states: running, succeeded, failed or cancelled. Repeatable."`
		Name   word  `placeholder:"NAME" help:"Only batches of this name."`
		Limit  int   `default:"50" help:"Maximum number of results (1 to 200)."`
		Cursor word  `placeholder:"CURSOR" help:"Continue after this cursor (\"next\" of the previous page)."`
		JSON   bool  `name:"json" help:"Print JSON."`
	}
	batchesShowVerb struct {
		watchFlag
		batchID
	}
	batchesWaitVerb struct {
		batchID

		Timeout time.Duration `help:"Give up after this time, such as 5m; 0: never." default:"0"`
	}
	batchesCloseVerb  struct{ batchID }
	batchesCancelVerb struct {
		batchID

		Reason string `help:"Reason, recorded in the audit log and with cancelled members."`
	}
	batchesRetryVerb struct {
		batchID

		Reason string `help:"Reason, recorded in the audit log."`
	}
	batchID struct {
		ID   string `arg:"" help:"Id of the batch, or its first 8 or more characters."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
)

// Run prints a list of batches.
func (v batchesListVerb) Run(ctx context.Context, p *program) error {
	filter := store.BatchFilter{Name: string(v.Name), Limit: v.Limit}
	for _, word := range v.State {
		var state store.BatchState
		if err := state.UnmarshalText([]byte(word)); err != nil {
			return usage("--state: %w", err)
		}
		filter.States = append(filter.States, state)
	}
	var err error
	if filter.Before, err = cursor(v.Cursor); err != nil {
		return err
	}
	if err := checkLimit(v.Limit); err != nil {
		return err
	}
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Batches(ctx, filter)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		return p.printBatches(&list)
	})
}

func (p *program) printBatches(list *operate.BatchList) error {
	if len(list.Batches) == 0 {
		_, err := fmt.Fprintln(p.stdout, "no batches")
		return err
	}
	table := p.newTable("CREATED", "LEFT", "CANCELLED", "SUCCEEDED")
	table.row("ID", "NAME", "STATE", "DONE", "MEMBERS", "SUCCEEDED", "DEAD", "CANCELLED", "LEFT", "CREATED")
	for i := range list.Batches {
		b := &list.Batches[i]
		table.row(b.ID.String(), b.Name, batchState(b), percentOf(b), decimal(b.Counts.Members), decimal(b.Counts.Succeeded), decimal(b.Counts.Dead),
			decimal(b.Counts.Cancelled), timeLeft(b), ago(b.CreatedAt, p.now()))
	}
	if err := table.flush(); err != nil || list.Next == nil {
		return err
	}
	_, err := fmt.Fprintf(p.stdout, "\nmore: --cursor %s\n", *list.Next)
	return err
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// batchState is the state of a batch, and whether it still takes runs or is being cancelled.
func batchState(b *operate.BatchView) string {
	switch {
	case b.State == store.BatchRunning && b.Cancelled:
		return "running, cancelled"
	case b.State == store.BatchRunning && !b.Closed:
		return "running, open"
	default:
		return b.State.String()
	}
}

// percentOf is the share of the members that have ended.
func percentOf(b *operate.BatchView) string { return strconv.Itoa(b.Percent()) + "%" }

func timeLeft(b *operate.BatchView) string {
	if b.TimeLeft == nil {
		return "-"
	}
	return brief(time.Duration(*b.TimeLeft))
}

// Run prints one batch.
func (v batchesShowVerb) Run(ctx context.Context, p *program) error {
	if err := checkBatchID(v.ID); err != nil {
		return err
	}
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		id, err := o.FindBatch(ctx, v.ID)
		if err != nil {
			return err
		}
		batch, err := o.Batch(ctx, id)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(batch)
		}
		return p.printBatchDetail(&batch)
	})
}

// Run waits for the end of one batch and prints it.
func (v batchesWaitVerb) Run(ctx context.Context, p *program) error {
	if v.Timeout < 0 {
		return usage("--timeout %v: want 0 or more", v.Timeout)
	}
	return v.with(ctx, p, func(ctx context.Context, o *operate.Actor, id store.BatchID) error {
		if v.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, v.Timeout, fmt.Errorf("batch %s has not ended within %v: %w", id, v.Timeout, errTimedOut))
			defer cancel()
		}
		batch, err := o.WaitForBatch(ctx, id)
		if err != nil {
			return err
		}
		return errors.Join(v.printed(p, &batch), batch.Ended())
	})
}

// Run closes a batch.
func (v batchesCloseVerb) Run(ctx context.Context, p *program) error {
	return v.with(ctx, p, func(ctx context.Context, o *operate.Actor, id store.BatchID) error {
		batch, err := o.CloseBatch(ctx, id)
		if err != nil {
			return err
		}
		return v.printed(p, &batch)
	})
}

// Run cancels a batch.
func (v batchesCancelVerb) Run(ctx context.Context, p *program) error {
	return v.with(ctx, p, func(ctx context.Context, o *operate.Actor, id store.BatchID) error {
		batch, err := o.CancelBatch(ctx, id, v.Reason)
		if err != nil {
			return err
		}
		return v.printed(p, &batch)
	})
}

// Run retries the dead members of a batch, and reports its progress on stderr.
func (v batchesRetryVerb) Run(ctx context.Context, p *program) error {
	return v.with(ctx, p, func(ctx context.Context, o *operate.Actor, id store.BatchID) error {
		batch, err := o.BatchSummary(ctx, id)
		if err != nil {
			return err
		}
		total, reported := fmt.Sprintf(" of %d", batch.Counts.Dead), p.now()
		done, err := o.RetryBatch(ctx, id, v.Reason, func(b operate.Bulk) {
			if now := p.now(); now.Sub(reported) >= progressEvery {
				reported = now
				fmt.Fprintf(p.stderr, "retry: %s\n", bulkText(b, total))
			}
		})
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("%w (after %s; the same command continues)", err, bulkText(done, total))
		}
		if v.JSON {
			return p.printJSON(done)
		}
		_, err = fmt.Fprintf(p.stdout, "%s: retry: %s\n", id, bulkText(done, ""))
		return err
	})
}

// with does a command's work with the batch that its id, or the beginning of it, names.
func (v batchID) with(ctx context.Context, p *program, do func(ctx context.Context, o *operate.Actor, id store.BatchID) error) error {
	if err := checkBatchID(v.ID); err != nil {
		return err
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		id, err := o.FindBatch(ctx, v.ID)
		if err != nil {
			return err
		}
		return do(ctx, o, id)
	})
}

// checkBatchID refuses what cannot name a batch, before the store is reached.
func checkBatchID(text string) error {
	if err := operate.CheckBatchID(text); err != nil {
		return &usageError{err: err}
	}
	return nil
}

// printed prints a batch that was changed, or has ended.
func (v batchID) printed(p *program, b *operate.BatchView) error {
	if v.JSON {
		return p.printJSON(b)
	}
	return p.printBatch(b)
}

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
