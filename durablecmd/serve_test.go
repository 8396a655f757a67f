package durablecmd_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
)

// TestTheHealthListenerTakesFewDescriptors: 64 connections at a time, each for a
// short time, whatever a client opens.
func TestTheHealthListenerTakesFewDescriptors(t *testing.T) {
	t.Parallel()
	s := serve(t, file(t), stock)
	address := s.address()
	becomes(t, address, "/readyz", http.StatusOK)

	kept := dial(t, address)
	_, err := io.WriteString(kept, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(kept)
	require.NoError(t, err, "the connection is closed after its answer")
	require.Contains(t, string(answer), "200 OK")
	require.Contains(t, strings.ToLower(string(answer)), "connection: close")

	// One more than there are places takes that of the oldest, at a time when none of them
	// has been silent for too long: who only holds connections does not keep probes out.
	require.Eventually(t, func() bool {
		begun := time.Now()
		oldest := dial(t, address)
		_ = oldest.SetReadDeadline(begun.Add(50 * time.Millisecond))
		if _, err := oldest.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return false // it had no place
		}
		for range 64 {
			dial(t, address)
		}
		code, _ := status(t, address, "/healthz")
		_ = oldest.SetReadDeadline(begun.Add(1500 * time.Millisecond))
		_, err := oldest.Read(make([]byte, 1))
		return code == http.StatusOK && err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}, time.Minute, 10*time.Millisecond)
	s.signal()
	require.Equal(t, 0, s.ends())
}

// TestATakenPortIsNamed: without DURABLE_HTTP_ADDR a second worker of a machine takes a
// free port, and says so; an address that was asked for is an error.
func TestATakenPortIsNamed(t *testing.T) {
	t.Parallel()
	var binder net.ListenConfig
	first, err := binder.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, first.Close()) })
	var log buffer
	second, err := durablecmd.ListenBeside(t.Context(), first.Addr().String(), slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, second.Close()) })
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "set DURABLE_HTTP_ADDR")
	require.Contains(t, log.String(), "taken="+first.Addr().String()+" addr="+second.Addr().String())

	e := execute(t, append(file(t), "DURABLE_HTTP_ADDR="+first.Addr().String()), "work")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "DURABLE_HTTP_ADDR: listen tcp "+first.Addr().String())
}

func TestAWorkerServesFromMemory(t *testing.T) {
	t.Parallel()
	s := serve(t, append(file(t), "DURABLE_DATABASE_URL=memory:"), stock)
	becomes(t, s.address(), "/readyz", http.StatusOK)
	s.signal()
	require.Equal(t, 0, s.ends())
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
