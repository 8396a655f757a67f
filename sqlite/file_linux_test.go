package sqlite_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/sqlite"
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
	t.Run("the file is something else", func(t *testing.T) {
		path := newPath(t)
		text := []byte("this is not a database, and it is longer than a header of one hundred bytes, so that nobody takes it for an empty one")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		_, err := sqlite.Open(t.Context(), path, sqlite.Config{})
		require.ErrorContains(t, err, "is not a SQLite database")
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, after)
	})
	t.Run("the directory is read-only", func(t *testing.T) {
		dir := t.TempDir()
		if os.Geteuid() == 0 {
			mount(t, dir, syscall.MS_RDONLY, "")
		} else {
			require.NoError(t, os.Chmod(dir, 0o500))
		}
		_, err := sqlite.Open(t.Context(), filepath.Join(dir, "runs.db"), sqlite.Config{})
		require.ErrorContains(t, err, "cannot be written")
	})
	t.Run("the schema is missing", func(t *testing.T) {
		s := open(t, newPath(t), sqlite.Config{})
		_, err := s.Enqueue(t.Context(), newRuns(1)...)
		require.ErrorContains(t, err, "migrate first")
		_, err = s.Counts(t.Context())
		require.ErrorContains(t, err, "migrate first")
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

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, 0, "size=4m")
	path := filepath.Join(dir, "runs.db")
	s := open(t, path, sqlite.Config{})
	migrate(t, s)
	stored := int64(0)
	var err error
	for stored < 1_000_000 {
		if _, err = s.Enqueue(t.Context(), newRuns(100)...); err != nil {
			break
		}
		stored += 100
	}
	require.ErrorContains(t, err, "no space left for")
	integrity(t, path)
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, stored, counts[0], "what was acknowledged is there, and nothing else")

	require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m"))
	_, err = s.Enqueue(t.Context(), newRuns(100)...)
	require.NoError(t, err)
	id, runs := claim(t, s, 1000)
	require.Len(t, runs, 1000)
	_, err = s.Settle(t.Context(), succeed(id, runs))
	require.NoError(t, err)
	integrity(t, path)
}

// mount puts a file system in memory on dir, where that is permitted.
func mount(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	if err := syscall.Mount("none", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("mounting is not permitted: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}
