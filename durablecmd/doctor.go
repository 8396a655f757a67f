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
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// doctorVerb examines everything that a worker depends on.
type doctorVerb struct {
	Timeout time.Duration `default:"1m" help:"Time limit of all checks together (1s to 1h)."`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// errUnsound is what doctor ends with when a check failed.
var errUnsound = errors.New("checks failed")

// Run prints what was found and fails when something does not work.
func (v doctorVerb) Run(ctx context.Context, p *program) error {
	if v.Timeout < time.Second || v.Timeout > time.Hour {
		return usage("--timeout %v: want 1s to 1h", v.Timeout)
	}
	ctx, cancel := p.untilSignal(ctx)
	defer cancel()
	bounded, end := context.WithTimeout(ctx, v.Timeout)
	defer end()
	d := operate.Diagnose(p.examine(bounded))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := v.print(p, d); err != nil {
		return err
	}
	if d.Failed > 0 {
		return fmt.Errorf("%w: %d of %d", errUnsound, d.Failed, len(d.Findings))
	}
	return nil
}

func (v doctorVerb) print(p *program, d operate.Diagnosis) error {
	if v.JSON {
		return p.printJSON(d)
	}
	table := p.newTable()
	for _, one := range d.Findings {
		table.row(one.Level.String(), one.Name, one.Text)
		if one.Hint != "" {
			table.row("", "", "→ "+one.Hint)
		}
	}
	if err := table.flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.stdout, "\n%d %s, %d %s, %d failed\n", len(d.Findings), plural(int64(len(d.Findings)), "check", "checks"),
		d.Warnings, plural(int64(d.Warnings), "warning", "warnings"), d.Failed)
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
		for _, o := range wrong.variables {
			f.Fail("configuration", (&configError{[]invalidVariable{o}}).Error(), fmt.Sprintf("see %s config", p.name))
		}
		return f
	}
	f.Fine("configuration", "all variables are valid")
	examineConstraints(config, &f)
	p.examineStore(ctx, config, &f)
	examineRedis(ctx, config, &f)
	return f
}

// examineConstraints looks for valid settings that may be mistakes.
func examineConstraints(config Config, f *store.Findings) {
	programs, _ := builtin.ParsePrograms(config.ExecAllow) // loadConfig has checked it
	for _, program := range programs.List() {
		info, err := os.Stat(program.Path)
		switch {
		case err != nil:
			f.Warn("exec", fmt.Sprintf("%s: %v", program.Name, err), "runs of the job exec that name it fail on this machine: install it, or correct "+varExecAllow)
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			f.Warn("exec", program.Path+" cannot be executed", "correct its mode, or "+varExecAllow)
		case info.Mode().Perm()&0o002 != 0:
			f.Warn("exec", program.Path+" can be changed by every user", "chmod o-w it")
		}
	}
	origins, _ := builtin.ParseOrigins(config.HTTPJobAllow) // likewise
	if strings.Contains(origins.String(), "http://") {
		f.Warn("http", varHTTPAllow+" allows URLs without TLS", "use https://, unless you control the network")
	}
	if config.tracesFault != nil {
		f.Warn("traces", "not exported: "+config.tracesFault.Error(), "correct the variable, or set OTEL_TRACES_EXPORTER=none")
	}
}

// examineStore examines the database.
func (p *program) examineStore(ctx context.Context, config Config, f *store.Findings) {
	shown := backend.Redact(config.DatabaseURL)
	if backend.Ephemeral(config.DatabaseURL) {
		f.Warn("database", shown+" is lost when the process ends", "use postgres://… or sqlite:<path> for work that must not be lost")
		return
	}
	store, err := connector{name: p.name, config: config, logger: slog.New(slog.DiscardHandler), hook: p.seams.connect}.open(ctx, asItIs)
	switch {
	case errors.Is(err, errNotMigrated):
		f.Fail("database", "there is no database yet at "+shown, fmt.Sprintf("run `%s migrate up`, or start the worker", p.name))
		return
	case err != nil:
		hint := "correct " + varDatabaseURL + ", or repair what is there"
		switch {
		case errors.Is(err, fs.ErrPermission):
			hint = "let the user that runs this program read and write there, or correct " + varDatabaseURL
		case backend.Transient(err):
			hint = "correct " + varDatabaseURL + ", start the server, or check the network to it"
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
		f.Fail("schema", err.Error(), fmt.Sprintf("see `%s migrate status`", p.name))
	case have > want:
		f.Fine("schema", fmt.Sprintf("version %d, compatible with this program (version %d)", have, want))
	default:
		f.Fine("schema", fmt.Sprintf("version %d", have))
	}
	o := p.operator(store, nil)
	found, examined := o.Examine(ctx)
	*f = append(*f, found...)
	if examined != nil {
		f.Fail("examination", examined.Error(), "repeat it when the database answers, or with a longer --timeout")
	}
	if err == nil && examined == nil {
		*f = append(*f, o.ExamineServing(ctx)...)
		*f = append(*f, o.ExamineSchedules(ctx)...)
		*f = append(*f, o.ExamineAttention(ctx)...)
		*f = append(*f, o.ExamineLimits(ctx)...)
	}
}

// examineRedis examines the server that holds the locks, where there is one.
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
	locker := lock.NewLocker(locks, lock.LockerConfig{})
	_, probeErr := locker.Probe(ctx)
	locker.Close()
	if err := locks.Close(); err != nil {
		f.Warn("redis", err.Error(), "see the server's log")
		return
	}
	if probeErr != nil {
		f.Fail("redis", "a lock cannot be taken and given back: "+probeErr.Error(), "see what the server may store, and its log")
		return
	}
	f.Fine("redis", backend.RedactRedis(config.RedisURL)+" grants locks, and does not evict them")
}
