package sqlite

import (
	"context"
	"database/sql"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/faulttest"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

var statementName = regexp.MustCompile(`(?m)^-- name: (\w+)`)

// statementNames are all statements of the store.
func statementNames(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range []string{"queries", "statements"} {
		files, err := filepath.Glob("../../db/sqlite/" + dir + "/*.sql")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file) //nolint:gosec // of this repository
			require.NoError(t, err)
			for _, found := range statementName.FindAllStringSubmatch(string(text), -1) {
				names[found[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// TestOneStatementFails has each statement fail by itself.
func TestOneStatementFails(t *testing.T) {
	t.Parallel()
	for i, name := range statementNames(t) {
		if raceDetector && i%40 != 0 && os.Getenv("DURABLE_TEST_LONG") == "" {
			continue // it makes this test ten times as dear; without it all are tried
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, fault := range faulttest.Try(t, faultySubject(t), faulttest.PaceOf(), name, stops[name]) {
					t.Error(fault)
				}
			})
		})
	}
}

// faultySubject opens one file twice.
func faultySubject(t *testing.T) faulttest.Subject {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runs.db")
	var stores [2]*Store
	for i := range stores {
		s, err := Open(t.Context(), path, Config{Synchronous: SyncNormal})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		began := time.Now() // the test's time, of which the machine's own knows nothing
		s.clock.read, s.elapsed = time.Now, func() time.Duration { return time.Since(began) }
		_, err = s.Migrate(t.Context())
		require.NoError(t, err)
		stores[i] = s
	}
	faulty := stores[0]
	user, err := sql.Open("sqlite", faulty.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, user.Close()) })
	return faulttest.Subject{
		Faulty: faulty, Sound: stores[1],
		Fail: failing(t, faulty),
		Begin: func(ctx context.Context) (faulttest.Transaction, error) {
			tx, err := user.BeginTx(context.WithoutCancel(ctx), nil)
			if err != nil {
				return faulttest.Transaction{}, err
			}
			return faulttest.Transaction{
				Tx: faulty.WithTx(tx), Commit: func(context.Context) error { return tx.Commit() },
				Rollback: func(context.Context) error { return tx.Rollback() },
			}, nil
		},
	}
}

// failing returns what puts a statement that SQLite refuses in place of one of the
// store's.
func failing(t *testing.T, s *Store) func(name string) {
	t.Helper()
	refused, err := s.reads.PrepareContext(t.Context(), "SELECT abs(-9223372036854775808)") // there is no such integer
	require.NoError(t, err)
	t.Cleanup(func() { _ = refused.Close() }) // it ends with the store
	var writes *prepared
	var reads *lookups
	var ctl control
	return func(name string) {
		require.NoError(t, s.queue.enter(context.Background(), settles))
		defer s.queue.leave()
		s.readyMu.Lock()
		defer s.readyMu.Unlock()
		if writes == nil {
			writes, reads, ctl = s.ready, s.reading, s.ctl
		}
		s.ready, s.reading, s.ctl = broken(writes, name, refused), broken(reads, name, refused), *broken(&ctl, name, refused)
	}
}

// fieldOf names the fields of statements that are not generated.
var fieldOf = map[string]string{
	"UnreadyRange": "unready", "SettleSuccesses": "successes", "StartRuns": "start", "SettleNumbered": "settled",
	"CountRuns": "count", "SampleRuns": "sample", "CheckLimits": "limits", "DataVersion": "version",
}

// broken copies a set of statements, of which one is refused.
func broken[T any](of *T, name string, refused *sql.Stmt) *T {
	if of == nil {
		return nil
	}
	made := *of
	set := reflect.ValueOf(&made).Elem()
	if generated := set.FieldByName("Queries"); generated.IsValid() && name != "" {
		all := *generated.Interface().(*queries.Queries)
		if field := reflect.ValueOf(&all).Elem().FieldByName(lowerFirst(name) + "Stmt"); field.IsValid() {
			*(**sql.Stmt)(unsafe.Pointer(field.UnsafeAddr())) = refused
		}
		generated.Set(reflect.ValueOf(&all))
	}
	own := fieldOf[name]
	if own == "" {
		own = lowerFirst(name)
	}
	if field := set.FieldByName(own); field.IsValid() {
		switch at := unsafe.Pointer(field.UnsafeAddr()); field.Type() {
		case reflect.TypeFor[*sql.Stmt]():
			*(**sql.Stmt)(at) = refused
		case reflect.TypeFor[byNumber]():
			*(*byNumber)(at) = byNumber{few: refused, many: refused}
		}
	}
	return &made
}

func lowerFirst(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToLower(name[:1]) + name[1:]
}
