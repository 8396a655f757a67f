package access_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
)

// ways are those in which a client may give a token: each sends one from an address.
var ways = map[string]func(h http.Handler, token, remote string) int{
	"bearer": func(h http.Handler, token, remote string) int {
		return do(h, request("GET", "/", remote, bearer(token)...)).Code
	},
	"password": func(h http.Handler, token, remote string) int {
		r := request("GET", "/", remote)
		r.SetBasicAuth("ann", token)
		return do(h, r).Code
	},
	"form": func(h http.Handler, token, remote string) int {
		r := form(url.Values{"token": {token}})
		r.RemoteAddr = remote
		if code := do(h, r).Code; code != http.StatusSeeOther {
			return code
		}
		return http.StatusOK
	},
}

// TestGuessesAreCountedWhereverTheyAreMade guesses in one way and asks in each.
func TestGuessesAreCountedWhereverTheyAreMade(t *testing.T) {
	t.Parallel()
	for guessing, guess := range ways {
		t.Run(guessing, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				auth := access.Tokens(operatorToken, viewerToken)
				h, _, log := guarded(t, access.Config{Auth: auth, Login: true})
				other, _, _ := guarded(t, access.Config{Auth: auth, Login: true})
				const guesser, honest = "192.0.2.7:1", "192.0.2.8:1"
				for i := range 5 {
					require.Equal(t, 401, guess(h, fmt.Sprintf("guess-%016d", i), guesser))
				}
				<-time.After(time.Second) // the log has one refusal a second
				for asking, ask := range ways {
					for _, one := range []http.Handler{h, other} {
						require.Equal(t, 429, guess(one, "guess-of-another-kind", guesser))
						require.Equal(t, 429, ask(one, operatorToken, guesser), "%s: for the right one, too, or it would be known", asking)
						require.Equal(t, 429, ask(one, viewerToken, guesser))
						require.Equal(t, 401, ask(one, "guess-0000000000000000", guesser), "what is known to be wrong says nothing new")
						require.Equal(t, 200, ask(one, operatorToken, honest), "others are not kept out")
					}
				}
				require.Contains(t, log.String(), "too many guesses")
				<-time.After(time.Minute)
				require.Equal(t, 200, guess(h, operatorToken, guesser))
			})
		})
	}
}

// TestWhatAGuesserIsAnsweredDoesNotDependOnTheGuess sends right and wrong tokens, new and
// repeated, from a network that has used up its guesses.
func TestWhatAGuesserIsAnsweredDoesNotDependOnTheGuess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, viewerToken)})
		for i := range 5 {
			require.Equal(t, 401, ways["bearer"](h, fmt.Sprintf("guess-%016d", i), "192.0.2.7:1"))
		}
		for range 100 {
			for _, token := range []string{operatorToken, viewerToken, "wrong-0123456789abcdef", "wrong-again-0123456789"} {
				require.Equal(t, 429, ways["bearer"](h, token, "192.0.2.7:1"), token)
			}
		}
	})
}

// TestAProgramWithAnOldTokenKeepsNoOthersOut repeats old tokens where right ones come from the
// same network, as behind a proxy.
func TestAProgramWithAnOldTokenKeepsNoOthersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, viewerToken), Login: true})
		cookie := do(h, form(url.Values{"token": {viewerToken}})).Result().Cookies()[0]
		const shared = "198.51.100.1:1"
		for range 1000 {
			for _, old := range []string{"old-0123456789abcdef", "older-0123456789abcdef"} {
				require.Equal(t, 401, ways["bearer"](h, old, shared))
			}
		}
		require.Equal(t, 200, ways["bearer"](h, operatorToken, shared))
		for i := range 57 {
			ways["bearer"](h, fmt.Sprintf("scan-%016d", i), shared)
			require.Equal(t, 200, ways["bearer"](h, operatorToken, shared), "it has been right from there")
			require.Equal(t, 200, ways["form"](h, operatorToken, shared))
		}
		require.Equal(t, 429, ways["bearer"](h, viewerToken, shared), "this one has not")
		ways["bearer"](h, "scan-of-another-kind", shared)
		require.Equal(t, 429, ways["bearer"](h, operatorToken, shared), "guessing has an end even where the right one is known")
		require.Equal(t, 200, do(h, request("GET", "/", shared, "Cookie", cookie.Name+"="+cookie.Value)).Code, "a session is no guess")
	})
}

// TestGuessesFromEverywhereAreBounded has an IPv6 network of many guess, and asks from where
// a token has been right before, and from where none has.
func TestGuessesFromEverywhereAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, viewerToken), Login: true})
		require.Equal(t, 200, ways["bearer"](h, viewerToken, "192.0.2.8:1"))
		answered := 0
		for network := range 1000 {
			for guess := range 5 {
				if ways["bearer"](h, fmt.Sprintf("guess-%d-%016d", network, guess), fmt.Sprintf("[2001:db8:0:%x::%x]:1", network, guess+1)) == 401 {
					answered++
				}
			}
		}
		require.Equal(t, 100, answered, "in a minute, of all networks")
		require.Equal(t, 200, ways["bearer"](h, viewerToken, "192.0.2.8:1"))
		require.Equal(t, 200, ways["form"](h, operatorToken, "192.0.2.8:1"), "a network that has been right once")
		require.Equal(t, 429, ways["bearer"](h, viewerToken, "192.0.2.9:1"))
		<-time.After(time.Minute)
		require.Equal(t, 200, ways["bearer"](h, viewerToken, "192.0.2.9:1"))
	})
}

// TestTheProxysSecretIsNotGuessed guesses it past the proxy, and from the proxy's address.
func TestTheProxysSecretIsNotGuessed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := guarded(t, access.Config{Auth: proxyAuth()})
		send := func(secret, remote string) int {
			return do(h, request("GET", "/", remote, "X-Durable-Proxy", secret, "X-Forwarded-User", "bob")).Code
		}
		require.Equal(t, 200, send(proxySecret, "192.0.2.1:1"))
		for i := range 5 {
			require.Equal(t, 401, send(fmt.Sprintf("guess-%016d", i), "192.0.2.7:1"))
		}
		require.Equal(t, 429, send("guess-of-another-kind", "192.0.2.7:1"))
		require.Equal(t, 429, send(proxySecret, "192.0.2.7:1"))
		for i := range 1000 {
			send(fmt.Sprintf("guess-%016d", i), "192.0.2.1:1")
		}
		require.Equal(t, 200, send(proxySecret, "192.0.2.1:1"), "people who come through the proxy are not kept out")
	})
}
