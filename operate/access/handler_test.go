package access_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
)

const (
	operatorToken = "operator-0123456789abcdef"
	viewerToken   = "viewer-0123456789abcdef"
	proxySecret   = "proxy-0123456789abcdef"
)

// asked is what the inner handler has seen.
type asked struct {
	who   access.Who
	count int
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.who = access.WhoFrom(r.Context())
	a.count++
	_, _ = w.Write([]byte("inner"))
}

// guarded is a handler before an inner one that notes who asks, and its log.
func guarded(t *testing.T, config access.Config) (http.Handler, *asked, *bytes.Buffer) {
	t.Helper()
	seen, log := &asked{}, &bytes.Buffer{}
	config.Logger = slog.New(slog.NewTextHandler(log, nil))
	h, err := access.Handler(seen, config)
	require.NoError(t, err)
	return h, seen, log
}

// request is a request from a place, with headers as name, value, name, value.
func request(method, target, remote string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = remote
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

func proxyAuth() access.Auth {
	return access.Proxy(access.ProxyConfig{User: "X-Forwarded-User", Groups: "X-Forwarded-Groups", Operators: []string{"ann", "devs"}, OperatorGroups: []string{"ops", "bob"},
		SecretHeader: "X-Durable-Proxy", Secret: proxySecret})
}

func TestAHandlerNeedsAnAuthThatKeepsPeopleOut(t *testing.T) {
	t.Parallel()
	for name, auth := range map[string]access.Auth{
		"no Auth":                 nil,
		"no token":                access.Tokens("", ""),
		"fewer than 16":           access.Tokens("short", ""),
		"the viewer's token has":  access.Tokens(operatorToken, "short"),
		"have the same token":     access.Tokens(operatorToken, operatorToken),
		"the names of the header": access.Proxy(access.ProxyConfig{Secret: proxySecret}),
		"groups of operators":     access.Proxy(access.ProxyConfig{User: "X-User", SecretHeader: "X-Secret", Secret: proxySecret, OperatorGroups: []string{"ops"}}),
		"the proxy's secret has":  access.Proxy(access.ProxyConfig{User: "X-User", SecretHeader: "X-Secret", Secret: "short"}),
	} {
		_, err := access.Handler(&asked{}, access.Config{Auth: auth})
		require.ErrorContains(t, err, name)
	}
}

// TestWhoGetsIn is the table of credentials, methods, hosts and origins.
func TestWhoGetsIn(t *testing.T) {
	t.Parallel()
	const here, there = "127.0.0.1:4711", "192.0.2.7:4711"
	secret := []string{"X-Durable-Proxy", proxySecret}
	tokens := access.Config{Auth: access.Tokens(operatorToken, viewerToken)}
	narrowed := access.Config{Auth: tokens.Auth, Hosts: []string{"durable.example.com"}}
	loopback, proxy := access.Config{Auth: access.Loopback()}, access.Config{Auth: proxyAuth()}
	cases := []struct {
		name    string
		config  access.Config
		method  string
		remote  string
		headers []string
		status  int
		actor   string
	}{
		{"nothing", tokens, "GET", here, nil, 401, ""},
		{"wrong token", tokens, "GET", here, bearer("viewer-0123456789abcdeg"), 401, ""},
		{"no token", tokens, "GET", here, bearer(""), 401, ""},
		{"two headers", tokens, "GET", here, append(bearer(operatorToken), bearer(viewerToken)...), 401, ""},
		{"another scheme", tokens, "GET", here, []string{"Authorization", "Digest " + operatorToken}, 401, ""},
		{"viewer reads", tokens, "GET", there, bearer(viewerToken), 200, "viewer@192.0.2.7 (token)"},
		{"viewer heads", tokens, "HEAD", there, bearer(viewerToken), 200, "viewer@192.0.2.7 (token)"},
		{"viewer posts", tokens, "POST", there, bearer(viewerToken), 403, ""},
		{"viewer puts", tokens, "PUT", there, bearer(viewerToken), 403, ""},
		{"viewer deletes", tokens, "DELETE", there, bearer(viewerToken), 403, ""},
		{"viewer patches", tokens, "PATCH", there, bearer(viewerToken), 403, ""},
		{"viewer invents a method", tokens, "BREW", there, bearer(viewerToken), 403, ""},
		{"viewer overrides the method", tokens, "POST", there, append(bearer(viewerToken), "X-Http-Method-Override", "GET"), 403, ""},
		{"operator posts", tokens, "POST", there, bearer(operatorToken), 200, "operator@192.0.2.7 (token)"},
		{"password", tokens, "POST", there, []string{"Authorization", "Basic YW5uOm9wZXJhdG9yLTAxMjM0NTY3ODlhYmNkZWY="}, 200, "ann@192.0.2.7 (token)"},
		{"a cookie that no one signed", tokens, "GET", there, []string{"Cookie", "durable_session=eyJuIjoiYSIsInIiOjIsInUiOjk5OTk5OTk5OTl9.x"}, 401, ""},
		{"any host", tokens, "GET", there, append(bearer(viewerToken), "Host", "evil.example"), 200, "viewer@192.0.2.7 (token)"},
		{"own host", narrowed, "GET", there, append(bearer(viewerToken), "Host", "Durable.Example.com:8443"), 200, "viewer@192.0.2.7 (token)"},
		{"other host", narrowed, "GET", there, append(bearer(viewerToken), "Host", "evil.example"), 421, ""},
		{"other host ending alike", narrowed, "GET", there, append(bearer(viewerToken), "Host", "xdurable.example.com"), 421, ""},

		{"same origin", tokens, "POST", there, append(bearer(operatorToken), "Sec-Fetch-Site", "same-origin"), 200, "operator@192.0.2.7 (token)"},
		{"same site", tokens, "POST", there, append(bearer(operatorToken), "Sec-Fetch-Site", "same-site"), 403, ""},
		{"cross site", tokens, "POST", there, append(bearer(operatorToken), "Sec-Fetch-Site", "cross-site"), 403, ""},
		{"evil origin", tokens, "POST", there, append(bearer(operatorToken), "Origin", "https://evil.example"), 403, ""},
		{"null origin", tokens, "DELETE", there, append(bearer(operatorToken), "Origin", "null"), 403, ""},
		{"own origin", tokens, "PUT", there, append(bearer(operatorToken), "Origin", "http://example.com"), 200, "operator@192.0.2.7 (token)"},
		{"cookie of unknown origin", proxy, "POST", there, append(secret, "X-Forwarded-User", "ann", "Cookie", "a=b"), 403, ""},

		{"from here", loopback, "POST", here, []string{"Host", "localhost:8081"}, 200, "local@127.0.0.1 (loopback)"},
		{"from here, IPv6", loopback, "POST", "[::1]:4711", []string{"Host", "[::1]:8081"}, 200, "local@::1 (loopback)"},
		{"from there", loopback, "GET", there, []string{"Host", "localhost"}, 401, ""},
		{"rebinding", loopback, "GET", here, []string{"Host", "evil.example:8081"}, 421, ""},
		{"rebinding to a name with localhost", loopback, "GET", here, []string{"Host", "localhost.evil.example"}, 421, ""},
		{"no host", loopback, "GET", here, []string{"Host", ""}, 421, ""},
		{"X-Forwarded-For", loopback, "GET", here, []string{"Host", "localhost", "X-Forwarded-For", "127.0.0.1"}, 401, ""},
		{"X-Forwarded-Anything", loopback, "GET", here, []string{"Host", "localhost", "X-Forwarded-Anything", ""}, 401, ""},
		{"Forwarded", loopback, "GET", here, []string{"Host", "localhost", "Forwarded", "for=127.0.0.1"}, 401, ""},
		{"Via", loopback, "GET", here, []string{"Host", "localhost", "Via", "1.1 x"}, 401, ""},

		{"past the proxy", proxy, "GET", here, []string{"X-Forwarded-User", "ann"}, 401, ""},
		{"wrong secret", proxy, "GET", here, []string{"X-Forwarded-User", "ann", "X-Durable-Proxy", "wrong"}, 401, ""},
		{"two secrets", proxy, "GET", here, append(secret, "X-Durable-Proxy", "wrong", "X-Forwarded-User", "ann"), 401, ""},
		{"no user", proxy, "GET", here, secret, 401, ""},
		{"two users", proxy, "GET", here, append(secret, "X-Forwarded-User", "bob", "X-Forwarded-User", "ann"), 401, ""},
		{"user", proxy, "GET", here, append(secret, "X-Forwarded-User", "bob"), 200, "bob@127.0.0.1 (proxy)"},
		{"user posts", proxy, "POST", here, append(secret, "X-Forwarded-User", "bob"), 403, ""},
		{"operator by name", proxy, "POST", here, append(secret, "X-Forwarded-User", "ann"), 200, "ann@127.0.0.1 (proxy)"},
		{"operator by group", proxy, "POST", here, append(secret, "X-Forwarded-User", "bob", "X-Forwarded-Groups", "dev, ops"), 200, "bob@127.0.0.1 (proxy)"},
		{"named as a group of operators", proxy, "POST", here, append(secret, "X-Forwarded-User", "ops"), 403, ""},
		{"in a group named as an operator", proxy, "POST", here, append(secret, "X-Forwarded-User", "eve", "X-Forwarded-Groups", "ann,devs"), 403, ""},
		{"other groups", proxy, "POST", here, append(secret, "X-Forwarded-User", "bob", "X-Forwarded-Groups", "dev,opsen"), 403, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, seen, log := guarded(t, c.config)
			w := do(h, request(c.method, "http://example.com/", c.remote, c.headers...))
			require.Equal(t, c.status, w.Code, w.Body)
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), "headers of every answer")
			require.Equal(t, "same-origin", w.Header().Get("Referrer-Policy"))
			require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'")
			if c.status == http.StatusOK {
				require.Equal(t, c.actor, seen.who.Actor())
				return
			}
			require.Zero(t, seen.count)
			require.Contains(t, log.String(), "request refused")
			for _, secret := range []string{operatorToken, viewerToken, proxySecret} {
				require.NotContains(t, log.String()+w.Body.String(), secret)
			}
		})
	}
}

func TestAFunctionOfYours(t *testing.T) {
	t.Parallel()
	who, fault := access.Who{Name: "ann\x1b[31m\u202e", Role: access.Operator, Way: "sso"}, error(nil)
	h, seen, log := guarded(t, access.Config{Auth: access.Func(func(*http.Request) (access.Who, error) { return who, fault })})
	require.Equal(t, 200, do(h, request("POST", "/", "192.0.2.7:1")).Code)
	require.Equal(t, "ann[31m@192.0.2.7 (sso)", seen.who.Actor())
	who.Role = 0
	require.Equal(t, 403, do(h, request("GET", "/", "192.0.2.7:1")).Code, "without a role nothing is allowed")
	who.Role, who.Until = access.Operator, time.Now().Add(-time.Second)
	require.Equal(t, 401, do(h, request("GET", "/", "192.0.2.7:1")).Code, "a session ends")
	log.Reset()
	who.Until, fault = time.Time{}, errors.New("ldap://canary is down")
	w := do(h, request("GET", "/", "192.0.2.7:1"))
	require.Equal(t, 401, w.Code)
	require.NotContains(t, w.Body.String(), "canary", "an error's text is for the log")
}

func TestAnActorFitsIntoTheAudit(t *testing.T) {
	t.Parallel()
	long := access.Who{Name: strings.Repeat("ü", 300), Way: strings.Repeat("w", 300), Address: strings.Repeat("9", 300)}
	require.LessOrEqual(t, len(long.Actor()), 256)
	require.True(t, strings.HasPrefix(long.Actor(), strings.Repeat("ü", 64)+"@"))
	require.Equal(t, "none", access.Who{Name: "\x00\n"}.Actor())
}

func TestLimits(t *testing.T) {
	t.Parallel()
	h, seen, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, ""), Media: "application/json"})
	send := func(target, body, media string) int {
		r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+operatorToken)
		r.Header.Set("Content-Type", media)
		return do(h, r).Code
	}
	require.Equal(t, 200, send("/?q="+strings.Repeat("x", 8000), "{}", "application/json; charset=utf-8"))
	require.Equal(t, 414, send("/?q="+strings.Repeat("x", 8190), "{}", "application/json"))
	require.Equal(t, 200, send("/", strings.Repeat(" ", 1<<20), "application/json"))
	require.Equal(t, 413, send("/", strings.Repeat(" ", 1<<20+1), "application/json"))
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json, text/plain", "application/jsonp"} {
		require.Equal(t, 415, send("/", "{}", media), media)
	}
	require.Equal(t, 200, send("/", "", ""), "without a body")
	require.Equal(t, 3, seen.count)
}

func TestSixtyFourRequestsConcurrently(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lasting" {
			access.Release(r.Context())
		}
		entered <- struct{}{}
		<-leave
	})
	h, err := access.Handler(inner, access.Config{Auth: access.Tokens(operatorToken, "")})
	require.NoError(t, err)
	done := make(chan int)
	ask := func(path string) {
		go func() { done <- do(h, request("GET", path, "192.0.2.7:1", bearer(operatorToken)...)).Code }()
		<-entered
	}
	for range 100 {
		ask("/lasting")
	}
	for range 64 {
		ask("/")
	}
	w := do(h, request("GET", "/", "192.0.2.7:1", bearer(operatorToken)...))
	require.Equal(t, 503, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	close(leave)
	for range 164 {
		require.Equal(t, 200, <-done)
	}
	go func() { <-entered }()
	require.Equal(t, 200, do(h, request("GET", "/", "192.0.2.7:1", bearer(operatorToken)...)).Code)
}

func TestAPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			_, _ = w.Write([]byte("half"))
		}
		panic("canary")
	})
	h, err := access.Handler(inner, access.Config{Auth: access.Tokens(operatorToken, ""), Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	w := do(h, request("GET", "/", "192.0.2.7:1", bearer(operatorToken)...))
	require.Equal(t, 500, w.Code)
	require.NotContains(t, w.Body.String(), "canary")
	require.Contains(t, log.String(), "canary")
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { do(h, request("GET", "/late", "192.0.2.7:1", bearer(operatorToken)...)) })
}

func TestARefusalSaysWhatWasSeenAndTheLogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, log := guarded(t, access.Config{Auth: access.Loopback()})
		for range 100 {
			w := do(h, request("GET", "/runs?text=canary", "192.0.2.7:4711", "Host", "localhost", "Via", "1.1 squid"))
			require.Contains(t, w.Body.String(), "192.0.2.7")
			require.Contains(t, w.Body.String(), "set a token")
		}
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
		for _, part := range []string{"remote=192.0.2.7:4711", "host=localhost", "proxy_header=Via", "path=/runs "} {
			require.Contains(t, log.String(), part)
		}
		require.NotContains(t, log.String(), "canary", "a query may hold what is private")
		<-time.After(time.Second)
		do(h, request("GET", "/", "192.0.2.7:4711", "Host", "localhost"))
		require.Contains(t, log.String(), "not_logged=99")
	})
}

// form posts the login form.
func form(values url.Values, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://localhost/login", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func TestASessionBeginsWithTheTokenAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pages := access.Config{Auth: access.Tokens(operatorToken, viewerToken), Login: true, Open: []string{"/assets/"}}
		h, seen, _ := guarded(t, pages)
		w := do(h, form(url.Values{"token": {viewerToken}, "name": {"ann"}, "next": {"runs?state=dead"}}, "Origin", "http://localhost"))
		require.Equal(t, 303, w.Code)
		require.Equal(t, "./runs?state=dead", w.Header().Get("Location"))
		cookie := w.Result().Cookies()[0]
		require.True(t, cookie.HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
		require.False(t, cookie.Secure, "plain http on loopback")
		require.Empty(t, cookie.Path, "the browser takes the mount")
		require.Equal(t, 12*60*60, cookie.MaxAge)
		session := cookie.Name + "=" + cookie.Value

		require.Equal(t, 200, do(h, request("GET", "/", "192.0.2.7:1", "Cookie", session)).Code)
		require.Equal(t, "ann@192.0.2.7 (session)", seen.who.Actor())
		require.Equal(t, 403, do(h, request("POST", "/", "192.0.2.7:1", "Cookie", session, "Sec-Fetch-Site", "same-origin")).Code, "a viewer")
		require.Equal(t, 401, do(h, request("GET", "/", "192.0.2.7:1", "Cookie", session+"x")).Code)
		other, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, viewerToken+"2")})
		require.Equal(t, 401, do(other, request("GET", "/", "192.0.2.7:1", "Cookie", session)).Code, "another token ends all sessions")
		<-time.After(12 * time.Hour)
		require.Equal(t, 401, do(h, request("GET", "/", "192.0.2.7:1", "Cookie", session)).Code, "twelve hours later")

		w = do(h, form(url.Values{"token": {operatorToken}}, "Origin", "http://localhost"))
		session = cookie.Name + "=" + w.Result().Cookies()[0].Value
		require.Equal(t, 403, do(h, request("POST", "/", "192.0.2.7:1", "Cookie", session)).Code, "a cookie without an origin")
		require.Equal(t, 200, do(h, request("POST", "/", "192.0.2.7:1", "Cookie", session, "Sec-Fetch-Site", "same-origin")).Code)
		w = do(h, request("POST", "/logout", "192.0.2.7:1", "Cookie", session, "Sec-Fetch-Site", "same-origin"))
		require.Equal(t, 303, w.Code)
		require.Negative(t, w.Result().Cookies()[0].MaxAge)
	})
}

func TestACookieIsSecureUnlessThePageCameByPlainHTTP(t *testing.T) {
	t.Parallel()
	h, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, ""), Login: true})
	secure := func(change func(*http.Request)) bool {
		r := form(url.Values{"token": {operatorToken}}, "Sec-Fetch-Site", "same-origin")
		change(r)
		return do(h, r).Result().Cookies()[0].Secure
	}
	require.False(t, secure(func(*http.Request) {}))
	require.True(t, secure(func(r *http.Request) { r.Host = "durable.example.com" }))
	require.True(t, secure(func(r *http.Request) { r.Header.Set("Origin", "https://localhost") }), "a proxy speaks TLS")
	require.True(t, secure(func(r *http.Request) { r.TLS = &tls.ConnectionState{} }))
	require.False(t, secure(func(r *http.Request) { r.Host, r.Header["Origin"] = "10.0.0.7", []string{"http://10.0.0.7"} }), "the browser would drop it")
}

func TestLoginIsBoundedAndLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var refused access.Refusal
		h, _, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, ""), Login: true,
			Refuse: func(w http.ResponseWriter, _ *http.Request, refusal access.Refusal) {
				refused = refusal
				w.WriteHeader(refusal.Status)
			}})
		for _, next := range []string{"//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "javascript:alert(1)", "../x", "/x", "a/../../b", "x\r\ny: z", ""} {
			w := do(h, form(url.Values{"token": {operatorToken}, "next": {next}}))
			require.Equal(t, "./", w.Header().Get("Location"), next)
		}
		from := func(token string) *http.Request {
			r := form(url.Values{"token": {token}})
			r.RemoteAddr = "[2001:db8::1]:1"
			return r
		}
		for i := range 5 {
			require.Equal(t, 401, do(h, from("wrong "+strconv.Itoa(i))).Code)
			require.True(t, refused.Failed)
		}
		w := do(h, from(operatorToken))
		require.Equal(t, 429, w.Code, "also for the right token, or guesses would be answered")
		require.Equal(t, "60", w.Header().Get("Retry-After"))
		require.True(t, refused.Failed)
		require.Equal(t, 303, do(h, form(url.Values{"token": {operatorToken}})).Code, "elsewhere")
		<-time.After(time.Minute)
		require.Equal(t, 303, do(h, from(operatorToken)).Code)
		require.Equal(t, 403, do(h, form(url.Values{"token": {operatorToken}}, "Sec-Fetch-Site", "cross-site")).Code, "no site logs you in")
	})
}

func TestWhatIsOpenAndWhereALinkLeads(t *testing.T) {
	t.Parallel()
	var refused access.Refusal
	h, seen, _ := guarded(t, access.Config{Auth: access.Tokens(operatorToken, ""), Login: true, Open: []string{"/assets/"},
		Refuse: func(w http.ResponseWriter, _ *http.Request, refusal access.Refusal) {
			refused = refusal
			w.WriteHeader(refusal.Status)
		}})
	require.Equal(t, 200, do(h, request("GET", "/login", "192.0.2.7:1")).Code)
	require.Equal(t, 200, do(h, request("GET", "/assets/a.css", "192.0.2.7:1")).Code)
	require.Zero(t, seen.who)
	require.Equal(t, 401, do(h, request("POST", "/assets/a.css", "192.0.2.7:1")).Code)
	require.Equal(t, 401, do(h, request("GET", "/assets/../runs", "192.0.2.7:1")).Code)
	require.True(t, refused.Login)
	require.False(t, refused.Failed)
	w := do(h, request("GET", "/runs", "192.0.2.7:1", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"))
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Body.String(), `http-equiv="refresh" content="0"`)
	require.Equal(t, 401, do(h, request("GET", "/runs", "192.0.2.7:1", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "navigate")).Code)
}

func TestTheListenersAddressIsAHostOfLoopback(t *testing.T) {
	t.Parallel()
	h, _, _ := guarded(t, access.Config{Auth: access.Loopback()})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := access.Server(h, slog.New(slog.DiscardHandler))
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	get := func(host string, big int) int {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+listener.Addr().String()+"/", nil)
		require.NoError(t, err)
		r.Host = host
		r.Header.Set("X-Big", strings.Repeat("x", big))
		answer, err := new(http.Transport).RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	require.Equal(t, 200, get("", 0))
	require.Equal(t, 421, get("evil.example", 0))
	require.Equal(t, 421, get("10.0.0.1", 0))
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, get("", 80<<10))
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
}
