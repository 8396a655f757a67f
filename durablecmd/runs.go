package durablecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/durable-worker/durable-worker/operate"
)

// runsVerb is the verb runs.
type runsVerb struct {
	List        runsListVerb        `cmd:"" help:"List runs, newest first."`
	Show        runsShowVerb        `cmd:"" help:"Show a run with its attempts."`
	Explain     runsExplainVerb     `cmd:"" help:"Say why a run waits and when it may start, how it executes, why it ended, or why it is not there."`
	Logs        runsLogsVerb        `cmd:"" help:"Print the lines that a run's handler has logged."`
	Wait        runsWaitVerb        `cmd:"" help:"Wait until a run has ended. Exits 0 if it succeeded, 3 if it is dead or cancelled, 4 after --timeout."`
	Count       runsCountVerb       `cmd:"" help:"Count runs by state. Large counts may be lower bounds (10000+) or estimates (about)."`
	Cancel      runsCancelVerb      `cmd:"" help:"Cancel runs. A running one is asked to stop, and ends cancelled unless it succeeds."`
	Retry       runsRetryVerb       `cmd:"" help:"Make dead or cancelled runs pending again, with a full set of attempts."`
	Acknowledge runsAcknowledgeVerb `cmd:"" help:"Take dead runs off the list of problems. They stay dead."`
	Delete      runsDeleteVerb      `cmd:"" help:"Delete runs that are not running."`
	Rerun       runsRerunVerb       `cmd:"" help:"Create a new run like an earlier one, and print its id."`
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
	runsLogsVerb struct {
		ID   string `arg:"" help:"Id of the run, or its first 8 or more characters."`
		Tail int    `placeholder:"N" help:"Print the last lines only, so many."`
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
	if filter.Limit = v.Limit; v.Limit < 1 || v.Limit > 200 {
		return usage("--limit %d: want 1 to 200", v.Limit)
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
	if err := checkIDs(v.ID); err != nil {
		return err
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		id, err := o.FindID(ctx, v.ID)
		if err != nil {
			return err
		}
		record, err := o.Run(ctx, id)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(record)
		}
		texts := latestTexts
		if v.Full {
			texts = allTexts
		}
		return p.printRun(record, p.now(), texts)
	})
}

// Run prints what was logged, execution by execution.
func (v runsLogsVerb) Run(ctx context.Context, p *program) error {
	if err := checkIDs(v.ID); err != nil {
		return err
	}
	if v.Tail < 0 {
		return usage("--tail %d: want 0 for all, or more", v.Tail)
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		id, err := o.FindID(ctx, v.ID)
		if err != nil {
			return err
		}
		record, err := o.Run(ctx, id)
		if err != nil {
			return err
		}
		var lines []string
		for _, a := range record.Attempts {
			if a.Log != nil && *a.Log != "" {
				lines = append(lines, strings.Split(printableLines(strings.TrimSuffix(*a.Log, "\n")), "\n")...)
			}
		}
		if v.Tail > 0 && len(lines) > v.Tail {
			lines = lines[len(lines)-v.Tail:]
		}
		for _, line := range lines {
			if _, err := fmt.Fprintln(p.stdout, line); err != nil {
				return err
			}
		}
		return nil
	})
}
