package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// pending counts the runs that a store sees.
func pending(t *testing.T, s *sqlite.Store) int64 {
	t.Helper()
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	return counts[store.Pending].N
}

func TestLinksLeadToOneFile(t *testing.T) {
	dir := t.TempDir()
	for _, made := range []string{"shared", "release", "shared/deep"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, made), 0o700))
	}
	for link, to := range map[string]string{
		"release/absolute.db": filepath.Join(dir, "shared/runs.db"),
		"release/relative.db": "../shared/runs.db",
		"release/chain.db":    "relative.db",
		"folder":              "shared",
		"deep":                "shared/deep",
		"release/through.db":  "../deep/../runs.db", // of the directory that deep leads to
		"release/round.db":    "round.db",
		"release/nowhere.db":  filepath.Join(dir, "none/runs.db"),
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	t.Chdir(filepath.Join(dir, "release"))
	first := open(t, "absolute.db", sqlite.Config{}) // makes the file that the link leads to
	migrate(t, first)
	require.FileExists(t, filepath.Join(dir, "shared/runs.db"))
	all := []*sqlite.Store{first}
	for _, name := range []string{
		"relative.db", "chain.db", "through.db", "../folder/runs.db", "../deep/../runs.db", "../shared/runs.db", filepath.Join(dir, "shared/runs.db"),
	} {
		s := open(t, name, sqlite.Config{})
		_, err := s.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err, name)
		all = append(all, s)
		for _, one := range all {
			require.Equal(t, int64(len(all)-1), pending(t, one), name)
		}
	}
	t.Chdir(filepath.Join(dir, "deep")) // a link, whose parent is not the one of its name
	require.Equal(t, int64(len(all)-1), pending(t, open(t, "../runs.db", sqlite.Config{})))
	t.Chdir(filepath.Join(dir, "release"))
	require.FileExists(t, filepath.Join(dir, "shared/runs.db-wal"))
	logs, err := filepath.Glob(filepath.Join(dir, "release/*-wal"))
	require.NoError(t, err)
	require.Empty(t, logs)

	_, err = sqlite.Open(t.Context(), "round.db", sqlite.Config{})
	require.ErrorContains(t, err, "too many symbolic links")
	_, err = sqlite.Open(t.Context(), "nowhere.db", sqlite.Config{})
	require.ErrorContains(t, err, "none does not exist")
}

func TestAFileWithHardLinksIsRefused(t *testing.T) {
	s, path := openMigrated(t)
	other := filepath.Join(t.TempDir(), "other.db")
	require.NoError(t, os.Link(path, other))
	for _, name := range []string{path, other} {
		_, err := sqlite.Open(t.Context(), name, sqlite.Config{})
		require.ErrorContains(t, err, name+" has 2 names (hard links)")
	}
	require.NoFileExists(t, other+"-wal")
	require.Contains(t, found(t, s)["names"], "has 2 names", "doctor names it while it is open")
	require.NoError(t, os.Remove(other))
	require.NotContains(t, found(t, s), "names")
	_, err := s.Enqueue(t.Context(), newRuns(1)...)
	require.NoError(t, err)
	require.Equal(t, int64(1), pending(t, open(t, path, sqlite.Config{})))
}

// TestAFileMountedAloneIsRefused has what a container does done by a process with
// a table of mounts of its own. Who may not mount hears of the table's lines only,
// in TestMountsAreRead.
func TestAFileMountedAloneIsRefused(t *testing.T) {
	s, path := openMigrated(t)
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), roleVariable+"=mounts", pathVariable+"="+path, forVariable+"=0s")
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	output, err := c.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran && os.Geteuid() != 0 { //nolint:errorlint // Run returns it as it is
		return // the machine gives no namespaces to its users
	}
	require.NoError(t, err, "%s", output)
	require.Equal(t, int64(1), pending(t, s), "of the mount of the directory")
}

// mounts opens a file through mounts of several kinds and says what is not as it
// should be.
func mounts(path string) error {
	ctx := context.Background()
	bind := func(from, to string) error { return syscall.Mount(from, to, "", syscall.MS_BIND, "") }
	dir, err := os.MkdirTemp(filepath.Dir(path), "a box")
	if err != nil {
		return err
	}
	alone := filepath.Join(dir, "runs.db")
	if err := os.WriteFile(alone, nil, 0o600); err != nil {
		return err
	}
	if err := bind(path, alone); err != nil {
		return err
	}
	const refused = "is mounted without its directory"
	if err := opens(ctx, alone, refused); err != nil {
		return err
	}
	link := filepath.Join(filepath.Dir(path), "link.db")
	if err := os.Symlink(alone, link); err != nil {
		return err
	}
	if err := opens(ctx, link, refused); err != nil {
		return err
	}
	if err := bind(path, path); err != nil { // it has the directory that it always had
		return err
	}
	if err := opens(ctx, path, ""); err != nil {
		return err
	}
	if err := bind(filepath.Dir(path), dir); err != nil { // what is mounted in it is out of sight
		return err
	}
	s, err := sqlite.Open(ctx, filepath.Join(dir, filepath.Base(path)), sqlite.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Enqueue(ctx, newRuns(1)...)
	return err
}

// opens opens and closes a file, and fails unless that is refused as it should be.
func opens(ctx context.Context, path, refused string) error {
	s, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err == nil {
		s.Close()
	}
	if refused == "" {
		return err
	}
	if err == nil || !strings.Contains(err.Error(), refused) {
		return fmt.Errorf("%s: %w, want %q", path, err, refused)
	}
	return nil
}

// TestAFileThatWasMovedOpens: nothing is kept about a name.
func TestAFileThatWasMovedOpens(t *testing.T) {
	s, path := openMigrated(t)
	_, err := s.Enqueue(t.Context(), newRuns(1)...)
	require.NoError(t, err)
	s.Close()
	dir := t.TempDir()
	moved, restored := filepath.Join(dir, "moved.db"), filepath.Join(dir, "restored.db")
	require.NoError(t, os.Rename(path, moved))
	content, err := os.ReadFile(moved)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(restored, content, 0o600))
	require.NoError(t, os.WriteFile(path, content, 0o600))
	for _, name := range []string{moved, restored, path} {
		require.Equal(t, int64(1), pending(t, open(t, name, sqlite.Config{})), "they are three files")
	}
}

// TestOpeningWhileOthersCloseIsNeverRefused: each of many processes may be the
// last one, which takes the log away, or the next one, which makes it.
func TestOpeningWhileOthersCloseIsNeverRefused(t *testing.T) {
	s, path := openMigrated(t)
	s.Close()
	link := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Symlink(path, link))
	var wg sync.WaitGroup
	for i := range 20 {
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env = append(os.Environ(), roleVariable+"=reopen", pathVariable+"="+[]string{path, link}[i%2], forVariable+"=1s")
		wg.Go(func() {
			output, err := c.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
	wg.Wait()
	require.Positive(t, pending(t, open(t, path, sqlite.Config{})))
}

// reopen opens the file, enqueues and closes it, again and again.
func reopen(path string, d time.Duration) error {
	ctx := context.Background()
	for begun, n := time.Now(), 0; n == 0 || time.Since(begun) < d; n++ {
		s, err := sqlite.Open(ctx, path, sqlite.Config{LockTimeout: time.Minute})
		if err != nil {
			return err
		}
		_, err = s.Enqueue(ctx, newRuns(1)...)
		s.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
