package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// grammar is the command line.
type grammar struct {
	Version kong.VersionFlag `help:"Print the version and exit."`

	Work        workVerb        `cmd:"" default:"1" help:"Run the worker until SIGTERM or SIGINT. This is what no verb means."`
	Demo        demoVerb        `cmd:"" help:"Show sample work on an embedded database in a temporary folder. Ends by itself."`
	Migrate     migrateVerb     `cmd:"" help:"Bring the database's schema up to date, or look at it."`
	Enqueue     enqueueVerb     `cmd:"" help:"Enqueue a run of a job and print its id."`
	Runs        runsVerb        `cmd:"" help:"Look at runs, and change them."`
	Queues      queuesVerb      `cmd:"" help:"Look at queues, pause and resume them."`
	Audit       auditVerb       `cmd:"" help:"Look at what was changed, and by whom."`
	Schedules   schedulesVerb   `cmd:"" help:"Look at schedules, and change them."`
	Locks       locksVerb       `cmd:"" help:"Look at named locks, or free one by force."`
	Config      configVerb      `cmd:"" help:"List the environment variables with the values in force, and check the registrations."`
	Doctor      doctorVerb      `cmd:"" help:"Examine the configuration, the database and what stands in it, and say what to do. Exit 1 if a check failed."`
	Healthcheck healthcheckVerb `cmd:"" help:"Ask the worker on this machine how it is: exit 0 if it is well. For container images."`
}

// parse reads the arguments. Without an error and without a verb nothing is
// left to do: help or the version was printed.
func (p *program) parse() (verb func(ctx context.Context) error, err error) {
	var g grammar
	for _, arg := range p.args { // the parser would store U+FFFD in its place
		if !utf8.ValidString(arg) {
			return nil, usage("argument %.150q: want UTF-8", arg)
		}
	}
	ended := false
	parser, err := kong.New(&g, kong.Name(p.name), kong.Writers(p.stdout, p.stderr), kong.Exit(func(int) { ended = true }),
		kong.Description("A durable background worker: runs survive crashes, retries and deploys.\n\n"+
			"Configuration comes from environment variables; see the verb config."),
		kong.Vars{"version": version()}, kong.WithHyphenPrefixedParameters(true), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		return nil, fmt.Errorf("command line: %w", err)
	}
	parsed, err := parser.Parse(p.args)
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
	return func(ctx context.Context) error {
		parsed.BindTo(ctx, (*context.Context)(nil))
		return parsed.Run(p)
	}, nil
}

// version is the module's version as it was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}
