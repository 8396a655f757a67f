package access_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
)

// shelf keeps ended sessions for several processes.
type shelf struct {
	ended map[string]string // by whom
	fault error
}

func (s *shelf) EndSession(_ context.Context, session, by string) error {
	if s.fault == nil {
		s.ended[session] = by
	}
	return s.fault
}

func (s *shelf) SessionEnded(_ context.Context, session string) (bool, error) {
	_, ended := s.ended[session]
	return ended, s.fault
}

// loggedIn is the cookie of a new session, as the header that a browser sends.
func loggedIn(t *testing.T, h http.Handler, token string) string {
	t.Helper()
	w := do(h, form(url.Values{"token": {token}, "name": {"ann"}}, "Origin", "http://localhost"))
	require.Equal(t, 303, w.Code)
	return w.Result().Cookies()[0].Name + "=" + w.Result().Cookies()[0].Value
}

func logout(h http.Handler, cookie string) int {
	return do(h, request("POST", "/logout", "192.0.2.7:1", "Cookie", cookie, "Sec-Fetch-Site", "same-origin")).Code
}

func read(h http.Handler, cookie string) int {
	return do(h, request("GET", "/", "192.0.2.7:1", "Cookie", cookie)).Code
}

func TestACopyOfACookieIsWorthNothingAfterLogout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, viewerToken), Login: true})
		one, another := loggedIn(t, h, viewerToken), loggedIn(t, h, viewerToken)
		require.Equal(t, 200, read(h, one))
		require.Equal(t, 303, logout(h, one))
		require.Equal(t, 401, read(h, one))
		require.Equal(t, 303, logout(h, one), "again")
		require.Equal(t, 200, read(h, another), "it is another session")
		require.Equal(t, 303, logout(h, "durable_session=x"))
		<-time.After(13 * time.Hour)
		require.Equal(t, 401, read(h, one))
	})
}

func TestALogoutCountsInEveryProcess(t *testing.T) {
	t.Parallel()
	kept := &shelf{ended: map[string]string{}}
	config := func() access.Config {
		return access.Config{Auth: access.Tokens(operatorToken, viewerToken), Login: true, Sessions: kept}
	}
	here, _, _ := guarded(t, config())
	there, _, _ := guarded(t, config())
	cookie := loggedIn(t, here, viewerToken)
	require.Equal(t, 200, read(there, cookie), "the other process has the same tokens")
	require.Equal(t, 303, logout(here, cookie))
	require.Equal(t, 401, read(here, cookie))
	require.Equal(t, 401, read(there, cookie))
	require.Len(t, kept.ended, 1)
	for _, by := range kept.ended {
		require.Equal(t, "ann@192.0.2.7 (session)", by)
	}

	third, seen, log := guarded(t, config())
	next := loggedIn(t, here, operatorToken)
	kept.fault = errors.New("the database canary is down")
	w := do(third, request("GET", "/", "192.0.2.7:1", "Cookie", next))
	require.Equal(t, 503, w.Code, "nobody is let in whose session may have ended")
	require.NotContains(t, w.Body.String(), "canary")
	require.Contains(t, log.String(), "canary")
	require.Zero(t, seen.count)
	w = do(here, request("POST", "/logout", "192.0.2.7:1", "Cookie", next, "Sec-Fetch-Site", "same-origin"))
	require.Equal(t, 503, w.Code)
	require.Negative(t, w.Result().Cookies()[0].MaxAge, "the browser forgets it in any case")
	require.Contains(t, w.Body.String(), "Anyone who has a copy of its cookie can use it until")
	kept.fault = nil
	require.Equal(t, 200, read(there, next), "it has not ended, and the answer has said so")
}

// TestAnAnswerThatLastsLearnsOfTheLogout asks from within an answer.
func TestAnAnswerThatLastsLearnsOfTheLogout(t *testing.T) {
	t.Parallel()
	kept := &shelf{ended: map[string]string{}}
	begun, asks := make(chan struct{}), make(chan struct{})
	h, err := access.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access.Release(r.Context())
		if access.Ended(r.Context()) {
			w.WriteHeader(http.StatusTeapot)
		}
		begun <- struct{}{}
		<-asks
		if !access.Ended(r.Context()) {
			w.WriteHeader(http.StatusTeapot)
		}
	}), access.Config{Auth: access.Tokens(operatorToken, ""), Login: true, Sessions: kept})
	require.NoError(t, err)
	cookie, done := loggedIn(t, h, operatorToken), make(chan int)
	go func() { done <- read(h, cookie) }()
	<-begun
	require.Equal(t, 303, logout(h, cookie))
	close(asks)
	require.Equal(t, 200, <-done)
	require.False(t, access.Ended(t.Context()), "outside of a request")
}
