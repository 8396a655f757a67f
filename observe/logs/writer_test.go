package logs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/observe/logs"
)

// sink is where a log goes. It may hold a write back, fail it, or take a part of it.
type sink struct {
	gate chan struct{} // nil: nothing is held back; each write takes one

	mu    sync.Mutex
	text  bytes.Buffer
	sizes []int
	fail  func(line []byte) (n int, err error) // nil: nothing fails
}

func (s *sink) Write(line []byte) (int, error) {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := len(line), error(nil)
	if s.fail != nil {
		n, err = s.fail(line)
	}
	s.sizes = append(s.sizes, n)
	_, _ = s.text.Write(line[:n])
	return n, err
}

func (s *sink) failing(with func(line []byte) (int, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = with
}

func (s *sink) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Split(strings.TrimSuffix(s.text.String(), "\n"), "\n")
}

func broken(err error) func([]byte) (int, error) {
	return func([]byte) (int, error) { return 0, err }
}

func write(t *testing.T, w io.Writer, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...) + "\n"
	n, err := io.WriteString(w, line)
	require.NoError(t, err)
	require.Equal(t, len(line), n)
}

func flush(t *testing.T, w *logs.Writer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, w.Flush(ctx))
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
}

func TestALineIsWrittenWhenWriteReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		w := logs.New(s, logs.Config{})
		for i := range 1000 {
			write(t, w, "line %d", i)
			require.Len(t, s.lines(), i+1)
		}
		require.Zero(t, w.Dropped())
		require.Zero(t, w.Blocked())
	})
}

func TestEveryLineIsWrittenInOneCallAndInItsOrder(t *testing.T) {
	t.Parallel()
	s := &sink{}
	w := logs.New(s, logs.Config{})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				write(t, w, "%d %d", g, i)
			}
		})
	}
	all.Wait()
	flush(t, w)
	next := map[int]int{}
	for _, line := range s.lines() {
		var g, i int
		_, err := fmt.Sscanf(line, "%d %d", &g, &i)
		require.NoError(t, err, line)
		require.Equal(t, next[g], i)
		next[g]++
	}
	require.Len(t, s.sizes, 4000)
	require.Zero(t, w.Dropped())
}

func TestABlockedLogIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{gate: make(chan struct{})}
		w := logs.New(s, logs.Config{})
		began := time.Now()
		for i := range 1000 {
			write(t, w, "line %d", i)
		}
		require.Equal(t, 10*time.Millisecond, time.Since(began))
		pass(time.Minute)
		require.Equal(t, time.Minute+10*time.Millisecond, w.Blocked())
		close(s.gate)
		flush(t, w)
		require.Len(t, s.lines(), 1000)
		require.Zero(t, w.Blocked())
		began = time.Now()
		write(t, w, "the last")
		require.Zero(t, time.Since(began))
		require.Equal(t, "the last", s.lines()[1000], "it is written when Write returns, as before")
	})
}

func TestLinesAreDroppedWhenTooManyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{gate: make(chan struct{})}
		w := logs.New(s, logs.Config{MaxLines: 10, Handler: func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) }})
		for i := range 111 { // the first one is being written
			write(t, w, "line %d", i)
		}
		require.EqualValues(t, 100, w.Dropped())
		pass(time.Minute)
		for range 5 {
			s.gate <- struct{}{}
		}
		synctest.Wait()
		write(t, w, "dropped too: less than half of the queue is free")
		s.gate <- struct{}{}
		synctest.Wait()
		write(t, w, "taken")
		close(s.gate)
		flush(t, w)
		require.EqualValues(t, 101, w.Dropped())
		lines := s.lines()
		require.Len(t, lines, 13)
		for i, line := range lines[:11] {
			require.Equal(t, fmt.Sprintf("line %d", i), line)
		}
		require.Equal(t, "taken", lines[12])
		var notice struct {
			Level   string
			Event   string
			Dropped int
			For     time.Duration
		}
		require.NoError(t, json.Unmarshal([]byte(lines[11]), &notice))
		require.Equal(t, "WARN", notice.Level)
		require.Equal(t, "log.dropped", notice.Event)
		require.Equal(t, 101, notice.Dropped)
		require.Equal(t, time.Minute, notice.For)
	})
}

func TestLinesAreDroppedWhenTheyAreTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{gate: make(chan struct{})}
		w := logs.New(s, logs.Config{MaxBytes: 100})
		write(t, w, "first")
		write(t, w, "%s", strings.Repeat("x", 1000)) // it waits alone
		write(t, w, "dropped")
		close(s.gate)
		flush(t, w)
		lines := s.lines()
		require.Len(t, lines, 3)
		require.Len(t, lines[1], 1000)
		require.Contains(t, lines[2], "event=log.dropped dropped=1 for=")
	})
}

func TestABrokenLogDropsALineASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{fail: broken(syscall.EPIPE)}
		w := logs.New(s, logs.Config{MaxLines: 10})
		for i := range 6 {
			write(t, w, "line %d", i)
		}
		pass(2500 * time.Millisecond)
		require.EqualValues(t, 3, w.Dropped())
		require.Zero(t, w.Blocked())
		s.failing(nil)
		flush(t, w)
		lines := s.lines()
		require.Equal(t, []string{"line 3", "line 4", "line 5"}, lines[:3])
		flush(t, w)
		require.Contains(t, s.lines()[3], `error="broken pipe" event=log.dropped dropped=3 for=2.5`)
	})
}

func TestTheEndDoesNotWaitForABrokenLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{fail: broken(syscall.EPIPE)}
		w := logs.New(s, logs.Config{})
		for i := range 1000 {
			write(t, w, "line %d", i)
		}
		began := time.Now()
		require.ErrorIs(t, w.Flush(t.Context()), syscall.EPIPE)
		require.Zero(t, time.Since(began))
		require.EqualValues(t, 1000, w.Dropped())
		s.failing(nil)
		write(t, w, "after")
		flush(t, w)
		require.Equal(t, "after", s.lines()[0])
	})
}

func TestTheEndWaitsForABlockedLogUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{gate: make(chan struct{})}
		w := logs.New(s, logs.Config{})
		write(t, w, "line")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, w.Flush(ctx), context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began))
		close(s.gate)
		flush(t, w)
		require.Equal(t, []string{"line"}, s.lines())
	})
}

func TestALineThatWasWrittenInPartEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{fail: func([]byte) (int, error) { return 2, syscall.ENOSPC }}
		w := logs.New(s, logs.Config{})
		write(t, w, "first")
		pass(time.Minute)
		s.failing(nil)
		write(t, w, "second")
		flush(t, w)
		require.Equal(t, []string{"fi", "second"}, s.lines()[:2])
	})
}

func TestADescriptorThatDoesNotBlockIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := 3
		s := &sink{fail: func(line []byte) (int, error) {
			if full--; full >= 0 {
				return 1, syscall.EAGAIN
			}
			return len(line), nil
		}}
		w := logs.New(s, logs.Config{})
		write(t, w, "line")
		synctest.Wait()
		require.Equal(t, 10*time.Millisecond, w.Blocked())
		flush(t, w)
		require.Equal(t, []string{"line"}, s.lines())
		require.Zero(t, w.Dropped())
	})
}

func TestAWriterThatBreaksItsContractLosesTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{fail: func([]byte) (int, error) { return 1, nil }}
		w := logs.New(s, logs.Config{})
		write(t, w, "line")
		require.EqualValues(t, 1, w.Dropped())
		flush(t, w)
	})
}

func TestAHandlerWithoutWarningsWritesNoNotice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{fail: broken(errors.New("no"))}
		w := logs.New(s, logs.Config{Handler: func(w io.Writer) slog.Handler {
			return slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError})
		}})
		write(t, w, "lost")
		s.failing(nil)
		write(t, w, "kept")
		flush(t, w)
		flush(t, w)
		require.Equal(t, []string{"kept"}, s.lines())
	})
}

// TestAPipe is the real thing: a pipe that is not read, and then one without a reader.
func TestAPipe(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = writer.Close() }()
	w := logs.New(writer, logs.Config{MaxLines: 1000})
	for i := range 5000 {
		write(t, w, "%d %s", i, strings.Repeat("x", 100))
	}
	require.Positive(t, w.Dropped(), "the pipe takes 64 KiB")
	require.Eventually(t, func() bool { return w.Blocked() > 20*time.Millisecond }, time.Minute, time.Millisecond)
	require.NoError(t, reader.Close())
	for {
		if err = w.Flush(t.Context()); err == nil { // the write that was under way, before the flush began
			write(t, w, "more")
			continue
		}
		break
	}
	require.ErrorIs(t, err, syscall.EPIPE)
	require.Zero(t, w.Blocked())
}

func BenchmarkWrite(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(b, err)
	line := []byte(strings.Repeat("x", 200) + "\n")
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			_, _ = null.Write(line)
		}
	})
	w := logs.New(null, logs.Config{})
	b.Run("through", func(b *testing.B) {
		for b.Loop() {
			_, _ = w.Write(line)
		}
	})
}
