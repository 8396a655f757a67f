package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/alecthomas/kong"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store/backend"
)

// ConnectHook is called before each connection to PostgreSQL, with a copy of its
// configuration to change; see postgres.Config.Connect.
type ConnectHook = backend.ConnectHook

// connectTimeout bounds one try to reach the database.
const connectTimeout = 10 * time.Second

// schemaUse is what a command needs of the database's schema.
type schemaUse int

const (
	asItIs   schemaUse = iota // look at whatever is there
	served                    // it must serve this program
	migrated                  // likewise; it is brought up to date if DURABLE_MIGRATE says so: a worker's
	created                   // the command, migrate up, brings it up to date itself
)

// connector reaches the database of a configuration.
type connector struct {
	name   string // of the program, for advice
	config Config
	logger *slog.Logger
	hook   ConnectHook

	operators bool // the connection is for operators only
}

// open reaches the database and makes sure that its schema is of use.
func (c connector) open(ctx context.Context, use schemaUse) (backend.Store, error) {
	bounded, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	store, err := backend.Open(bounded, c.config.DatabaseURL, backend.Config{
		Schema: c.config.Schema, MaxConns: c.config.DatabaseMaxConns, NoNotify: !c.config.Notify, Logger: c.logger, MustExist: use == asItIs || use == served,
		Connect: c.hook, Operators: c.operators,
	})
	if errors.Is(err, backend.ErrNoFile) {
		return nil, &noFileError{err, c.name}
	}
	if err != nil {
		return nil, err
	}
	if use == served || use == migrated {
		err = c.ready(ctx, store, use)
	}
	if err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

// ready makes sure that the store's schema serves this program.
func (c connector) ready(ctx context.Context, store backend.Store, use schemaUse) error {
	have, want, minCompatible, err := store.Schema(ctx)
	if err != nil {
		return err
	}
	if have < want && use == migrated && c.config.Migrate {
		applied, err := store.Migrate(ctx)
		if err != nil {
			return err
		}
		c.logger.Info("database migrated", "event", "store.migrated", "applied", applied, "from", have, "to", want)
		return nil
	}
	return serves(c.name, have, want, minCompatible)
}

// serves says why a program that wants one version of the schema cannot work
// with another.
func serves(name string, have, want, minCompatible int) error {
	switch {
	case have == 0 && want > 0: // memory has no versions
		return fmt.Errorf("%w: the database has no schema of durable yet; run `%s migrate up`, or start the worker with DURABLE_MIGRATE=true", errNotMigrated, name)
	case have < want:
		return fmt.Errorf("%w: its schema has version %d, this program needs %d; run `%s migrate up`", errNotMigrated, have, want, name)
	case minCompatible > want:
		return fmt.Errorf("%w: schema version %d requires program version %d or later (this is %d): upgrade the program",
			errNotMigrated, have, minCompatible, want)
	default:
		return nil
	}
}

// openPatiently is open for a worker, whose database may come up after it:
// while the database cannot be reached it tries again, until ctx ends.
func (c connector) openPatiently(ctx context.Context) (backend.Store, error) {
	logged := ""
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		store, err := c.open(ctx, migrated)
		if err == nil || ctx.Err() != nil || !backend.Transient(err) || backend.Embedded(c.config.DatabaseURL) {
			return store, err
		}
		wait := time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // spreads load
		c.logger.Warn("the database cannot be reached, will be retried", "event", "store.unreachable", "error", unlessNotified(&logged, err), "in", wait.Round(time.Millisecond).String())
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// unlessNotified is an error's text, cut when it is the one that was logged last.
func unlessNotified(logged *string, err error) string {
	text := err.Error()
	if text == *logged && len(text) > 80 {
		return clipped(text, 80) + " (as before)"
	}
	*logged = text
	return text
}

// withStore does a command's work with the store of the configuration. Only what a
// person should act on is logged, unless the environment asks for more.
func (p *program) withStore(ctx context.Context, use schemaUse, work func(context.Context, backend.Store, Config) error) error {
	config, logger, err := p.config("warn")
	if err != nil {
		return err
	}
	if backend.Ephemeral(config.DatabaseURL) {
		return &configError{[]invalidVariable{{varDatabaseURL, "memory:", "is lost when its process ends, so only a worker can use it; want postgres://… or sqlite:<path>"}}}
	}
	ctx, cancel := p.untilSignal(ctx)
	defer cancel()
	endFeed, err := p.feedChanges(ctx, config, logger)
	if err != nil {
		return err
	}
	defer endFeed()
	store, err := connector{name: p.name, config: config, logger: logger, hook: p.seams.connect}.open(ctx, use)
	if err == nil {
		defer store.Close()
		err = work(ctx, store, config)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return cause
	}
	return err
}

// operator returns what a command works with: the store, and locks, which may be
// nil.
func (p *program) operator(db backend.Store, locks lock.Locks) *operate.Operator {
	config := p.operating(db, locks)
	config.Repeating = p.repeating
	return operate.New(db, config)
}

// operating is the configuration of all operators of this program.
func (p *program) operating(db backend.Store, locks lock.Locks) operate.Config {
	return operate.Config{Locks: locks, Jobs: p.jobs, Examine: db.Examine, Disconnected: backend.Disconnected,
		Transient: backend.Transient, Redact: p.redact, Changed: p.changed, Now: p.now}
}

// repeating reports on stderr, for the person at the terminal, that a command repeats a call.
func (p *program) repeating(err error, pause time.Duration) {
	fmt.Fprintf(p.errors(), "%s: the connection to the database was lost, trying again in %v: %s\n", p.name, pause, printable(err.Error()))
}

// asOperator does a command's work on behalf of the user who runs the program.
func (p *program) asOperator(ctx context.Context, work func(context.Context, *operate.Actor) error) error {
	return p.withStore(ctx, served, func(ctx context.Context, db backend.Store, _ Config) error {
		return work(ctx, p.operator(db, nil).As(actor()))
	})
}

// withLocks does a command's work with the locks of the configuration.
func (p *program) withLocks(ctx context.Context, work func(context.Context, *operate.Operator) error) error {
	return p.withStore(ctx, served, func(ctx context.Context, db backend.Store, config Config) error {
		locks, closeLocks, err := openLocks(ctx, db, config)
		if err != nil {
			return err
		}
		defer closeLocks(slog.New(slog.DiscardHandler))
		return work(ctx, p.operator(db, locks))
	})
}

// openLocks returns the locks of the configuration, and what closes them.
func openLocks(ctx context.Context, store backend.Store, config Config) (lock.Locks, func(*slog.Logger), error) {
	if config.RedisURL == "" {
		return store.Locks(), func(*slog.Logger) {}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	locks, err := backend.OpenRedisLocks(bounded, config.RedisURL, config.Schema)
	if err != nil {
		return nil, nil, err
	}
	return locks, func(logger *slog.Logger) {
		if err := locks.Close(); err != nil {
			logger.Warn("closing the connections to redis", "event", "lock.close_failed", "error", err)
		}
	}, nil
}

// runOwn does the work of a command of the program's own.
func (p *program) runOwn(ctx context.Context, parsed *kong.Context) error {
	return p.withStore(ctx, served, func(ctx context.Context, db backend.Store, config Config) error {
		logger := newLogger(p.stderr, config.LogLevel, config.LogFormat)
		p.makeDefault(logger)
		locks, closeLocks, err := openLocks(ctx, db, config)
		if err != nil {
			return err
		}
		defer closeLocks(logger)
		app := &App{Client: durable.NewClient(db).WithHooks(p.seams.hooks), Store: db, Locks: locks, Logger: logger, config: config, mux: http.NewServeMux()}
		parsed.BindTo(ctx, (*context.Context)(nil))
		return errors.Join(parsed.Run(app), app.stop(ctx))
	})
}
