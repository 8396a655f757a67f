package durablecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// changeFlags are the runs that a command changes: those named, or all that match.
type changeFlags struct {
	ID []string `arg:"" optional:"" help:"Ids of runs, or their first 8 or more characters."`
	filterFlags

	Cursor word   `placeholder:"CURSOR" help:"With --all: continue a bulk change that stopped (its \"next\")."`
	All    bool   `help:"Apply to all runs that match the filters, instead of to ids. Without --state: cancel applies to pending and running runs, retry to dead and cancelled ones, acknowledge to dead ones, release to pending ones, and delete to those that have ended; to delete pending runs, add --state pending."`
	Yes    bool   `help:"Confirm a bulk change (required with --all)."`
	DryRun bool   `help:"With --all: print what would be changed, and change nothing."`
	Reason string `help:"Reason, recorded in the audit log and with cancelled runs."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

type (
	runsChangeVerb struct {
		changeFlags

		Action store.RunAction `kong:"-"` // what it does with the runs: see newGrammar
	}
	runsRetryVerb struct {
		runsChangeVerb

		WithDependents bool `help:"Retry one run together with the dependents that its failure has cancelled, at most 1000 of them; run it again for those that are left."`
	}
	runsRerunVerb struct {
		ID   string         `arg:"" help:"Id of the run, or its first 8 or more characters."`
		Args *string        `help:"Args of the new run as JSON. Default: those of the earlier run."`
		In   *time.Duration `help:"Delay before the run is due."`
		JSON bool           `name:"json" help:"Print JSON."`
	}
	runsCountVerb struct {
		filterFlags
		watchFlag

		JSON bool `name:"json" help:"Print JSON."`
	}
)

// Run does one thing with the runs that the flags name.
func (v runsChangeVerb) Run(ctx context.Context, p *program) error {
	bulk, err := v.bulk()
	if err != nil {
		return err
	}
	if err := checkIDs(v.ID...); err != nil {
		return err
	}
	filter, err := v.filter(p.now())
	if err != nil {
		return err
	}
	if filter.Before, err = cursor(v.Cursor); err != nil {
		return err
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		if bulk {
			return p.changeAll(ctx, o, v.Action, filter, v.changeFlags)
		}
		ids, err := findIDs(ctx, o, v.ID)
		if err != nil {
			return err
		}
		changed, err := o.Change(ctx, store.RunCommand{Action: v.Action, Reason: v.Reason, Runs: ids})
		if err != nil {
			return err
		}
		if err := p.printChanged(changed, v.JSON); err != nil {
			return err
		}
		return changed.Refused(v.Action)
	})
}

// bulk reports whether all runs that match are meant, and refuses what is
// neither that nor a list of ids.
func (f changeFlags) bulk() (bool, error) {
	filtered := f.given() || f.Cursor != ""
	switch {
	case len(f.ID) > 0 && (filtered || f.All):
		return false, usage("give ids of runs, or --all with filters, not both")
	case f.DryRun && !f.All:
		return false, usage("--dry-run: want --all too")
	case len(f.ID) > 0:
		return false, nil
	case !f.All:
		return false, usage("give ids of runs, or --all (narrow it with filters such as --state, --job, --queue and --since)")
	case !f.Yes && !f.DryRun:
		return false, usage("--all changes every run that matches: confirm with --yes, or try it with --dry-run")
	default:
		return true, nil
	}
}

// checkIDs refuses what cannot name a run, before the store is reached.
func checkIDs(texts ...string) error {
	for _, text := range texts {
		if err := operate.CheckID(text); err != nil {
			return &usageError{err: err}
		}
	}
	return nil
}

// findIDs returns the runs that ids, or the beginnings of ids, name.
func findIDs(ctx context.Context, o *operate.Actor, texts []string) ([]durable.RunID, error) {
	ids := make([]durable.RunID, len(texts))
	for i, text := range texts {
		var err error
		if ids[i], err = o.FindID(ctx, text); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// withRun does a command's work with the run that an id, or the beginning of one, names.
func (p *program) withRun(ctx context.Context, id string, do func(ctx context.Context, o *operate.Actor, id durable.RunID) error) error {
	if err := checkIDs(id); err != nil {
		return err
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		found, err := o.FindID(ctx, id)
		if err != nil {
			return err
		}
		return do(ctx, o, found)
	})
}

func (p *program) printChanged(changed operate.ChangedRuns, asJSON bool) error {
	if asJSON {
		return p.printJSON(changed)
	}
	for _, c := range changed.Runs {
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

// progressEvery is how often the progress of a bulk action is shown.
const progressEvery = time.Second

// changeAll makes one change to all runs that match, or a dry run of it, and
// reports its progress on stderr.
func (p *program) changeAll(ctx context.Context, o *operate.Actor, action store.RunAction, filter store.Filter, flags changeFlags) error {
	name := string(action)
	if flags.DryRun {
		name += " (dry run, nothing is changed)"
	}
	total := ""
	if count, known := o.Matching(ctx, action, filter); known {
		total = " of " + number(count)
	}
	reported := p.now()
	progress := func(b operate.Bulk) {
		if now := p.now(); now.Sub(reported) >= progressEvery {
			reported = now
			fmt.Fprintf(p.stderr, "%s: %s\n", name, bulkText(b, total))
		}
	}
	var done operate.Bulk
	var err error
	if flags.DryRun {
		done, err = o.PreviewAll(ctx, action, filter, progress)
	} else {
		done, err = o.ChangeAll(ctx, operate.BulkOrder{Action: action, Filter: filter, Reason: flags.Reason}, progress)
	}
	if err != nil && done.Next != (durable.RunID{}) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("%w (after %s; continue with --cursor %s)", err, bulkText(done, total), done.Next)
	}
	if flags.JSON && (err == nil || done.Next != (durable.RunID{})) {
		err = errors.Join(err, p.printJSON(done))
	}
	if err != nil || flags.JSON {
		return err
	}
	if _, err = fmt.Fprintf(p.stdout, "%s: %s\n", name, bulkText(done, "")); err != nil || done.PendingToo.N == 0 {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%s pending %s too: add --state pending\n", number(done.PendingToo), plural(done.PendingToo.N, "run matches", "runs match"))
	return err
}

// bulkText reports a person what happened to many runs, of a total or of "".
func bulkText(b operate.Bulk, total string) string {
	noun := "runs"
	if total == "" {
		noun = plural(int64(b.Seen), "run", noun)
	}
	words := []string{fmt.Sprintf("%d%s %s matched", b.Seen, total, noun)}
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
	var args json.RawMessage
	if v.Args != nil {
		args = json.RawMessage(*v.Args)
	}
	var options []durable.Option
	if v.In != nil {
		options = append(options, durable.After(*v.In))
	}
	return p.withRun(ctx, v.ID, func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		made, err := o.Rerun(ctx, id, args, options...)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(made)
		}
		_, err = fmt.Fprintln(p.stdout, made.ID)
		return err
	})
}

// Run prints how many runs there are in each state.
func (v runsCountVerb) Run(ctx context.Context, p *program) error {
	filter, err := v.filter(p.now())
	if err != nil {
		return err
	}
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		counted, err := o.CountMatching(ctx, filter)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(counted)
		}
		table := p.newTable()
		for _, state := range filter.Wanted() {
			table.row(state.String(), number(counted.Counts[state]))
		}
		return table.flush()
	})
}

// number writes a count, a lower bound as 10000+, and an estimate as such.
func number(c store.Count) string {
	switch {
	case c.Estimated:
		return fmt.Sprintf("about %d", c.N)
	case c.AtLeast:
		return fmt.Sprintf("%d+", c.N)
	default:
		return fmt.Sprint(c.N)
	}
}

// Run retries the runs that the flags name, or one with its dependents.
func (v runsRetryVerb) Run(ctx context.Context, p *program) error {
	if !v.WithDependents {
		return v.runsChangeVerb.Run(ctx, p)
	}
	if bulk, err := v.bulk(); err != nil {
		return err
	} else if bulk || len(v.ID) != 1 {
		return usage("--with-dependents: want the id of one run")
	}
	if err := checkIDs(v.ID...); err != nil {
		return err
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		ids, err := findIDs(ctx, o, v.ID)
		if err != nil {
			return err
		}
		retried, err := o.RetryWithDependents(ctx, v.Reason, ids[0])
		if err != nil {
			return err
		}
		if err := p.printRetried(retried, v.JSON); err != nil {
			return err
		}
		return retried.Refused(store.RetryRuns)
	})
}

func (p *program) printRetried(retried operate.RetriedRuns, asJSON bool) error {
	if asJSON {
		return p.printJSON(retried)
	}
	if err := p.printChanged(retried.ChangedRuns, false); err != nil || retried.Left.N == 0 {
		return err
	}
	_, err := fmt.Fprintf(p.stderr, "%s dependents are left: run the command again\n", number(retried.Left))
	return err
}
