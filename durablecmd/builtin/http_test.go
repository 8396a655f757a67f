package builtin_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd/builtin"
	"github.com/durable-worker/durable-worker/store"
)

// receiver answers every request in one way, and counts them.
func receiver(t *testing.T, answer http.HandlerFunc) (address string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

func TestHTTPSaysWhichRunItIsOf(t *testing.T) {
	t.Parallel()
	var header http.Header
	var body, method, path string
	address, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		header, body, method, path = r.Header, string(text), r.Method, r.URL.RequestURI()
		_, _ = io.WriteString(w, `{"sent": 3}`)
	})
	s := begin(t, builtin.Config{HTTPAllow: origins(t, address+"/hooks")})
	run := posting(address + "/hooks/new?x=1")
	r := s.attempt(run)
	require.Equal(t, durable.Succeeded, r.State, reason(r))
	require.JSONEq(t, `{"sent":3}`, string(r.Result))
	require.Equal(t, []string{http.MethodPost, "/hooks/new?x=1", `{"n":1}`}, []string{method, path, body})
	require.Equal(t, run.ID.String(), header.Get("Idempotency-Key"))
	require.Equal(t, run.ID.String(), header.Get("Durable-Run-Id"))
	require.Equal(t, "1", header.Get("Durable-Attempt"))
	require.NotEmpty(t, header.Get("Durable-Fence"))
	require.Equal(t, "application/json", header.Get("Content-Type"))
	require.Regexp(t, "^00-"+strings.ReplaceAll(run.ID.String(), "-", "")+"-[0-9a-f]{16}-00$", header.Get("Traceparent"))
	require.Empty(t, header.Get("Accept-Encoding"), "nothing is unpacked")
}

func TestHTTPJudgesByTheStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		header map[string]string
		state  durable.State
		after  time.Duration // of a retry; the policy of these tests says an hour
	}{
		"200":                                {200, nil, durable.Succeeded, 0},
		"202":                                {202, nil, durable.Succeeded, 0},
		"204":                                {204, nil, durable.Succeeded, 0},
		"400":                                {400, nil, durable.Dead, 0},
		"401":                                {401, nil, durable.Dead, 0},
		"404 with a wish":                    {404, map[string]string{"Retry-After": "5"}, durable.Dead, 0},
		"410":                                {410, nil, durable.Dead, 0},
		"304":                                {304, nil, durable.Dead, 0},
		"408":                                {408, nil, durable.Pending, time.Hour},
		"425":                                {425, nil, durable.Pending, time.Hour},
		"429":                                {429, nil, durable.Pending, time.Hour},
		"500":                                {500, nil, durable.Pending, time.Hour},
		"500 with a wish":                    {500, map[string]string{"Retry-After": "5"}, durable.Pending, time.Hour},
		"503":                                {503, nil, durable.Pending, time.Hour},
		"429 in seconds":                     {429, map[string]string{"Retry-After": "70"}, durable.Pending, 70 * time.Second},
		"503 at an instant":                  {503, map[string]string{"Date": "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:30:00 GMT"}, durable.Pending, 2 * time.Minute},
		"503 forever":                        {503, map[string]string{"Retry-After": "9223372036854775807"}, durable.Pending, 24 * time.Hour},
		"503 with a wish that is no number":  {503, map[string]string{"Retry-After": "-5"}, durable.Pending, time.Hour},
		"503 with a wish that is too large":  {503, map[string]string{"Retry-After": "99999999999999999999"}, durable.Pending, time.Hour},
		"503 with a wish that is not a date": {503, map[string]string{"Retry-After": "soon"}, durable.Pending, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, asked := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range c.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				if c.status != http.StatusNoContent && c.status != http.StatusNotModified {
					_, _ = io.WriteString(w, "the disk is full\x00\xff")
				}
			})
			s := begin(t, builtin.Config{HTTPAllow: origins(t, address)})
			r := s.attempt(posting(address + "/?token=canary"))
			require.Equal(t, c.state, r.State, reason(r))
			require.NotContains(t, reason(r), "canary")
			require.EqualValues(t, 1, asked.Load())
			if c.state != durable.Succeeded && c.status != http.StatusNotModified {
				require.Contains(t, reason(r), "the disk is full")
			}
			if c.state == durable.Pending && c.after != 0 {
				require.InDelta(t, c.after, after(r), float64(time.Second))
			}
			require.Empty(t, r.Result, "what is not JSON is no result")
		})
	}
}

func TestHTTPFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere, reached := receiver(t, func(http.ResponseWriter, *http.Request) {})
	for _, status := range []int{301, 302, 303, 307, 308} {
		address, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere+"/?k=canary", status) })
		s := begin(t, builtin.Config{HTTPAllow: origins(t, address+","+elsewhere)})
		r := s.attempt(posting(address))
		require.Equal(t, durable.Dead, r.State)
		require.Contains(t, reason(r), "redirects are not followed")
		require.Contains(t, reason(r), elsewhere)
		require.NotContains(t, reason(r), "canary")
	}
	require.Zero(t, reached.Load())
}

func TestHTTPReadsSoMuchAndNoMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func() io.Reader
		status int
		result bool
	}{
		"64 KiB of JSON":             {func() io.Reader { return strings.NewReader(`"` + strings.Repeat("x", 64<<10-2) + `"`) }, 200, true},
		"one byte more":              {func() io.Reader { return strings.NewReader(`"` + strings.Repeat("x", 64<<10-1) + `"`) }, 200, false},
		"an endless success":         {func() io.Reader { return endless{} }, 200, false},
		"an endless failure":         {func() io.Reader { return endless{} }, 500, false},
		"JSON that cannot be stored": {func() io.Reader { return strings.NewReader(`{"a":"\ud800"}`) }, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			address, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.Copy(w, c.answer())
				close(gone)
			})
			s := begin(t, builtin.Config{HTTPAllow: origins(t, address)})
			r := s.attempt(posting(address))
			require.Equal(t, c.status == 200, r.State == durable.Succeeded, reason(r))
			require.Equal(t, c.result, len(r.Result) > 0)
			require.Less(t, len(reason(r)), 4<<10)
			<-gone // the connection was closed, or all was read
		})
	}
}

// endless is an answer that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte("x"), len(p)))
	return len(p), nil
}

func TestHTTPGivesUpWhenTheTimeIsOver(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}, 2), make(chan struct{}, 2)
	address, _ := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	s := begin(t, builtin.Config{HTTPAllow: origins(t, address)})
	r := s.attempt(posting(address, durable.Timeout(4*time.Second)))
	require.Equal(t, durable.Pending, r.State)
	require.Equal(t, store.Failure, r.Attempts[0].Outcome)
	<-arrived
	<-gone

	run := posting(address)
	_, err := s.store.Enqueue(t.Context(), run)
	require.NoError(t, err)
	<-arrived
	require.NoError(t, s.stop())
	<-gone
	r = s.until(run.ID, func(r durable.Record) bool { return r.State == durable.Pending })
	require.Empty(t, r.Attempts, "a drain hands it back")
	require.Zero(t, r.Attempt)
}

func TestHTTPTriesAgainWhenNoServerAnswers(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	address := closed.URL
	closed.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer broken.Close()
	for _, url := range []string{address, broken.URL, "http://durable.invalid"} {
		s := begin(t, builtin.Config{HTTPAllow: origins(t, url)})
		r := s.attempt(posting(url + "/?token=canary"))
		require.Equal(t, durable.Pending, r.State, reason(r))
		require.Contains(t, reason(r), url)
		require.NotContains(t, reason(r), "canary")
	}
}

func TestHTTPIsRefusedUnlessItIsAllowed(t *testing.T) {
	t.Parallel()
	address, asked := receiver(t, func(http.ResponseWriter, *http.Request) {})
	s := begin(t, builtin.Config{HTTPHint: "DURABLE_HTTP_JOB_ALLOW"})
	r := s.attempt(posting(address))
	require.Equal(t, durable.Dead, r.State)
	require.Equal(t, "the job http is not allowed on this worker: DURABLE_HTTP_JOB_ALLOW is not set", reason(r))

	s = begin(t, builtin.Config{HTTPHint: "DURABLE_HTTP_JOB_ALLOW", HTTPAllow: origins(t, address+"/hooks")})
	for _, path := range []string{"/", "/hooksters", "/hooks/../admin", "/hooks/%2e%2e/admin"} {
		r = s.attempt(posting(address + path + "?token=canary"))
		require.Equal(t, durable.Dead, r.State)
		require.Equal(t, 1, r.Attempt)
		require.NotContains(t, reason(r), "canary")
	}
	require.Contains(t, reason(s.attempt(posting(address+"/"))), "nothing in DURABLE_HTTP_JOB_ALLOW covers it")
	require.Contains(t, reason(s.attempt(posting("http://u:canary@"+strings.TrimPrefix(address, "http://")+"/hooks"))), "a user in the URL")
	require.Zero(t, asked.Load())
}

// A name that the list has, with an address that it does not: what a name
// resolves to is decided by others.
func TestHTTPRefusesANameOfTheMachineItself(t *testing.T) {
	t.Parallel()
	address, asked := receiver(t, func(http.ResponseWriter, *http.Request) {})
	at, err := url.Parse(address)
	require.NoError(t, err)
	// It is not how the list writes it, and has the same address.
	_, err = builtin.Dial(t.Context(), "tcp", "LOCALHOST:"+at.Port())
	require.ErrorContains(t, err, "of the machine itself, which is refused unless the list says the address itself")
	require.Zero(t, asked.Load())

	s := begin(t, builtin.Config{HTTPAllow: origins(t, "http://localhost:"+at.Port()+","+address)})
	require.Equal(t, durable.Succeeded, s.attempt(posting("http://localhost:"+at.Port())).State)
	require.Equal(t, durable.Succeeded, s.attempt(posting(address)).State)
}

func TestSleepIsBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Hour, builtin.Sleep().New(builtin.SleepArgs{}).Timeout)
}

// A run passes on the trace that it was enqueued with, unless the worker has a span.
func TestHTTPPassesTheTraceOn(t *testing.T) {
	t.Parallel()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	const span = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01"
	headers := make(chan http.Header, 1)
	address, _ := receiver(t, func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header })
	passed := func(config builtin.Config, trace string) []string {
		config.HTTPAllow = origins(t, address)
		s := begin(t, config)
		run := posting(address)
		run.Trace = trace
		r := s.attempt(run)
		require.Equal(t, durable.Succeeded, r.State, reason(r))
		header := <-headers
		return []string{header.Get("Traceparent"), header.Get("Tracestate")}
	}
	require.Equal(t, []string{trace, ""}, passed(builtin.Config{}, trace))
	require.Equal(t, []string{trace, "vendor=1"}, passed(builtin.Config{}, trace+";vendor=1"))
	require.Regexp(t, "-00$", passed(builtin.Config{}, "none of the W3C's")[0])
	require.Equal(t, []string{span, ""}, passed(builtin.Config{Trace: func(_ context.Context, h http.Header) { h.Set("Traceparent", span) }}, trace+";vendor=1"))
	require.Equal(t, []string{trace, ""}, passed(builtin.Config{Trace: func(context.Context, http.Header) {}}, trace))
}
