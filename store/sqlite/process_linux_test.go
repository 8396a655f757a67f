package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// roleVariable makes the test binary play another process; its value is the
// role and pathVariable names the file.
const (
	roleVariable = "SQLITE_TEST_ROLE"
	pathVariable = "SQLITE_TEST_PATH"
	forVariable  = "SQLITE_TEST_FOR"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	path, length := os.Getenv(pathVariable), os.Getenv(forVariable)
	d, err := time.ParseDuration(length)
	if err == nil {
		err = map[string]func() error{
			"hold":   func() error { return hold(path) },
			"churn":  func() error { return churn(path, d) },
			"quota":  func() error { return quota(path) },
			"mounts": func() error { return mounts(path) },
			"reopen": func() error { return reopen(path, d) },
		}[role]()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold keeps the file's write lock, says when it has it, and lets it go when its
// input ends.
func hold(path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN EXCLUSIVE"); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_, err = db.Exec("ROLLBACK")
	return err
}

// churn enqueues without a pause and prints how often after each time.
func churn(path string, d time.Duration) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	writes := 0
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := s.Enqueue(ctx, newRuns(100)...); err != nil {
			return err
		}
		writes++
		fmt.Fprintln(os.Stdout, writes)
	}
	return nil
}

// process starts the test binary in a role and waits for its first line.
func process(t *testing.T, role, path string, d time.Duration) *bufio.Scanner {
	t.Helper()
	_, lines := start(t, role, path, d)
	return lines
}

// holder starts a process that holds the file's write lock until it is asked to
// let go, and waits until it has done so.
func holder(t *testing.T, path string) (letGo func()) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), roleVariable+"=hold", pathVariable+"="+path, forVariable+"=0s")
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	return func() {
		require.NoError(t, in.Close())
		require.False(t, lines.Scan()) // it has ended
	}
}

func start(t *testing.T, role, path string, d time.Duration) (*os.Process, *bufio.Scanner) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), roleVariable+"="+role, pathVariable+"="+path, forVariable+"="+d.String())
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Wait() })
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	return c.Process, lines
}

// last reads the number of the last line, when the process has ended.
func last(t *testing.T, lines *bufio.Scanner) int {
	t.Helper()
	text := lines.Text()
	for lines.Scan() {
		text = lines.Text()
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func TestAnotherProcess(t *testing.T) {
	t.Run("a write waits for the process that holds the file", func(t *testing.T) {
		s, path := openMigrated(t)
		letGo, stored := holder(t, path), make(chan error, 1)
		go func() {
			_, err := s.Enqueue(context.WithoutCancel(t.Context()), newRuns(1)...)
			stored <- err
		}()
		select {
		case err := <-stored:
			t.Fatal("it did not wait", err)
		case <-time.After(time.Second):
		}
		letGo()
		require.NoError(t, <-stored)
	})
	t.Run("reading does not wait for it", func(t *testing.T) {
		s, path := openMigrated(t)
		letGo := holder(t, path)
		_, err := s.Counts(t.Context())
		require.NoError(t, err)
		letGo()
	})
	t.Run("a write says in the end why it failed, and the next one works", func(t *testing.T) {
		path := newPath(t)
		s := open(t, path, sqlite.Config{LockTimeout: 300 * time.Millisecond})
		migrate(t, s)
		letGo := holder(t, path)
		_, err := s.Enqueue(t.Context(), newRuns(1)...)
		require.Error(t, err)
		found := regexp.MustCompile(`has been locked by another process for (\S+):`).FindStringSubmatch(err.Error())
		require.NotNil(t, found, err)
		waited, err := time.ParseDuration(found[1])
		require.NoError(t, err)
		require.GreaterOrEqual(t, waited, 300*time.Millisecond)
		letGo()
		_, err = s.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
	})
	t.Run("a wait ends with its context", func(t *testing.T) {
		s, path := openMigrated(t)
		letGo := holder(t, path)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := s.Enqueue(ctx, newRuns(1)...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		letGo()
	})
	t.Run("one that is killed while it writes loses nothing that was reported to it as stored", func(t *testing.T) {
		s, path := openMigrated(t)
		process, lines := start(t, "churn", path, time.Minute)
		for range 50 {
			require.True(t, lines.Scan())
		}
		require.NoError(t, process.Kill())
		noticed := int64(last(t, lines))
		_, err := s.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
		counts, err := s.Counts(t.Context())
		require.NoError(t, err)
		stored := counts[store.Pending].N - 1
		require.Zero(t, stored%100, "a call stores all its runs or none")
		require.GreaterOrEqual(t, stored, 100*noticed)
		require.LessOrEqual(t, stored, 100*(noticed+1))
		integrity(t, path)
	})
	t.Run("two that write without a pause take turns", func(t *testing.T) {
		s, path := openMigrated(t)
		lines := process(t, "churn", path, 2*time.Second)
		writes, worst := 0, time.Duration(0)
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); writes++ {
			begun := time.Now()
			_, err := s.Enqueue(t.Context(), newRuns(100)...)
			require.NoError(t, err)
			worst = max(worst, time.Since(begun))
		}
		others := last(t, lines)
		t.Logf("%d writes here, %d in the other process, the longest wait here %v", writes, others, worst)
		require.Greater(t, writes, others/50)
		require.Greater(t, others, writes/50)
	})
}

func TestListen(t *testing.T) {
	t.Run("a write of another process wakes", func(t *testing.T) {
		s, path := openMigrated(t)
		wakes := listen(t, s)
		lines := process(t, "churn", path, 10*time.Millisecond)
		<-wakes
		last(t, lines)
	})
	t.Run("an enqueue of this process wakes immediately", func(t *testing.T) {
		s, _ := openMigrated(t)
		wakes := listen(t, s)
		_, err := s.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
		<-wakes
	})
	t.Run("a claim and a settle of this process do not wake", func(t *testing.T) {
		s, _ := openMigrated(t)
		_, err := s.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
		wakes := listen(t, s)
		id, runs := claim(t, s, 1)
		require.Len(t, runs, 1)
		_, err = s.Settle(t.Context(), succeed(id, runs))
		require.NoError(t, err)
		select {
		case <-wakes:
			t.Fatal("woken for nothing")
		case <-time.After(200 * time.Millisecond): // five looks
		}
	})
	t.Run("it ends with an error when the store is closed", func(t *testing.T) {
		s, _ := openMigrated(t)
		ended := make(chan error, 1)
		go func() { ended <- s.Listen(context.Background(), func(store.Signal) {}) }()
		s.Close()
		require.ErrorContains(t, <-ended, "the store is closed")
		_, err := s.Enqueue(t.Context(), newRuns(1)...)
		require.ErrorContains(t, err, "the store is closed")
		_, err = s.Counts(t.Context())
		require.Error(t, err)
	})
}

// listen begins to listen and waits until it does.
func listen(t *testing.T, s store.Waker) <-chan struct{} {
	t.Helper()
	wakes, begun := make(chan struct{}, 1000), make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Listen(ctx, func(signal store.Signal) {
			switch signal.Kind {
			case store.RunsDue:
				wakes <- struct{}{}
			case store.RunEnded:
				begun <- struct{}{}
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	<-begun // the first look is behind it
	return wakes
}
