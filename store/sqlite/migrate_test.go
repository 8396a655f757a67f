package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	sqlitedb "github.com/durable-worker/durable-worker/db/sqlite"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestMigrations(t *testing.T) {
	t.Run("their result is the schema", func(t *testing.T) {
		_, path := openMigrated(t)
		whole, err := sqlitedb.Files.ReadFile("schema.sql")
		require.NoError(t, err)
		require.Equal(t, objects(t, execute(t, newPath(t), string(whole))), objects(t, path))
	})
	t.Run("as one text they do the same", func(t *testing.T) {
		_, path := openMigrated(t)
		require.Equal(t, objects(t, path), objects(t, execute(t, newPath(t), sqlite.MigrationsSQL())))
	})
	t.Run("twice is once", func(t *testing.T) {
		s := open(t, newPath(t), sqlite.Config{})
		have, _, _, err := s.Schema(t.Context())
		require.NoError(t, err)
		require.Zero(t, have)
		applied, err := s.Migrate(t.Context())
		require.NoError(t, err)
		require.Positive(t, applied)
		applied, err = s.Migrate(t.Context())
		require.NoError(t, err)
		require.Zero(t, applied)
		have, want, minCompatible, err := s.Schema(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, have)
		require.LessOrEqual(t, minCompatible, want)
	})
	t.Run("twenty concurrently", func(t *testing.T) {
		path := newPath(t)
		var wg sync.WaitGroup
		var applied [20]int
		var faults [20]error
		for i := range applied {
			wg.Go(func() { applied[i], faults[i] = migrateAndEnqueue(t.Context(), path) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(faults[:]...))
		sum := 0
		for _, n := range applied {
			sum += n
		}
		files, err := fs.Glob(sqlitedb.Files, "migrations/*.sql")
		require.NoError(t, err)
		require.Equal(t, len(files), sum)
	})
	t.Run("a newer schema is served while it allows it", func(t *testing.T) {
		s, path := openMigrated(t)
		s.Close()
		execute(t, path, "UPDATE meta SET version = 99, min_compatible = 1")
		s = open(t, path, sqlite.Config{})
		applied, err := s.Migrate(t.Context())
		require.NoError(t, err)
		require.Zero(t, applied)
		_, err = s.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
		s.Close()

		execute(t, path, "UPDATE meta SET min_compatible = 99")
		s = open(t, path, sqlite.Config{})
		_, err = s.Migrate(t.Context())
		require.ErrorContains(t, err, "upgrade the program")
		_, err = s.Enqueue(t.Context(), newRuns(1)...)
		require.ErrorContains(t, err, "upgrade the program")
	})
}

func migrateAndEnqueue(ctx context.Context, path string) (applied int, err error) {
	s, err := sqlite.Open(ctx, path, sqlite.Config{LockTimeout: time.Minute})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if applied, err = s.Migrate(ctx); err == nil {
		_, err = s.Enqueue(ctx, newRuns(1)...)
	}
	return applied, err
}

// execute runs SQL on a file by itself.
func execute(t *testing.T, path, text string) string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	_, err = db.Exec(text)
	require.NoError(t, err)
	return path
}

var (
	comment = regexp.MustCompile(`--[^\n]*`)
	space   = regexp.MustCompile(`\s+`)
	seam    = regexp.MustCompile(` ?([,)])`) // ALTER TABLE writes these elsewhere than people do
)

// objects lists what a file's schema consists of, without its comments.
func objects(t *testing.T, path string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	rows, err := db.Query("SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_master ORDER BY type, name")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	var list []string
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		text = comment.ReplaceAllString(text, "")
		text = seam.ReplaceAllString(strings.TrimSpace(space.ReplaceAllString(text, " ")), "$1")
		list = append(list, text)
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, list)
	return list
}
