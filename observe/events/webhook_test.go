package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/observe/events"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiver is an HTTP server inside a bubble, reached over pipes.
type receiver struct {
	conns  chan net.Conn
	ended  chan struct{}
	client *http.Client

	mu     sync.Mutex
	bodies [][]byte
	asked  []*http.Request
}

func (r *receiver) Accept() (net.Conn, error) {
	select {
	case conn := <-r.conns:
		return conn, nil
	case <-r.ended:
		return nil, net.ErrClosed
	}
}

func (r *receiver) Close() error   { return nil }
func (r *receiver) Addr() net.Addr { return &net.UnixAddr{} }

// receive has a handler answer, which gets the number of the request from 1.
func receive(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, n int)) *receiver {
	t.Helper()
	to := &receiver{conns: make(chan net.Conn), ended: make(chan struct{})}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		to.mu.Lock()
		to.bodies, to.asked = append(to.bodies, body), append(to.asked, r)
		n := len(to.asked)
		to.mu.Unlock()
		handle(w, r, n)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(to) })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case to.conns <- far:
			return near, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	to.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		close(to.ended)
		_ = server.Close()
		serving.Wait()
	})
	return to
}

func (r *receiver) hook(t *testing.T) *events.Webhook {
	t.Helper()
	hook, err := events.NewWebhook(events.WebhookConfig{URL: "http://receiver.example/hooks?key=canary", Secret: secret, Client: r.client})
	require.NoError(t, err)
	return hook
}

func TestAWebhookIsSignedAndCanBeVerified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := receive(t, func(http.ResponseWriter, *http.Request, int) {})
		streaming(t, to.hook(t), events.Config{}, func(s *events.Stream) { settle(s, 2); pass(time.Minute) })
		require.Len(t, to.asked, 1)
		body, header, at := to.bodies[0], to.asked[0].Header, time.Now()
		require.Equal(t, "application/json", header.Get("Content-Type"))
		require.NoError(t, events.Verify(secret, header, body, at))
		require.NoError(t, events.Verify("another-secret-0123 "+secret, header, body, at), "while it is being changed")
		var batch struct {
			Schema int
			ID     string
			Events []map[string]any
		}
		require.NoError(t, json.Unmarshal(body, &batch))
		require.Equal(t, header.Get("Webhook-Id"), batch.ID)
		require.Len(t, batch.Events, 2)
		require.InDelta(t, 1, batch.Events[0]["schema"], 0)
		require.Equal(t, "run.succeeded", batch.Events[0]["type"])

		for name, err := range map[string]error{
			"another secret": events.Verify("another-secret-0123", header, body, at),
			"another body":   events.Verify(secret, header, append(body, ' '), at),
			"a replay":       events.Verify(secret, header, body, at.Add(6*time.Minute)),
			"from tomorrow":  events.Verify(secret, header, body, at.Add(-6*time.Minute)),
			"no header":      events.Verify(secret, http.Header{}, body, at),
		} {
			require.ErrorIs(t, err, events.ErrSignature, name)
		}
		for _, forged := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
			other := header.Clone()
			other.Set(forged, header.Get(forged)+"1")
			require.ErrorIs(t, events.Verify(secret, other, body, at), events.ErrSignature, forged)
		}
	})
}

// TestTheSignatureIsThatOfTheStandard holds it to the example of standardwebhooks.com.
func TestTheSignatureIsThatOfTheStandard(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	header.Set("Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	header.Set("Webhook-Timestamp", "1614265330")
	header.Set("Webhook-Signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	require.NoError(t, events.Verify(secret, header, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0)))
}

// TestAReceiverThatMisbehavesLosesEventsOnly goes through the ways.
func TestAReceiverThatMisbehavesLosesEventsOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handle func(w http.ResponseWriter, r *http.Request, n int)
		want   events.Totals
		asked  int
	}{
		"slow": {func(_ http.ResponseWriter, r *http.Request, _ int) {
			pauseFor(r.Context(), 9*time.Second)
		}, events.Totals{Sent: 2}, 1},
		"hangs": {func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() }, events.Totals{Dropped: 2, Failed: 5}, 5},
		"answers and hangs": {func(w http.ResponseWriter, r *http.Request, _ int) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, events.Totals{Sent: 2}, 1},
		"500": {func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusInternalServerError) }, events.Totals{Dropped: 2, Failed: 5}, 5},
		"500 once": {func(w http.ResponseWriter, _ *http.Request, n int) {
			if n == 1 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}, events.Totals{Sent: 2, Failed: 1}, 2},
		"429": {func(w http.ResponseWriter, _ *http.Request, n int) {
			if n == 1 {
				w.Header().Set("Retry-After", "9999999")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}, events.Totals{Sent: 2, Failed: 1}, 2},
		"redirects": {func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, "http://evil.example/", http.StatusTemporaryRedirect)
		}, events.Totals{Dropped: 2, Failed: 1}, 1},
		"gone":    {func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusGone) }, events.Totals{Dropped: 2, Failed: 1}, 1},
		"crashes": {func(http.ResponseWriter, *http.Request, int) { panic(http.ErrAbortHandler) }, events.Totals{Dropped: 2, Failed: 5}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				to := receive(t, c.handle)
				totals := streaming(t, to.hook(t), events.Config{}, func(s *events.Stream) {
					settle(s, 2)
					pass(10 * time.Minute)
					require.Equal(t, c.want, s.Totals())
				})
				require.Equal(t, c.want, totals)
				require.Len(t, to.asked, c.asked)
			})
		})
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// TestAReceiverThatIsDownIsNotNamed: the URL of a webhook may hold a secret.
func TestAReceiverThatIsDownIsNotNamed(t *testing.T) {
	t.Parallel()
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
	hook, err := events.NewWebhook(events.WebhookConfig{URL: "https://receiver.example/canary", Secret: secret,
		Client: &http.Client{Transport: &http.Transport{DialContext: dial}}})
	require.NoError(t, err)
	err = hook.Send(t.Context(), events.Batch{Schema: events.Schema})
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "canary")
}

func TestAWebhookIsConfigured(t *testing.T) {
	t.Parallel()
	for _, c := range []events.WebhookConfig{
		{URL: "canary", Secret: secret}, {URL: "ftp://canary/", Secret: secret}, {URL: "https://", Secret: secret}, {URL: "https://a/#canary", Secret: secret},
		{URL: "https://a/"}, {URL: "https://a/", Secret: "canary"}, {URL: "https://a/", Secret: "whsec_canary!"}, {URL: "https://a/", Secret: "whsec_YQ=="},
	} {
		_, err := events.NewWebhook(c)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "canary")
	}
}
