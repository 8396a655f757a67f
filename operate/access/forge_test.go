package access_test

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
)

// stretched is the derivation of a session's key: what is public about it. Each guess of a
// forger costs this much, so the test makes each key once.
var stretched = func() func(secret, salt string) []byte {
	var mu sync.Mutex
	known := map[string][]byte{}
	return func(secret, salt string) []byte {
		mu.Lock()
		defer mu.Unlock()
		at := secret + "\x00" + salt
		if known[at] == nil {
			known[at], _ = pbkdf2.Key(sha256.New, secret, []byte(salt), 600_000, sha256.Size)
		}
		return known[at]
	}
}()

// forgeries are the cookies that a client can make that knows some secrets, and the source of
// this program: each key that follows from them, under each text that a session has or had.
func forgeries(knows ...string) (cookies []string) {
	keys := [][]byte{}
	for _, one := range knows {
		sum := sha256.Sum256([]byte(one))
		keys = append(keys, []byte(one), sum[:])
		for _, salt := range []string{"viewer", "operator"} {
			keys = append(keys, stretched(one, "durable session key, version 2, "+salt))
		}
		for _, other := range knows { // version 1: a key of both tokens
			mac, sum2 := hmac.New(sha256.New, []byte("durable session key, version 1")), sha256.Sum256([]byte(other))
			_, _ = mac.Write(sum[:])
			_, _ = mac.Write(sum2[:])
			keys = append(keys, mac.Sum(nil))
		}
	}
	until := time.Now().Add(10 * 365 * 24 * time.Hour).Unix()
	for _, said := range []string{`{"n":"mallory","r":2,"u":%d}`, `{"n":"mallory","u":%d,"i":"bWFsbG9yeQ"}`, `{"n":"mallory","r":2,"u":%d,"i":"bWFsbG9yeQ"}`} {
		text := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, said, until))
		for _, key := range keys {
			mac := hmac.New(sha256.New, key)
			_, _ = mac.Write([]byte(text))
			cookies = append(cookies, "durable_session="+text+"."+base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
		}
		cookies = append(cookies, "durable_session="+text+".", "durable_session="+text)
	}
	return cookies
}

// TestNoGreaterRoleIsForged tries, on each way to configure who gets in, every session
// that follows from what is public and from a token that the forger has.
func TestNoGreaterRoleIsForged(t *testing.T) {
	t.Parallel()
	public := []string{"", "operator", "viewer", "durable session key, version 1", "durable"}
	for _, c := range []struct {
		name string
		auth access.Auth
		has  string      // the forger's own token
		role access.Role // what it makes him
	}{
		{"no token, no proxy", access.Loopback(), "", 0},
		{"a viewer's token, which he lacks", access.Tokens("", viewerToken), "", 0},
		{"a viewer's token alone", access.Tokens("", viewerToken), viewerToken, access.Viewer},
		{"an operator's token, which he lacks", access.Tokens(operatorToken, ""), "", 0},
		{"both tokens, none of which he has", access.Tokens(operatorToken, viewerToken), "", 0},
		{"both tokens, and the viewer's is his", access.Tokens(operatorToken, viewerToken), viewerToken, access.Viewer},
		{"a proxy", proxyAuth(), "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, seen, _ := guarded(t, access.Config{Auth: c.auth, Login: true})
			made := 0
			for _, cookie := range forgeries(append(public, c.has)...) {
				for _, more := range [][]string{nil, {"X-Forwarded-User", "ann", "X-Forwarded-Groups", "ops"}} {
					headers := append([]string{"Cookie", cookie, "Sec-Fetch-Site", "same-origin"}, more...)
					require.NotEqual(t, 200, do(h, request("POST", "/", "192.0.2.7:1", headers...)).Code, cookie)
					if do(h, request("GET", "/", "192.0.2.7:1", headers...)).Code == 200 {
						require.Equal(t, access.Viewer, seen.who.Role, cookie)
						made++
					}
				}
			}
			require.Equal(t, c.role != 0, made > 0, "%d sessions of his own role: the derivation in this test is the program's", made)
		})
	}
}

// TestAViewersCookieSaysNothingOfTheOperatorsToken logs in with one viewer's token beside
// different operators' tokens: a cookie that one program signed is valid in the other, so
// the operator's token has no part in it.
func TestAViewersCookieSaysNothingOfTheOperatorsToken(t *testing.T) {
	t.Parallel()
	one, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, viewerToken), Login: true})
	cookie := do(one, form(url.Values{"token": {viewerToken}})).Result().Cookies()[0]
	for _, operator := range []string{"", "another-" + operatorToken} {
		other, seen, _ := guarded(t, access.Config{Auth: access.Tokens(operator, viewerToken), Login: true})
		require.Equal(t, 200, do(other, request("GET", "/", "192.0.2.7:1", "Cookie", cookie.Name+"="+cookie.Value)).Code)
		require.Equal(t, access.Viewer, seen.who.Role)
	}
	text, _, _ := strings.Cut(cookie.Value, ".")
	said, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	require.NotContains(t, string(said), `"r"`, "a session's role is that of the key which signed it")
}
