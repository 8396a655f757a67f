package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Explain says why a run does not start, how it executes, why it ended, or why it is
// not there, which is no error.
func (o *Operator) Explain(ctx context.Context, id store.RunID) (Explanation, error) {
	facts, err := o.store.Facts(ctx, id)
	if err != nil {
		return Explanation{}, err
	}
	if facts.Run != nil {
		if facts.Waits, err = o.openWaits(ctx, &facts); err != nil {
			return Explanation{}, err
		}
		if facts.Ends, err = o.openEnds(ctx, &facts); err != nil {
			return Explanation{}, err
		}
		if facts.Batches, err = o.batchesOf(ctx, facts.Ends); err != nil {
			return Explanation{}, err
		}
		if err := o.show(ctx, facts.Run); err != nil {
			return Explanation{}, err
		}
	}
	return Explain(facts), nil
}

// Explain is what the method of an Operator makes of what the store knows.
func Explain(f store.Facts) Explanation {
	e := explaining{Facts: &f, Explanation: Explanation{Run: f.ID, At: f.At, Blockers: []Blocker{}, Next: []Remedy{}}}
	if f.Run != nil && f.Declared != nil && f.Declared.Name != f.Run.Job {
		e.ServedAs = &f.Declared.Name
	}
	switch {
	case f.Run == nil:
		e.absent()
	case f.Run.State == store.Pending:
		e.State = &f.Run.State
		e.pending()
	case f.Run.State == store.Running:
		e.State = &f.Run.State
		e.running()
	default:
		e.State = &f.Run.State
		e.ended()
	}
	return e.Explanation
}

// explaining is one Explanation in the making.
type explaining struct {
	*store.Facts
	Explanation
}

// block adds a reason and what can be done about it.
func (e *explaining) block(b Blocker, detail any, next ...Remedy) {
	if detail != nil {
		b.Detail, _ = json.Marshal(detail) // of names and numbers: it always can be
	}
	e.Blockers = append(e.Blockers, b)
	e.Next = append(e.Next, next...)
}

// pending explains why a run waits.
func (e *explaining) pending() {
	e.untilDue()
	e.queuePaused()
	e.workers()
	e.isolated()
	e.limits()
	e.behind()
	if h := e.Held; h != nil {
		e.rowHeld(h)
	}
	slices.SortStableFunc(e.Blockers, func(a, b Blocker) int {
		switch {
		case a.EndsAt == nil && b.EndsAt == nil:
			return 0
		case a.EndsAt == nil:
			return -1
		case b.EndsAt == nil:
			return 1
		default:
			return b.EndsAt.Compare(*a.EndsAt)
		}
	})
	e.polling()
	e.earliest()
	e.expires()
	e.Summary = "pending: " + e.texts()
	if expires := e.Facts.Run.ExpiresAt; e.blocked() == 0 && (expires == nil || expires.After(e.Facts.At)) {
		e.Summary = "pending: nothing keeps it from starting; a worker takes it with its next claim" + e.asJob()
	}
	e.remedy("cancel", RoleOperator, "cancel the run", "runs cancel "+e.ID.String())
}

// asJob says under which name a run is executed that was stored under an earlier one.
func (e *explaining) asJob() string {
	if e.ServedAs == nil {
		return ""
	}
	return fmt.Sprintf(", as job %s: %s is an earlier name of it", *e.ServedAs, e.Facts.Run.Job)
}

// untilDue says what a run that is not due waits for.
func (e *explaining) untilDue() {
	run := e.Facts.Run
	if !run.DueAt.After(e.Facts.At) {
		return
	}
	due, left := run.DueAt, span(run.DueAt.Sub(e.Facts.At))
	last := lastAttempt(run)
	switch {
	case last != nil && last.Fence == run.Fence && last.Outcome == store.Failure:
		text := fmt.Sprintf("attempt %d of %d failed%s; the next is due in %s", last.Number, run.MaxAttempts, because(last.Error), left)
		e.block(Blocker{Kind: BlockerRetryDelay, Text: text, Since: &last.EndedAt, EndsAt: &due},
			map[string]any{"attempt": last.Number, "max_attempts": run.MaxAttempts, "error": last.Error})
	case last != nil && last.Fence == run.Fence && last.Outcome == store.Misfit:
		text := fmt.Sprintf("its args did not fit the program of worker %s%s; any worker may take it in %s", last.Worker, because(last.Error), left)
		e.block(Blocker{Kind: BlockerRetryDelay, Text: text, Since: &last.EndedAt, EndsAt: &due}, map[string]any{"worker": last.Worker, "error": last.Error})
	case len(e.Waits)+len(e.Ends) > 0:
		e.waits()
		e.awaitsEnds()
	case run.Fence > 0 && (last == nil || last.Fence < run.Fence):
		e.block(Blocker{Kind: BlockerSnoozed, Text: "its handler snoozed it: it is due in " + left, Since: run.StartedAt, EndsAt: &due}, nil)
	default:
		e.block(Blocker{Kind: BlockerNotDue, Text: "it is due in " + left, Since: &run.CreatedAt, EndsAt: &due}, nil)
	}
}

func lastAttempt(run *store.Record) *store.Attempt {
	if n := len(run.Attempts); n > 0 {
		return &run.Attempts[n-1]
	}
	return nil
}

func because(why *string) string {
	if why == nil || *why == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", firstLine(*why))
}

func (e *explaining) queuePaused() {
	pause, queue := e.Paused, e.Facts.Run.Queue
	if pause == nil {
		return
	}
	text, by := "queue "+queue+" is paused", ""
	blocker := Blocker{Kind: BlockerQueuePaused, Since: pause.Since}
	if pause.By != "" {
		blocker.By = &pause.By
		by = " by " + pause.By
	}
	if pause.Since != nil {
		text, by = "queue "+queue+" was paused", by+" "+span(e.Facts.At.Sub(*pause.Since))+" ago"
	}
	blocker.Text = text + by
	e.block(blocker, nil, Remedy{"resume", RoleOperator, "resume queue " + queue, "queues resume " + shellWord(queue)})
}

// isolated says that a run is executed alone.
func (e *explaining) isolated() {
	run := e.Facts.Run
	if !run.Isolated {
		return
	}
	text := fmt.Sprintf("it was in %s, so a worker takes it only while it executes nothing else", counted(store.Count{N: int64(run.CrashCount)}, "crash", "crashes"))
	idle := slices.ContainsFunc(e.serving(store.Working), func(w *store.WorkerInfo) bool { return w.Executing == 0 })
	blocker := Blocker{Kind: BlockerIsolated, Text: text}
	if idle {
		blocker.Text += "; one is idle"
		blocker.EndsAt = &e.Facts.At
	}
	e.block(blocker, map[string]any{"crash_count": run.CrashCount, "idle_worker": idle})
	if !idle {
		e.Next = append(e.Next, startIdle())
	}
}

// behind counts what is claimed first.
func (e *explaining) behind() {
	if e.Facts.Run.DueAt.After(e.Facts.At) || len(e.Facts.Run.Limits) > 0 {
		return
	}
	serving := e.serving(store.Working)
	ahead, ended := store.Count{AtLeast: e.More}, int64(0)
	for i := range e.Lanes {
		lane := &e.Lanes[i]
		own := lane.Queue == e.Facts.Run.Queue && lane.Job == e.Facts.Run.Job
		if own || slices.ContainsFunc(serving, func(w *store.WorkerInfo) bool { return w.Serves(lane.Queue, lane.Job) }) {
			ahead, ended = ahead.Plus(lane.Ahead), ended+lane.Ended
		}
	}
	if ahead.Estimated = len(serving) > 1 && ahead.N > 0; ahead.N == 0 { // each claims by itself
		ahead = store.Count{}
	}
	e.Ahead = &ahead
	if ahead.N == 0 {
		return
	}
	blocker := Blocker{Kind: BlockerBehind, Text: counted(ahead, "due run is taken first", "due runs are taken first")}
	if ended > 0 && len(serving) > 0 {
		took := time.Duration(float64(5*time.Minute) * float64(ahead.N) / float64(ended))
		blocker.Text += fmt.Sprintf("; at the rate of the last five minutes that takes about %s", span(took))
		at := e.Facts.At.Add(took)
		blocker.EndsAt = &at
	}
	e.block(blocker, map[string]any{"ahead": ahead.N, "ended_in_5m": ended})
}

func (e *explaining) rowHeld(h *store.HeldRow) {
	text := fmt.Sprintf("another transaction holds the run's row (pid %d", h.PID)
	if h.Application != "" {
		text += ", " + firstLine(h.Application)
	}
	if h.Since != nil {
		text += ", for " + span(e.Facts.At.Sub(*h.Since))
	}
	e.block(Blocker{Kind: BlockerRowHeld, Text: text + ")", Since: h.Since}, map[string]any{"pid": h.PID},
		Remedy{"end_transaction", RoleDeployer, fmt.Sprintf("end that transaction: SELECT pg_terminate_backend(%d)", h.PID), ""})
}

// polling says that the wait for the next claim may be long where no worker listens.
func (e *explaining) polling() {
	serving := e.serving(store.Working)
	if len(e.Blockers) > 0 || len(serving) == 0 || slices.ContainsFunc(serving, func(w *store.WorkerInfo) bool { return w.Poll == 0 }) {
		return
	}
	poll := time.Duration(slices.MinFunc(serving, func(a, b *store.WorkerInfo) int { return cmp.Compare(a.Poll, b.Poll) }).Poll)
	at := e.Facts.At.Add(poll)
	e.block(Blocker{Kind: BlockerPolling, Text: "no worker that serves it listens for wake-ups: one looks within " + span(poll), EndsAt: &at}, nil)
}

// earliest is when the last of the reasons ends.
func (e *explaining) earliest() {
	e.Sure = true
	if len(e.Blockers) == 0 {
		e.Earliest = &e.Facts.At
	}
	for i := range e.Blockers {
		b := &e.Blockers[i]
		e.Sure = e.Sure && b.EndsAt != nil && b.Kind != BlockerBehind && b.Kind != BlockerLimit
		if b.EndsAt != nil && (e.Earliest == nil || b.EndsAt.After(*e.Earliest)) {
			e.Earliest = b.EndsAt
		}
	}
}

// expires says when it is too late.
func (e *explaining) expires() {
	at := e.Facts.Run.ExpiresAt
	if at == nil {
		return
	}
	var text string
	switch left := at.Sub(e.Facts.At); {
	case left <= 0:
		text = fmt.Sprintf("it has expired, %s ago: the worker that takes it cancels it", span(-left))
	case !e.Facts.Run.DueAt.Before(*at):
		text = fmt.Sprintf("it expires in %s, before it is due: no attempt will begin", span(left))
		e.Earliest, e.Sure = nil, false
	default:
		text = fmt.Sprintf("it expires in %s: unless it starts before, it is cancelled", span(left))
	}
	e.block(Blocker{Kind: BlockerExpires, Text: text, EndsAt: at}, nil)
}

// blocked counts what keeps the run from starting.
func (e *explaining) blocked() (n int) {
	for i := range e.Blockers {
		if e.Blockers[i].Kind != BlockerExpires {
			n++
		}
	}
	return n
}

func (e *explaining) texts() string {
	texts := make([]string, len(e.Blockers))
	for i := range e.Blockers {
		texts[i] = e.Blockers[i].Text
	}
	return strings.Join(texts, "; ")
}

func (e *explaining) remedy(action string, role Role, text, command string) {
	e.Next = append(e.Next, Remedy{action, role, text, command})
}
