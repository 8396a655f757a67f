package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/operate/dashboard"
)

// process is the pages and the API of one process, as durable-worker serves them.
func process(t *testing.T, db engine) http.Handler {
	t.Helper()
	op := operate.New(db, operate.Config{Locks: db.Locks()})
	t.Cleanup(op.Close)
	auth := access.Tokens("operator-0123456789abcdef", "viewer-0123456789abcdef")
	pages, err := dashboard.New(op, dashboard.Config{Auth: auth})
	require.NoError(t, err)
	v1, err := api.New(op, api.Config{Auth: auth})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", http.StripPrefix("/api/v1", v1))
	mux.Handle("/", pages)
	return mux
}

func ask(h http.Handler, method, path, cookie string, values url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://ops.example"+path, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestALogoutEndsTheSessionEverywhere logs in at one process of several with one store,
// keeps a copy of the cookie, and logs out.
func TestALogoutEndsTheSessionEverywhere(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		here, there := process(t, db), process(t, db)
		w := ask(here, "POST", "/login", "", url.Values{"token": {"viewer-0123456789abcdef"}, "name": {"ann"}})
		require.Equal(t, 303, w.Code, w.Body)
		cookie := w.Result().Cookies()[0].Name + "=" + w.Result().Cookies()[0].Value
		for _, h := range []http.Handler{here, there} {
			require.Equal(t, 200, ask(h, "GET", "/queues", cookie, nil).Code)
			require.Equal(t, 200, ask(h, "GET", "/api/v1/queues", cookie, nil).Code)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		streams := make(chan string, 2)
		for _, path := range []string{"/live", "/api/v1/events"} {
			go func() {
				r := httptest.NewRequestWithContext(ctx, "GET", "http://ops.example"+path, nil)
				r.Header.Set("Cookie", cookie)
				there.ServeHTTP(httptest.NewRecorder(), r)
				streams <- path
			}()
		}
		require.Equal(t, 303, ask(here, "POST", "/logout", cookie, nil).Code)
		require.Equal(t, 303, ask(here, "GET", "/queues", cookie, nil).Code, "to the login, immediately")
		require.Equal(t, 401, ask(here, "GET", "/api/v1/queues", cookie, nil).Code)
		require.Eventually(t, func() bool {
			return ask(there, "GET", "/queues", cookie, nil).Code == 303 && ask(there, "GET", "/api/v1/queues", cookie, nil).Code == 401
		}, time.Minute, 50*time.Millisecond, "what another process knows is at most a second old")
		<-streams
		<-streams
		require.NoError(t, ctx.Err(), "they have ended by themselves")
		restarted := process(t, db)
		require.Equal(t, 303, ask(restarted, "GET", "/queues", cookie, nil).Code)
		require.Contains(t, ask(restarted, "GET", "/queues", cookie, nil).Header().Get("Location"), "ended=true")
		w = ask(here, "POST", "/login", "", url.Values{"token": {"operator-0123456789abcdef"}, "name": {"bob"}})
		other := w.Result().Cookies()[0].Name + "=" + w.Result().Cookies()[0].Value
		body := ask(here, "GET", "/audit?kind=session", other, nil).Body.String()
		has(t, body, "ann@192.0.2.1 (session)", "end")
	})
}
