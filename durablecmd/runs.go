package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// runsVerb is the command runs.
type runsVerb struct {
	List        runsListVerb    `cmd:"" help:"List runs, newest first."`
	Show        runsShowVerb    `cmd:"" help:"Show a run with its attempts."`
	Reveal      runsRevealVerb  `cmd:"" help:"Show a run with the values of args, result, checkpoint, steps and inputs that redaction rules hide. Recorded in the audit log."`
	Explain     runsExplainVerb `cmd:"" help:"Explain why a run waits and when it may start, how it is executing, why it ended, or why it does not exist."`
	Steps       runsStepsVerb   `cmd:"" help:"Show the recorded steps of a run, its waits and its inputs, or forget steps."`
	Send        runsSendVerb    `cmd:"" help:"Send an input to a run, which may wait for it."`
	Logs        runsLogsVerb    `cmd:"" help:"Print the lines that a run's handler has logged."`
	Wait        runsWaitVerb    `cmd:"" help:"Wait until a run has ended. Exits 0 if it succeeded, 3 if it is dead or cancelled, 4 after --timeout."`
	Count       runsCountVerb   `cmd:"" help:"Count runs by state. Large counts may be lower bounds (10000+) or estimates (about)."`
	Cancel      runsChangeVerb  `cmd:"" help:"Cancel runs. A running one is asked to stop; it ends cancelled unless its handler returns success or a permanent failure."`
	Retry       runsRetryVerb   `cmd:"" help:"Make dead or cancelled runs pending again, with a full set of attempts."`
	Release     runsChangeVerb  `cmd:"" help:"Make runs due that depend on others, without waiting for their conditions any longer."`
	Acknowledge runsChangeVerb  `cmd:"" help:"Take dead runs off the list of problems. They stay dead."`
	Delete      runsChangeVerb  `cmd:"" help:"Delete runs that are not running."`
	Rerun       runsRerunVerb   `cmd:"" help:"Enqueue a copy of an earlier run, and print its id."`
}

type (
	runsListVerb struct {
		filterFlags
		watchFlag

		Limit  int  `default:"50" help:"Maximum number of results (1 to 200)."`
		Cursor word `placeholder:"CURSOR" help:"Continue after this cursor (\"next\" of the previous page)."`
		JSON   bool `name:"json" help:"Print JSON."`
	}
	runsShowVerb struct {
		ID   string `arg:"" help:"Id of the run, or its first 8 or more characters."`
		Full bool   `help:"Print the stacks and logs of all executions. Default: of the last one."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	runsRevealVerb struct {
		ID     string `arg:"" help:"Id of the run, or its first 8 or more characters."`
		Reason string `help:"Reason, recorded in the audit log."`
		JSON   bool   `name:"json" help:"Print JSON."`
	}
	runsLogsVerb struct {
		ID   string `arg:"" help:"Id of the run, or its first 8 or more characters."`
		Tail int    `placeholder:"N" help:"Print only this many of the last lines."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
)

// Run prints a list of runs.
func (v runsListVerb) Run(ctx context.Context, p *program) error {
	filter, err := v.filter(p.now())
	if err != nil {
		return err
	}
	if filter.Before, err = cursor(v.Cursor); err != nil {
		return err
	}
	filter.Limit = v.Limit
	if err := checkLimit(v.Limit); err != nil {
		return err
	}
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Runs(ctx, filter)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		return p.printRuns(list, p.now())
	})
}

// Run prints one run.
func (v runsShowVerb) Run(ctx context.Context, p *program) error {
	return p.withRun(ctx, v.ID, func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		run, err := o.RunWithLinks(ctx, id)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(run)
		}
		steps, err := o.StepsOf(ctx, &run.Record)
		if err != nil {
			return err
		}
		texts := latestTexts
		if v.Full {
			texts = allTexts
		}
		return p.printRun(run.Record, p.now(), texts, append(stepRows(&steps), linkRows(&run.RunLinks)...)...)
	})
}

// revealed is a run with its steps and inputs, and with nothing hidden.
type revealed struct {
	durable.Record

	Steps  []operate.Step  `json:"steps"`
	Inputs []operate.Input `json:"inputs"`
}

// Run prints one run with nothing hidden.
func (v runsRevealVerb) Run(ctx context.Context, p *program) error {
	return p.withRun(ctx, v.ID, func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		record, steps, err := o.RevealSteps(ctx, id, v.Reason)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(revealed{record, steps.Steps, steps.Inputs})
		}
		if err := p.printRun(record, p.now(), latestTexts); err != nil || len(steps.Steps)+len(steps.Inputs) == 0 {
			return err
		}
		if _, err := fmt.Fprintln(p.stdout); err != nil {
			return err
		}
		return runsStepsVerb{Values: true}.print(p, &steps)
	})
}

// Run prints what was logged, execution by execution.
func (v runsLogsVerb) Run(ctx context.Context, p *program) error {
	if v.Tail < 0 {
		return usage("--tail %d: want 0 for all, or more", v.Tail)
	}
	return p.withRun(ctx, v.ID, func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		record, err := o.Run(ctx, id)
		if err != nil {
			return err
		}
		lines := []string{}
		for _, a := range record.Attempts {
			if a.Log != nil && *a.Log != "" {
				lines = append(lines, strings.Split(strings.TrimSuffix(*a.Log, "\n"), "\n")...)
			}
		}
		if v.Tail > 0 && len(lines) > v.Tail {
			lines = lines[len(lines)-v.Tail:]
		}
		if v.JSON {
			return p.printJSON(loggedLines{id, lines})
		}
		for _, line := range lines {
			if _, err := fmt.Fprintln(p.stdout, printableLines(line)); err != nil {
				return err
			}
		}
		return nil
	})
}

// loggedLines are what a run's handler has logged.
type loggedLines struct {
	Run   durable.RunID `json:"run"`
	Lines []string      `json:"lines"`
}

// filterFlags narrow what a command is about to the runs that match all of them.
type filterFlags struct {
	State      words    `placeholder:"STATE,…" help:"Only runs in these states: pending, running, succeeded, dead or cancelled. Repeatable."`
	Job        words    `placeholder:"JOB,…" help:"Only runs of these jobs. Repeatable."`
	Queue      words    `placeholder:"QUEUE,…" help:"Only runs of these queues. Repeatable."`
	Tag        word     `placeholder:"TAG" help:"Only runs with this tag."`
	Key        word     `placeholder:"KEY" help:"Only runs enqueued with this unique key."`
	Schedule   word     `placeholder:"NAME" help:"Only runs of this schedule."`
	Parent     word     `placeholder:"RUN" help:"Only children of this run."`
	WaitingOn  word     `placeholder:"RUN" help:"Only runs that wait for this one, on which they depend."`
	Batch      word     `placeholder:"BATCH" help:"Only members of this batch."`
	Worker     word     `placeholder:"NAME" help:"Only runs that this worker is executing, or executed last."`
	Error      word     `placeholder:"TEXT" help:"Only runs whose error contains this text."`
	Args       word     `placeholder:"TEXT" help:"Only runs whose args, as they are stored, contain this text."`
	Meta       metaFlag `sep:"none" placeholder:"NAME=VALUE" help:"Only runs with this metadata. Repeatable."`
	Since      *instant `placeholder:"TIME" help:"Only runs created at or after this time: 2030-01-31T08:00:00Z, or 1h for an hour ago."`
	Until      *instant `placeholder:"TIME" help:"Only runs created before this time."`
	EndedSince *instant `placeholder:"TIME" help:"Only runs that ended at or after this time."`
}

// given reports whether any of the flags is.
func (f *filterFlags) given() bool {
	return len(f.State)+len(f.Job)+len(f.Queue) > 0 || f.Tag+f.Key+f.Schedule+f.Parent+f.WaitingOn+f.Batch+f.Worker+f.Error+f.Args != "" || f.Meta != nil ||
		f.Since != nil || f.Until != nil || f.EndedSince != nil
}

// filter is what the flags ask for. Durations count back from now.
func (f *filterFlags) filter(now time.Time) (durable.Filter, error) {
	filter := durable.Filter{Jobs: f.Job, Queues: f.Queue, Tag: string(f.Tag), Since: f.Since.on(now), Until: f.Until.on(now),
		Key: string(f.Key), Schedule: string(f.Schedule), Worker: string(f.Worker), Error: string(f.Error), Args: string(f.Args), Metadata: store.Metadata(f.Meta),
		EndedSince: f.EndedSince.on(now)}
	for _, word := range f.State {
		state, err := store.ParseState(word)
		if err != nil {
			return filter, usage("--state: %w", err)
		}
		filter.States = append(filter.States, state)
	}
	for _, link := range []struct {
		flag, what string
		text       word
		id         *durable.RunID
	}{{"--parent", "run", f.Parent, &filter.Parent}, {"--waiting-on", "run", f.WaitingOn, &filter.WaitingOn}, {"--batch", "batch", f.Batch, &filter.Batch}} {
		if link.text == "" {
			continue
		}
		id, err := durable.ParseRunID(string(link.text))
		if err != nil {
			return filter, usage("%s: %q is not a %s id (a UUID such as 0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e)", link.flag, string(link.text), link.what)
		}
		if id == (durable.RunID{}) { // which would mean any
			return filter, usage("%s: no %s has the id %s", link.flag, link.what, id)
		}
		*link.id = id
	}
	return filter, nil
}

// cursor reads the cursor of an earlier page.
func cursor(text word) (durable.RunID, error) {
	if text == "" {
		return durable.RunID{}, nil
	}
	before, err := durable.ParseRunID(string(text))
	if err != nil {
		return before, usage("--cursor: %w", err)
	}
	return before, nil
}

// runsWaitVerb is the command runs wait.
type runsWaitVerb struct {
	ID      string        `arg:"" help:"Id of the run, or its first 8 or more characters."`
	Timeout time.Duration `help:"Give up after this time, such as 5m; 0: never." default:"0"`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// Run waits for the end of one run and prints it. The exit code is 0 when it has
// succeeded, 3 when it is dead or cancelled, and 4 after the timeout.
func (v runsWaitVerb) Run(ctx context.Context, p *program) error {
	if v.Timeout < 0 {
		return usage("--timeout %v: want 0 or more", v.Timeout)
	}
	return p.withRun(ctx, v.ID, func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		record, err := waitFor(ctx, o.Operator, id, v.Timeout)
		if err != nil {
			return err
		}
		if v.JSON {
			err = p.printJSON(record)
		} else {
			err = p.printRun(record, p.now(), latestTexts)
		}
		return errors.Join(err, record.Ended())
	})
}

// waitFor waits until a run has ended, for at most a time; zero: without limit.
func waitFor(ctx context.Context, o *operate.Operator, id durable.RunID, timeout time.Duration) (durable.Record, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("run %s has not ended within %v: %w", id, timeout, errTimedOut))
		defer cancel()
	}
	return o.Wait(ctx, id)
}

// linksShown bounds the runs of one kind that runs show names.
const linksShown = 20

// linkRows are what runs show says of the runs that one has to do with.
func linkRows(links *operate.RunLinks) (rows [][2]string) {
	if parent := links.Parent; parent != nil {
		rows = append(rows, [2]string{"child of", fmt.Sprintf("%s, in its step %s", otherText(parent.Run, parent.Job, parent.State), parent.Step)})
	}
	if b := links.Batch; b != nil {
		rows = append(rows, [2]string{"batch", fmt.Sprintf("%s, %s (%s): %d of %d ended", b.Name, b.ID, batchState(b), b.EndedMembers(), b.Counts.Members)})
	}
	sources, children := links.MoreSources, operate.Figure{}
	if len(links.Children) > 0 {
		sources, children = children, sources
	}
	rows = append(rows, linkList("depends on", links.DependsOn, sources)...)
	rows = append(rows, linkList("child", links.Children, children)...)
	return append(rows, linkList("dependent", links.Dependents, links.MoreDependents)...)
}

// linkList are the rows of one kind, and how many more there are.
func linkList(name string, links []operate.Link, more operate.Figure) (rows [][2]string) {
	for i := range links[:min(len(links), linksShown)] {
		rows = append(rows, [2]string{name, linkText(&links[i])})
	}
	left := max(0, len(links)-linksShown) + int(more.N)
	switch {
	case left == 0:
		return rows
	case more.Is == operate.AtLeast:
		return append(rows, [2]string{"", fmt.Sprintf("and at least %d more", left)})
	default:
		return append(rows, [2]string{"", fmt.Sprintf("and %d more", left)})
	}
}

func linkText(link *operate.Link) string {
	text := otherText(link.Run, link.Job, link.State)
	if link.Step != nil {
		return text + ", in the step " + *link.Step
	}
	condition := string(*link.On)
	if link.AnyOf != 0 {
		condition += " of any"
	}
	if link.Met {
		return fmt.Sprintf("%s, on %s: met", text, condition)
	}
	return fmt.Sprintf("%s, on %s: not met", text, condition)
}

func otherText(id store.RunID, job *string, state *store.State) string {
	if state == nil {
		return id.String() + " (deleted)"
	}
	return fmt.Sprintf("%s (%s, %s)", id, *job, *state)
}
