package backend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// Store is an opened store with what only its owner does: bring its schema up
// to date, and close it.
type Store interface {
	store.Store
	// Migrate brings the schema up to date and returns how many migrations it
	// applied. Called by several concurrently it is done once.
	Migrate(ctx context.Context) (applied int, err error)
	// Schema returns the version the database has (0: none yet), the version
	// this program wants, and the oldest version of the program that the
	// database's schema still serves.
	Schema(ctx context.Context) (have, want, minCompatible int, err error)
	// Examine examines the engine and the schema for what an operator
	// should know. It changes nothing. An error comes with what had been found
	// until then.
	Examine(ctx context.Context) (store.Findings, error)
	// Locks returns the named locks that are kept in the store.
	Locks() lock.Locks
	// Close gives the connections up. The store is not used afterwards.
	Close()
}

// Config reports Open what the connection string does not say.
type Config struct {
	Schema   string       // PostgreSQL: the schema that holds the tables. Default "durable".
	MaxConns int          // PostgreSQL: most connections. Default: by need.
	NoNotify bool         // PostgreSQL: send no NOTIFY; other processes find out by polling.
	Logger   *slog.Logger // Default: nothing is logged.

	// Connect is postgres.Config.Connect: called before each connection to PostgreSQL.
	Connect ConnectHook

	// Operators is postgres.Config.Operators: nothing works or enqueues through the store.
	Operators bool

	// MustExist makes Open fail with ErrNoFile instead of making a file that
	// is not there.
	MustExist bool
}

// ConnectHook is postgres.ConnectHook.
type ConnectHook = postgres.ConnectHook

// ErrNoFile is what Open with MustExist says of a file that is not there.
var ErrNoFile = errors.New("there is no database file")

// Open connects to the store that dsn names. It does not migrate.
func Open(ctx context.Context, dsn string, config Config) (Store, error) {
	target, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	store, err := target.open(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(dsn), err)
	}
	return store, nil
}

func (t target) open(ctx context.Context, config Config) (Store, error) {
	switch t.engine {
	case enginePostgres:
		store, err := postgres.Open(ctx, t.location, postgres.Config{
			Schema: config.Schema, MaxConns: int32(min(config.MaxConns, math.MaxInt32)), //nolint:gosec // bounded here
			NoNotify: config.NoNotify, Logger: config.Logger, Connect: config.Connect, Operators: config.Operators,
		})
		return opened(postgresStore{store}, err)
	case engineSQLite:
		if config.MustExist {
			if err := exists(t.location); err != nil {
				return nil, err
			}
		}
		return opened(sqlite.Open(ctx, t.location, sqlite.Config{Logger: config.Logger}))
	default:
		return memory.New(memory.Config{}), nil
	}
}

// exists says where a file is missing: a relative path may be meant for another
// directory.
func exists(path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if whole, failed := filepath.Abs(path); failed == nil {
		path = whole
	}
	return fmt.Errorf("%w %s", ErrNoFile, path)
}

// postgresStore counts what the engine lists.
type postgresStore struct{ *postgres.Store }

// Migrate brings the schema up to date.
func (s postgresStore) Migrate(ctx context.Context) (int, error) {
	applied, err := s.Store.Migrate(ctx)
	return len(applied), err
}

// opened keeps a nil pointer from becoming a Store that is not nil.
func opened[S Store](store S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}

// MigrationsSQL returns the migrations of the engine that dsn names as plain
// SQL, for those who apply them with a tool of their own.
func MigrationsSQL(dsn, schema string) (string, error) {
	target, err := parse(dsn)
	if err != nil {
		return "", err
	}
	switch target.engine {
	case enginePostgres:
		return postgres.MigrationsSQL(schema), nil
	case engineSQLite:
		return sqlite.MigrationsSQL(), nil
	default:
		return "", fmt.Errorf("%s has no schema", dsn)
	}
}

// Grants returns the statements that give a database role, which has to exist,
// the privileges of a kind of role: owner, worker, producer, reader or scaler (see
// postgres.Grants). Only PostgreSQL has roles.
func Grants(dsn, schema, kind, role string) (string, error) {
	target, err := parse(dsn)
	if err != nil {
		return "", err
	}
	if target.engine != enginePostgres {
		return "", fmt.Errorf("%w: %s has no roles: want a database on PostgreSQL", store.ErrInvalid, Redact(dsn))
	}
	return postgres.Grants(schema, postgres.Role(kind), role)
}

// Embedded reports whether the store that dsn names needs no server: a file, or
// this process's memory.
func Embedded(dsn string) bool {
	target, err := parse(dsn)
	return err == nil && target.engine != enginePostgres
}

// Ephemeral reports whether the store that dsn names ends with this process.
func Ephemeral(dsn string) bool {
	target, err := parse(dsn)
	return err == nil && target.engine == engineMemory
}
