package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durablecmd/builtin"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// doctorVerb examines everything that a worker depends on.
type doctorVerb struct {
	Timeout time.Duration `default:"1m" help:"How long it may take altogether, 1s to 1h."`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// diagnosis is what doctor --json prints.
type diagnosis struct {
	Findings store.Findings `json:"findings"`
	Warnings int            `json:"warnings"`
	Failed   int            `json:"failed"`
}

// errUnsound is what doctor ends with when a check failed.
var errUnsound = errors.New("something does not work")

// Run prints what was found and fails when something does not work.
func (v doctorVerb) Run(ctx context.Context, p *program) error {
	if v.Timeout < time.Second || v.Timeout > time.Hour {
		return usage("--timeout %v: want 1s to 1h", v.Timeout)
	}
	ctx, cancel := p.untilSignal(ctx)
	defer cancel()
	bounded, end := context.WithTimeout(ctx, v.Timeout)
	defer end()
	d := diagnosis{Findings: p.examine(bounded)}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, one := range d.Findings {
		switch one.Level {
		case store.Failed:
			d.Failed++
		case store.Warning:
			d.Warnings++
		}
	}
	if err := d.print(p, v.JSON); err != nil {
		return err
	}
	if d.Failed > 0 {
		return fmt.Errorf("%w: %d of %d checks failed", errUnsound, d.Failed, len(d.Findings))
	}
	return nil
}

func (d diagnosis) print(p *program, asJSON bool) error {
	if asJSON {
		d.Findings = notNil(d.Findings)
		return p.printJSON(d)
	}
	table := newTable(p.stdout)
	for _, one := range d.Findings {
		table.row(one.Level.String(), one.Name, one.Text)
		if one.Hint != "" {
			table.row("", "", "→ "+one.Hint)
		}
	}
	if err := table.flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.stdout, "\n%d checks, %d warnings, %d failed\n", len(d.Findings), d.Warnings, d.Failed)
	return err
}

// examine examines one thing after another, as far as each is of use without
// the one before.
func (p *program) examine(ctx context.Context) (f store.Findings) {
	_, terminal := p.terminal(p.stderr)
	config, warnings, err := loadConfig(p.environ, terminal)
	for _, warning := range warnings {
		f.Warn("configuration", warning, "correct the name, or unset it")
	}
	if wrong, ok := errors.AsType[*configError](err); ok {
		for _, o := range wrong.offenders {
			f.Fail("configuration", (&configError{[]offender{o}}).Error(), fmt.Sprintf("see %s config", p.name))
		}
		return f
	}
	f.Fine("configuration", "every variable can be read and keeps its law")
	examineLaws(config, &f)
	p.examineStore(ctx, config, &f)
	examineRedis(ctx, config, &f)
	return f
}

// examineLaws looks at what is allowed and yet may not be meant.
func examineLaws(config Config, f *store.Findings) {
	programs, _ := builtin.ParsePrograms(config.ExecAllow) // loadConfig has checked it
	for _, program := range programs.List() {
		info, err := os.Stat(program.Path)
		switch {
		case err != nil:
			f.Warn("exec", fmt.Sprintf("%s: %v", program.Name, err), "runs of the job exec that name it fail on this machine: install it, or correct "+varExecAllow)
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			f.Warn("exec", program.Path+" cannot be executed", "correct its mode, or "+varExecAllow)
		case info.Mode().Perm()&0o002 != 0:
			f.Warn("exec", program.Path+" can be changed by everybody", "chmod o-w it")
		}
	}
	origins, _ := builtin.ParseOrigins(config.HTTPJobAllow) // likewise
	if strings.Contains(origins.String(), "http://") {
		f.Warn("http", varHTTPAllow+" allows URLs without TLS", "https://, unless the network between is yours")
	}
}

// examineStore looks at the database.
func (p *program) examineStore(ctx context.Context, config Config, f *store.Findings) {
	shown := backend.Redact(config.DatabaseURL)
	if backend.Ephemeral(config.DatabaseURL) {
		f.Warn("database", shown+" ends with its process", "postgres://… or sqlite:<path> for work that must not be lost")
		return
	}
	store, err := connector{p.name, config, slog.New(slog.DiscardHandler)}.open(ctx, asItIs)
	switch {
	case errors.Is(err, errNotMigrated):
		f.Fail("database", "there is none yet at "+shown, fmt.Sprintf("run `%s migrate up`, or start the worker", p.name))
		return
	case err != nil:
		hint := "correct " + varDatabaseURL + ", or put right what stands there"
		switch {
		case errors.Is(err, fs.ErrPermission):
			hint = "let the user that runs this program read and write there, or correct " + varDatabaseURL
		case backend.Transient(err):
			hint = "correct " + varDatabaseURL + ", start the server, or see what stands between it and this machine"
		}
		f.Fail("database", err.Error(), hint)
		return
	}
	defer store.Close()
	f.Fine("database", shown)
	have, want, minCompatible, err := store.Schema(ctx)
	if err == nil {
		err = serves(p.name, have, want, minCompatible)
	}
	switch {
	case err != nil:
		f.Fail("schema", err.Error(), fmt.Sprintf("`%s migrate status` says more", p.name))
	case have > want:
		f.Fine("schema", fmt.Sprintf("version %d, which serves this program of version %d", have, want))
	default:
		f.Fine("schema", fmt.Sprintf("version %d", have))
	}
	found, examined := store.Examine(ctx)
	*f = append(*f, found...)
	if examined != nil {
		f.Fail("examination", examined.Error(), "repeat it when the database answers, or with a longer --timeout")
	}
	if err == nil && examined == nil {
		examineSchedules(ctx, store, f)
	}
}

// examineSchedules looks for schedules that do not do what they say.
func examineSchedules(ctx context.Context, store store.ScheduleAdmin, f *store.Findings) {
	schedules, err := store.ListSchedules(ctx)
	if err != nil {
		f.Fail("schedules", err.Error(), "repeat it when the database answers")
		return
	}
	before := len(*f)
	for i := range schedules {
		s := &schedules[i]
		switch {
		case s.Fault != nil:
			f.Warn("schedules", fmt.Sprintf("%s could not be evaluated: %s", s.Name, *s.Fault), "correct it where it is declared, or edit it")
		case s.Orphaned && s.Paused:
			f.Warn("schedules", fmt.Sprintf("%s is paused, and no worker declares it any more", s.Name), "delete it, or deploy the code that declares it")
		case s.Orphaned:
			f.Warn("schedules", fmt.Sprintf("%s goes on although no worker declares it any more", s.Name), "delete it, or deploy the code that declares it")
		}
	}
	if len(*f) == before {
		f.Fine("schedules", fmt.Sprintf("%d, each can be evaluated and is declared", len(schedules)))
	}
}

// examineRedis looks at the server that holds the locks, where there is one.
func examineRedis(ctx context.Context, config Config, f *store.Findings) {
	if config.RedisURL == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	locks, err := backend.OpenRedisLocks(ctx, config.RedisURL, config.Schema)
	if err != nil {
		f.Fail("redis", err.Error(), "correct "+varRedisURL+" or the server: workers do not start without it")
		return
	}
	if err := locks.Close(); err != nil {
		f.Warn("redis", err.Error(), "see the server's log")
		return
	}
	f.Fine("redis", backend.RedactRedis(config.RedisURL)+" answers, and does not evict locks")
}
