package durablecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// changeFlags are the runs that a verb changes: those named, or all that match.
type changeFlags struct {
	ID     []string   `arg:"" optional:"" help:"Ids of runs."`
	State  words      `placeholder:"STATE,…" help:"Instead of ids: all runs in this state; may be repeated."`
	Job    words      `placeholder:"JOB,…" help:"Instead of ids: all runs of this job; may be repeated."`
	Queue  words      `placeholder:"QUEUE,…" help:"Instead of ids: all runs of this queue; may be repeated."`
	Tag    word       `placeholder:"TAG" help:"Instead of ids: all runs with this tag."`
	Since  *time.Time `help:"Instead of ids: all runs made at or after this instant."`
	Until  *time.Time `help:"Instead of ids: all runs made before this instant."`
	Cursor word       `placeholder:"CURSOR" help:"Go on where another bulk action stopped: its \"next\"."`
	All    bool       `help:"Instead of ids: all runs that match, or all there are."`
	Yes    bool       `help:"Do not refuse to change runs that are not named."`
	Reason string     `help:"Why; kept in the audit, and with cancelled runs."`
	JSON   bool       `name:"json" help:"Print JSON."`
}

type (
	runsCancelVerb struct {
		changeFlags
	}
	runsRetryVerb struct {
		changeFlags
	}
	runsDeleteVerb struct {
		changeFlags
	}
	runsRerunVerb struct {
		ID   string         `arg:"" help:"Id of the run."`
		Args *string        `help:"Other arguments, as JSON."`
		In   *time.Duration `help:"Due so long from now."`
		JSON bool           `name:"json" help:"Print JSON."`
	}
	runsCountVerb struct {
		JSON bool `name:"json" help:"Print JSON."`
	}
)

// Run cancels.
func (v runsCancelVerb) Run(ctx context.Context, p *program) error {
	return p.changeRuns(ctx, v.changeFlags, store.CancelRuns)
}

// Run retries.
func (v runsRetryVerb) Run(ctx context.Context, p *program) error {
	return p.changeRuns(ctx, v.changeFlags, store.RetryRuns)
}

// Run deletes.
func (v runsDeleteVerb) Run(ctx context.Context, p *program) error {
	return p.changeRuns(ctx, v.changeFlags, store.DeleteRuns)
}

// bulk tells whether all runs that match are meant, and refuses what is
// neither that nor a list of ids.
func (f changeFlags) bulk() (bool, error) {
	filtered := len(f.State)+len(f.Job)+len(f.Queue) > 0 || f.Tag != "" || f.Since != nil || f.Until != nil || f.Cursor != ""
	switch {
	case len(f.ID) > 0 && (filtered || f.All):
		return false, usage("give ids, or --all and what all runs have in common, not both")
	case len(f.ID) > 0:
		return false, nil
	case !f.All:
		return false, usage("give ids of runs, or --all (with --state, --job, --queue, --tag, --since or --until to narrow it)")
	case !f.Yes:
		return false, usage("--all changes every run that matches: say --yes if that is meant")
	default:
		return true, nil
	}
}

func (f changeFlags) filter() (durable.Filter, error) {
	filter, err := runsListVerb{State: f.State, Job: f.Job, Queue: f.Queue, Tag: f.Tag, Since: f.Since, Until: f.Until, Cursor: f.Cursor, Limit: 1}.filter()
	filter.Limit = 0
	return filter, err
}

func (f changeFlags) ids() ([]durable.RunID, error) {
	ids := make([]durable.RunID, len(f.ID))
	for i, text := range f.ID {
		var err error
		if ids[i], err = durable.ParseRunID(text); err != nil {
			return nil, &usageError{err: err}
		}
	}
	return ids, nil
}

// changeRuns does one thing with the runs that the flags name.
func (p *program) changeRuns(ctx context.Context, flags changeFlags, action store.RunAction) error {
	bulk, err := flags.bulk()
	if err != nil {
		return err
	}
	ids, err := flags.ids()
	if err != nil {
		return err
	}
	filter, err := flags.filter()
	if err != nil {
		return err
	}
	return p.withStore(ctx, served, func(ctx context.Context, db backend.Store, _ Config) error {
		o := durable.NewOperator(db, actor())
		if bulk {
			return p.changeAll(ctx, o, action, filter, flags, totalOf(ctx, db, action, filter))
		}
		var changed []store.ChangedRun
		switch action {
		case store.CancelRuns:
			changed, err = o.Cancel(ctx, flags.Reason, ids...)
		case store.RetryRuns:
			changed, err = o.Retry(ctx, flags.Reason, ids...)
		case store.DeleteRuns:
			changed, err = o.Delete(ctx, flags.Reason, ids...)
		}
		if err != nil {
			return err
		}
		if err := p.printChanged(changed, flags.JSON); err != nil {
			return err
		}
		return refusal(action, changed)
	})
}

func (p *program) printChanged(changed []store.ChangedRun, asJSON bool) error {
	if asJSON {
		return p.printJSON(map[string]any{"runs": notNil(changed)})
	}
	for _, c := range changed {
		state := c.State.String()
		if c.Result == store.RunNotFound {
			state = "-"
		}
		if _, err := fmt.Fprintf(p.stdout, "%s  %s  %s\n", c.ID, c.Result, state); err != nil {
			return err
		}
	}
	return nil
}

// refusal is the error of an order that did not do all that was asked.
func refusal(action store.RunAction, changed []store.ChangedRun) error {
	var missing, refused []string
	for _, c := range changed {
		switch c.Result {
		case store.RunNotFound:
			missing = append(missing, c.ID.String())
		case store.RunConflict:
			refused = append(refused, conflict(c))
		case store.RunLocked:
			refused = append(refused, fmt.Sprintf("%s is held by another transaction", c.ID))
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("%s: run %s: %w", action, strings.Join(missing, ", "), durable.ErrNotFound)
	case len(refused) > 0:
		return fmt.Errorf("%s: %s: %w", action, strings.Join(refused, ", "), durable.ErrConflict)
	default:
		return nil
	}
}

// conflict says why a run could not be changed.
func conflict(c store.ChangedRun) string {
	if c.Key != "" {
		return fmt.Sprintf("%s has the key %q, which run %s holds", c.ID, c.Key, c.KeyHolder)
	}
	return fmt.Sprintf("%s is %v", c.ID, c.State)
}

// progressEvery is how often a person is told how far a bulk action has come.
const progressEvery = time.Second

// totalOf says of how many runs a bulk action is, where the store's bounded
// counts tell it: where nothing but states narrows it. Else it is empty.
func totalOf(ctx context.Context, db backend.Store, action store.RunAction, filter durable.Filter) string {
	if len(filter.Jobs)+len(filter.Queues) > 0 || filter.Tag != "" || !filter.Since.IsZero() || !filter.Until.IsZero() || filter.Before != (durable.RunID{}) {
		return ""
	}
	counts, err := db.Counts(ctx)
	if err != nil {
		return "" // the action itself will tell
	}
	states := filter.States
	if len(states) == 0 {
		states = action.States()
	}
	var total store.Count
	for _, state := range states {
		total.N += counts[state].N
		total.Estimated = total.Estimated || counts[state].Estimated
	}
	return " of " + number(total)
}

// changeAll does one thing with all runs that match, and tells on stderr how
// far it has come; total as totalOf tells it.
func (p *program) changeAll(ctx context.Context, o *durable.Operator, action store.RunAction, filter durable.Filter, flags changeFlags, total string) error {
	told := p.now()
	progress := func(b durable.Bulk) {
		if now := p.now(); now.Sub(told) >= progressEvery {
			told = now
			fmt.Fprintf(p.stderr, "%s: %s\n", action, bulkText(b, total))
		}
	}
	do := map[store.RunAction]func(context.Context, durable.Filter, string, func(durable.Bulk)) (durable.Bulk, error){
		store.CancelRuns: o.CancelAll, store.RetryRuns: o.RetryAll, store.DeleteRuns: o.DeleteAll,
	}[action]
	done, err := do(ctx, filter, flags.Reason, progress)
	if err != nil && done.Next != (durable.RunID{}) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("%w (after %s; go on with --cursor %s)", err, bulkText(done, total), done.Next)
	}
	if flags.JSON && (err == nil || done.Next != (durable.RunID{})) {
		err = errors.Join(err, p.printJSON(done))
	}
	if err != nil || flags.JSON {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%s: %s\n", action, bulkText(done, ""))
	return err
}

// bulkText tells a person what became of many runs, of a total or of "".
func bulkText(b durable.Bulk, total string) string {
	words := []string{fmt.Sprintf("%d%s runs matched", b.Seen, total)}
	for _, part := range []struct {
		n    int
		word string
	}{{b.Changed, "changed"}, {b.CancelRequested, "cancel requested"}, {b.Unchanged, "unchanged"}, {b.Conflict, "conflict"}, {b.Locked, "locked"}, {b.NotFound, "not found"}} {
		if part.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", part.n, part.word))
		}
	}
	return strings.Join(words, ", ")
}

// Run makes the new run and prints its id.
func (v runsRerunVerb) Run(ctx context.Context, p *program) error {
	id, err := durable.ParseRunID(v.ID)
	if err != nil {
		return &usageError{err: err}
	}
	var args json.RawMessage
	if v.Args != nil {
		args = json.RawMessage(*v.Args)
	}
	var options []durable.Option
	if v.In != nil {
		options = append(options, durable.After(*v.In))
	}
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		made, err := durable.NewOperator(store, actor()).Rerun(ctx, id, args, options...)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(map[string]any{"id": made})
		}
		_, err = fmt.Fprintln(p.stdout, made)
		return err
	})
}

// Run prints how many runs there are in each state.
func (v runsCountVerb) Run(ctx context.Context, p *program) error {
	return p.withStore(ctx, served, func(ctx context.Context, db backend.Store, _ Config) error {
		counts, err := db.Counts(ctx)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(map[string]any{"counts": counts})
		}
		table := newTable(p.stdout)
		for _, state := range store.States() {
			table.row(state.String(), number(counts[state]))
		}
		return table.flush()
	})
}

// number writes a count, an estimated one as such.
func number(c store.Count) string {
	if c.Estimated {
		return fmt.Sprintf("about %d", c.N)
	}
	return fmt.Sprint(c.N)
}
