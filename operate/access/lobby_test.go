package access_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
)

// slowly is a body that has begun to arrive, and does not go on until its test ends.
func slowly(t *testing.T) io.Reader {
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	return io.MultiReader(bytes.NewReader([]byte("token=")), readerFunc(func([]byte) (int, error) {
		<-ctx.Done()
		return 0, io.ErrUnexpectedEOF
	}))
}

type readerFunc func(into []byte) (int, error)

func (f readerFunc) Read(into []byte) (int, error) { return f(into) }

// TestSlowLoginsTakeThePagesFromNoOthers has many clients send the login form slowly, from one
// network and from many, and asks for what others ask for.
func TestSlowLoginsTakeThePagesFromNoOthers(t *testing.T) {
	t.Parallel()
	for name, networks := range map[string]int{"one network": 1, "many networks": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, viewerToken), Login: true, Open: []string{"/assets/"}})
				cookie := loggedIn(t, h, viewerToken)
				ended := make(chan struct{}, 200)
				for i := range 200 {
					r := httptest.NewRequest(http.MethodPost, "http://localhost/login", slowly(t))
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1", i%networks)
					go func() { do(h, r); ended <- struct{}{} }()
				}
				synctest.Wait()
				for range 100 {
					require.Equal(t, 200, read(h, cookie))
					require.Equal(t, 200, do(h, request("POST", "/", "192.0.2.7:1", bearer(operatorToken)...)).Code)
					require.Equal(t, 200, do(h, request("GET", "/assets/a.css", "192.0.2.7:1", "Cookie", cookie)).Code, "the style of a page")
				}
				if networks == 1 {
					require.Equal(t, 200, do(h, request("GET", "/login", "192.0.2.7:1")).Code)
					require.Equal(t, 303, do(h, form(url.Values{"token": {operatorToken}})).Code, "people of other networks log in")
				}
				r := form(url.Values{"token": {operatorToken}})
				r.RemoteAddr = "198.51.100.0:1"
				require.Equal(t, 503, do(h, r).Code)
				for range 192 - 24*min(1, networks-1) { // those who have no place are sent away after a second
					<-ended
				}
			})
		})
	}
}

// TestAStrangerHasSeconds sends a form slowly to a real server.
func TestAStrangerHasSeconds(t *testing.T) {
	t.Parallel()
	h, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, ""), Login: true})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := access.Server(h, slog.New(slog.DiscardHandler))
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	_, err = conn.Write([]byte("POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken="))
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "408 Request Timeout")
	require.Contains(t, string(answer), "The form did not arrive within 5s.")
	require.NoError(t, conn.Close())
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
}

// TestAnAuthThatIsSlowIsAskedBySomeAtATime has a function of yours hang for one network.
func TestAnAuthThatIsSlowIsAskedBySomeAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		h, _, _ := guarded(t, access.Config{Auth: access.Func(func(r *http.Request) (access.Who, error) {
			if r.RemoteAddr != "192.0.2.7:1" {
				<-hang
				return access.Who{}, access.ErrNoCredentials
			}
			return access.Who{Name: "ann", Role: access.Operator}, nil
		})})
		done := make(chan int)
		for range 200 {
			go func() { done <- do(h, request("GET", "/", "198.51.100.1:1")).Code }()
		}
		synctest.Wait()
		require.Equal(t, 200, do(h, request("POST", "/", "192.0.2.7:1")).Code)
		for range 168 {
			require.Equal(t, 503, <-done)
		}
		close(hang)
		for range 32 {
			require.Equal(t, 401, <-done)
		}
	})
}
