package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestOpen(t *testing.T) {
	t.Run("the file is readable for its owner only", func(t *testing.T) {
		_, path := openMigrated(t)
		for _, name := range []string{path, path + "-wal", path + "-shm"} {
			info, err := os.Stat(name)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
		}
	})
	t.Run("a path is a path whatever its characters", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a?b#c%20d e&mode=memory.db")
		s := open(t, path, sqlite.Config{Synchronous: sqlite.SyncNormal})
		migrate(t, s)
		require.FileExists(t, path)
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, entries, 3)
	})
	t.Run("what was stored is there after it is opened again", func(t *testing.T) {
		s, path := openMigrated(t)
		runs := newRuns(1)
		_, err := s.Enqueue(t.Context(), runs...)
		require.NoError(t, err)
		s.Close()
		record, err := open(t, path, sqlite.Config{}).Run(t.Context(), runs[0].ID)
		require.NoError(t, err)
		require.JSONEq(t, string(runs[0].Args), string(record.Args))
	})
	t.Run("the last to close it leaves one file, with all that was stored", func(t *testing.T) {
		first, path := openMigrated(t)
		last := open(t, path, sqlite.Config{})
		runs := newRuns(1)
		_, err := last.Enqueue(t.Context(), runs...)
		require.NoError(t, err)
		first.Close()
		require.FileExists(t, path+"-wal")
		_, err = last.Run(t.Context(), runs[0].ID)
		require.NoError(t, err)
		last.Close()
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, entries, 1)
		_, err = open(t, path, sqlite.Config{}).Run(t.Context(), runs[0].ID)
		require.NoError(t, err)
	})
}

// TestAFileWithinReachOfOthersIsNamed: a file that another user has planted, or
// loosened, decides what a worker executes.
func TestAFileWithinReachOfOthersIsNamed(t *testing.T) {
	said := func(path string) string {
		var log bytes.Buffer
		open(t, path, sqlite.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}).Close()
		return log.String()
	}
	_, path := openMigrated(t)
	require.NotContains(t, said(path), "within reach")
	require.NoError(t, os.Chmod(path, 0o640)) //nolint:gosec // that is what is to be found
	require.Contains(t, said(path), "mode 0640: others can reach the arguments of runs")
	require.NoError(t, os.Chmod(path, 0o666)) //nolint:gosec // likewise
	require.Contains(t, said(path), "mode 0666: others can have any run executed")
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o1777)) //nolint:gosec // likewise
	require.Contains(t, said(path), "mode 0777: others can put files beside the database")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o755)) //nolint:gosec // likewise
	if os.Geteuid() != 0 {
		return // only root gives files away
	}
	require.NoError(t, os.Chown(path, 65532, 65532))
	require.Contains(t, said(path), "belongs to user 65532, who can have any run executed")
	require.NoError(t, os.Chown(path, 0, 0))
	require.NoError(t, os.Chown(filepath.Dir(path), 65532, 65532))
	require.Contains(t, said(path), "belongs to user 65532, who can replace the file")
}

func TestRefusals(t *testing.T) {
	t.Run("the directory is missing", func(t *testing.T) {
		_, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "none", "runs.db"), sqlite.Config{})
		require.ErrorContains(t, err, "does not exist")
	})
	t.Run("the path is a directory", func(t *testing.T) {
		_, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Config{})
		require.ErrorContains(t, err, "is not a file")
	})
	t.Run("the path names a directory", func(t *testing.T) {
		path := newPath(t)
		for _, path := range []string{path + "/", path + "/.", path + "/..", "", "."} {
			_, err := sqlite.Open(t.Context(), path, sqlite.Config{})
			require.ErrorContains(t, err, "names a directory, not a file", path)
		}
		require.NoFileExists(t, path)
	})
	t.Run("the file is something else", func(t *testing.T) {
		path := newPath(t)
		text := []byte("this is not a database, and it is longer than a header of one hundred bytes, so that no one takes it for an empty one")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		_, err := sqlite.Open(t.Context(), path, sqlite.Config{})
		require.ErrorContains(t, err, "is not a SQLite database")
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, after)
	})
	t.Run("the directory cannot be written, not even by root", func(t *testing.T) {
		_, err := sqlite.Open(t.Context(), "/proc/self/runs.db", sqlite.Config{})
		require.ErrorContains(t, err, "cannot be written")
	})
	t.Run("the file may not be written", func(t *testing.T) {
		dir := t.TempDir()
		if !mount(dir, syscall.MS_RDONLY, "") {
			if os.Geteuid() == 0 {
				return // root writes where it likes; the test above has to do
			}
			require.NoError(t, os.Chmod(dir, 0o500))
		}
		defer unmount(dir)
		_, err := sqlite.Open(t.Context(), filepath.Join(dir, "runs.db"), sqlite.Config{})
		require.ErrorContains(t, err, "cannot be written")
	})
	t.Run("the schema is missing", func(t *testing.T) {
		s := open(t, newPath(t), sqlite.Config{})
		_, err := s.Enqueue(t.Context(), newRuns(1)...)
		require.ErrorContains(t, err, "run `migrate up` of your worker program")
		_, err = s.Counts(t.Context())
		require.ErrorContains(t, err, "run `migrate up` of your worker program")
		migrate(t, s)
		_, err = s.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
		_, err = s.Counts(t.Context())
		require.NoError(t, err)
	})
}

func TestFileGoesAway(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"deleted":                    func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"its log deleted":            func(t *testing.T, path string) { require.NoError(t, os.Remove(path+"-wal")) },
		"another moved in its place": func(t *testing.T, path string) { replace(t, path) },
	} {
		t.Run(name, func(t *testing.T) {
			s, path := openMigrated(t)
			spoil(t, path)
			_, err := s.Enqueue(t.Context(), newRuns(1)...)
			require.ErrorContains(t, err, "while it was in use")
		})
	}
}

func replace(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+"-new", nil, 0o600))
	require.NoError(t, os.Rename(path+"-new", path))
}

// TestDiskFull fills a small disk where one may be mounted, and otherwise, and
// in any case, a process's allowance of bytes in one file.
func TestDiskFull(t *testing.T) {
	t.Run("a quota", func(t *testing.T) {
		s, path := openMigrated(t)
		s.Close()
		_, lines := start(t, "quota", path, 0)
		require.Positive(t, last(t, lines))
		integrity(t, path)
	})
	t.Run("a small disk", func(t *testing.T) {
		dir := t.TempDir()
		if !mount(dir, 0, "size=4m") {
			return
		}
		defer unmount(dir)
		path := filepath.Join(dir, "runs.db")
		s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
		require.NoError(t, err)
		defer s.Close()
		migrate(t, s)
		more := func() error { return syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m") }
		_, fault, err := fill(t.Context(), s, more)
		require.NoError(t, err)
		require.ErrorContains(t, fault, "no space left for")
		integrity(t, path)
	})
}

// fill enqueues until there is no room, makes room, and works on. fault is
// what the store said when it was full; err is what it should not have done.
func fill(ctx context.Context, s *sqlite.Store, more func() error) (stored int64, fault, err error) {
	for ; fault == nil && stored < 1_000_000; stored += 100 {
		_, fault = s.Enqueue(ctx, newRuns(100)...)
	}
	stored -= 100 // the last ones were not
	counts, err := s.Counts(ctx)
	if err != nil {
		return stored, fault, err
	}
	if counts[store.Pending].N != stored {
		return stored, fault, fmt.Errorf("%d runs were acknowledged and %d are there", stored, counts[store.Pending].N)
	}
	if err := more(); err != nil {
		return stored, fault, err
	}
	if _, err := s.Enqueue(ctx, newRuns(100)...); err != nil {
		return stored, fault, err
	}
	request := store.ClaimRequest{
		Claim: lease.NewClaimID(), Worker: worker(), Duration: time.Minute, Limit: 1000, Steps: []store.Step{{Lane: 1, Take: 1000}},
	}
	runs, err := s.Claim(ctx, request)
	if err == nil {
		_, err = s.Settle(ctx, succeed(request.Claim, runs))
	}
	return stored, fault, err
}

// quota plays a process that may write only so many bytes into one file.
func quota(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	low := syscall.Rlimit{Cur: 2 << 20, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		return err
	}
	stored, fault, err := fill(ctx, s, func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit) })
	if err == nil && fault == nil {
		err = errors.New("the quota did not hold")
	}
	fmt.Fprintln(os.Stderr, fault)
	fmt.Fprintln(os.Stdout, stored)
	return err
}

// mount puts a file system in memory on dir and tells whether that is permitted.
func mount(dir string, flags uintptr, options string) bool {
	return syscall.Mount("none", dir, "tmpfs", flags, options) == nil
}

func unmount(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
