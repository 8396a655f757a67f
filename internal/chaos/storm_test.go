package chaos_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

const stormToken = "operator-0123456789abcdef"

// storm is how much is asked of the API of a worker.
type storm struct {
	rate  int // requests a second
	slow  int // clients that read a byte a second, half of them a stream
	lasts time.Duration
}

// TestAStormOfTheAPIKeepsNoBeatWaiting asks the API of a worker that holds leases and
// executes runs, many times a second, beside clients that hardly read. Its heartbeats
// come in time. With DURABLE_TEST_LONG: 500 requests a second and 200 slow clients.
func TestAStormOfTheAPIKeepsNoBeatWaiting(t *testing.T) {
	s := storm{rate: 100, slow: 20, lasts: 2 * time.Second}
	if os.Getenv("DURABLE_TEST_LONG") != "" {
		s = storm{rate: 500, slow: 200, lasts: 30 * time.Second}
	}
	dsn := pgtest.Database(t)
	db, gate := openStore(t, dsn), filepath.Join(t.TempDir(), "gate")
	w := startWorker(t, dsn, "stormed", "DURABLE_HTTP_ADDR=127.0.0.1:0", "DURABLE_DASHBOARD_ADDR=127.0.0.1:0", "DURABLE_DASHBOARD_TOKEN="+stormToken,
		"DURABLE_HEARTBEAT_INTERVAL=200ms")
	enqueueHeld(t, db, 20, gate)
	enqueueNaps(t, db, 300, time.Millisecond)
	until(t, db, time.Minute, "it works", func(counts map[store.State]store.Count) bool { return counts[store.Succeeded].N == 300 })
	health, board := w.address(t, "health listener ready"), w.address(t, "dashboard ready")

	calm, calmWait := s.measure(t, db, health, func(context.Context) {})
	var answered, refused atomic.Int64
	stormy, stormyWait := s.measure(t, db, health, func(ctx context.Context) { s.blow(ctx, board, &answered, &refused) })
	t.Logf("beats late: %v without, %v with %d requests and %d slow clients (%d answered, %d refused for load); runs begin after %v without, %v with",
		calm, stormy, s.rate*int(s.lasts/time.Second), s.slow, answered.Load(), refused.Load(), calmWait, stormyWait)
	require.Positive(t, answered.Load())
	require.Less(t, stormy, leaseDuration/4)
	require.NotContains(t, w.log(), "lease lost")
	release(t, gate)
}

// address is where a listener of the worker's is, as its log says.
func (w *worker) address(t *testing.T, what string) (addr string) {
	t.Helper()
	require.Eventually(t, func() bool {
		found := regexp.MustCompile(what + `".* addr=(\S+)`).FindStringSubmatch(w.log())
		if found != nil {
			addr = found[1]
		}
		return found != nil
	}, time.Minute, 10*time.Millisecond)
	return addr
}

// measure returns by how much a heartbeat was late at most, and how long a run waited at
// most, while something is done.
func (s storm) measure(t *testing.T, db store.Store, health string, during func(context.Context)) (late, waited time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.lasts)
	defer cancel()
	var doing sync.WaitGroup
	doing.Go(func() { during(ctx) })
	lag := regexp.MustCompile(`(?m)^durable_heartbeat_lag_seconds (\S+)$`)
	for ctx.Err() == nil {
		id := enqueueNaps(t, db, 1, time.Millisecond)[0]
		<-time.After(100 * time.Millisecond)
		text, err := get(t.Context(), "http://"+health+"/metrics")
		require.NoError(t, err)
		found := lag.FindSubmatch(text)
		require.NotNil(t, found, string(text))
		seconds, err := strconv.ParseFloat(string(found[1]), 64)
		require.NoError(t, err)
		late = max(late, time.Duration(seconds*float64(time.Second)))
		if r := record(t, db, id); r.StartedAt != nil {
			waited = max(waited, r.StartedAt.Sub(r.DueAt))
		}
	}
	doing.Wait()
	return late, waited
}

func get(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+stormToken)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d: %s", answer.StatusCode, text)
	}
	return text, err
}

// blow asks at the rate, and has the slow clients read, until ctx ends.
func (s storm) blow(ctx context.Context, board string, answered, refused *atomic.Int64) {
	var clients sync.WaitGroup
	defer clients.Wait()
	for i := range s.slow {
		clients.Go(func() { trickle(ctx, board, []string{"/api/v1/events", "/api/v1/runs?limit=200"}[i%2]) })
	}
	paths := []string{"/api/v1/runs?limit=50", "/api/v1/queues", "/api/v1/workers", "/api/v1/survey", "/api/v1/counts"}
	ticker := time.NewTicker(time.Second / time.Duration(s.rate))
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			clients.Go(func() {
				if _, err := get(ctx, "http://"+board+paths[i%len(paths)]); err == nil {
					answered.Add(1)
				} else if ctx.Err() == nil {
					refused.Add(1)
				}
			})
		}
	}
}

// trickle reads an answer a byte a second.
func trickle(ctx context.Context, board, path string) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", board)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, board, stormToken)
	reader := bufio.NewReaderSize(conn, 16)
	for ctx.Err() == nil {
		if _, err := reader.ReadByte(); err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
