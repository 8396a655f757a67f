package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/durable-worker/durable-worker/store"
)

// grammar is the command line.
type grammar struct {
	Version kong.VersionFlag `help:"Print the version and exit."`
	Wide    bool             `help:"Print tables in full, even if they are wider than the terminal."`

	Work        workVerb        `cmd:"" default:"1" help:"Run the worker until SIGTERM or SIGINT (default command)."`
	Demo        demoVerb        `cmd:"" help:"Run sample work on an embedded database in a temporary folder. Exits on its own."`
	Migrate     migrateVerb     `cmd:"" help:"Migrate the database's schema, or show its version."`
	Enqueue     enqueueVerb     `cmd:"" help:"Enqueue a run of a job, and print its id."`
	Runs        runsVerb        `cmd:"" help:"List, show, explain, wait for, send inputs to, cancel, retry, release, acknowledge, delete and rerun runs."`
	Batches     batchesVerb     `cmd:"" help:"List, show, wait for, close, cancel and retry batches."`
	Problems    problemsVerb    `cmd:"" help:"List dead runs in groups; retry, acknowledge or delete a group."`
	Stats       statsVerb       `cmd:"" help:"Show what workers have done over time."`
	Queues      queuesVerb      `cmd:"" help:"List, pause, resume and cap queues."`
	Jobs        jobsVerb        `cmd:"" help:"List jobs, with their runs and who serves them."`
	Workers     workersVerb     `cmd:"" help:"List workers: who is alive, and what they serve."`
	Audit       auditVerb       `cmd:"" help:"Show the audit log."`
	Schedules   schedulesVerb   `cmd:"" help:"List, preview, create, change, pause and delete schedules."`
	Limits      limitsVerb      `cmd:"" help:"List, show, set, drain, resume and delete limits."`
	Locks       locksVerb       `cmd:"" help:"List named locks, or release one by force."`
	Dashboard   dashboardVerb   `cmd:"" help:"Serve the dashboard and the JSON API, without a worker, at DURABLE_DASHBOARD_ADDR or 127.0.0.1:8081."`
	Config      configVerb      `cmd:"" help:"List the environment variables and their values, and check the registrations."`
	Doctor      doctorVerb      `cmd:"" help:"Check the configuration, the database and its contents, and say what to do. Exits 1 if a check failed."`
	Healthcheck healthcheckVerb `cmd:"" help:"Check the worker on this machine: exits 0 if it is healthy. For container images."`
	Completion  completionVerb  `cmd:"" help:"Print a completion script for your shell."`
	Help        helpVerb        `cmd:"" name:"help" help:"Show the help of a command."`
	Build       versionVerb     `cmd:"" name:"version" help:"Print the version, and how the program was built."`
}

// newGrammar is the command line before it is read. Commands that differ in what they do with
// runs, and in nothing else, are one type.
func newGrammar() *grammar {
	g := &grammar{}
	runs, problems := &g.Runs, &g.Problems
	runs.Cancel.Action, runs.Retry.Action = store.CancelRuns, store.RetryRuns
	runs.Release.Action = store.ReleaseRuns
	runs.Acknowledge.Action, runs.Delete.Action = store.AcknowledgeRuns, store.DeleteRuns
	problems.Retry.Action, problems.Acknowledge.Action, problems.Delete.Action = store.RetryRuns, store.AcknowledgeRuns, store.DeleteRuns
	return g
}

// parse reads the arguments. Without an error and without a command nothing is
// left to do: help or the version was printed.
func (p *program) parse() (verb func(ctx context.Context) error, err error) {
	g := newGrammar()
	for _, arg := range p.args { // the parser would store U+FFFD in its place
		if !utf8.ValidString(arg) {
			return nil, usage("argument %.150q: want UTF-8", arg)
		}
	}
	ended, printed := false, &faultKeeper{Writer: p.stdout}
	options := append(slices.Concat(values(), p.seams.options()), kong.Name(p.name), kong.Writers(printed, p.stderr), kong.Exit(func(int) { ended = true }),
		kong.Description("A durable background worker: runs survive crashes, retries and deploys.\n\n"+
			"Configuration comes from environment variables; see the command config.\n\n"+
			"Exit codes: 0 done, 1 error, 2 wrong usage or configuration, 3 the run or batch waited for has not succeeded, 4 it did not end in time."),
		kong.Vars{"version": p.seams.versionOf()}, kong.WithHyphenPrefixedParameters(true), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	parser, err := kong.New(g, options...)
	if err == nil {
		err = duplicate(parser.Model.Node)
	}
	if err != nil {
		return nil, fmt.Errorf("command line: %w", err)
	}
	args := p.args
	switch {
	case len(args) > 0 && args[0] == wordsVerb:
		return func(context.Context) error { return p.complete(parser.Model.Node, args[1:]) }, nil
	case len(args) > 0 && args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	parsed, err := parser.Parse(args)
	if printed.fault != nil { // help or the version could not be printed
		return nil, printed.fault
	}
	if ended {
		return nil, nil
	}
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok {
		parsed = wrong.Context
	}
	p.path = p.name
	if parsed != nil && parsed.Selected() != nil {
		p.path = parsed.Selected().FullPath()
	}
	if err != nil {
		return nil, &usageError{err}
	}
	p.wide = g.Wide
	return func(ctx context.Context) error {
		if p.seams.own(parsed.Selected().Name) {
			return p.runOwn(ctx, parsed)
		}
		parsed.BindTo(ctx, (*context.Context)(nil))
		return parsed.Run(p)
	}, nil
}

// faultKeeper is a writer that keeps its first error. The parser drops it, or reports it as
// wrong usage.
type faultKeeper struct {
	io.Writer

	fault error
}

func (k *faultKeeper) Write(b []byte) (int, error) {
	n, err := k.Writer.Write(b)
	if k.fault == nil {
		k.fault = err
	}
	return n, err
}
