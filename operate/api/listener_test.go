package api_test

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
)

// listening serves a bench on a listener, changed, and returns its address. What is logged
// is in the buffer once the listener is closed.
func (b *bench) listening(t *testing.T, change func(*http.Server)) (address string, end func() *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	server := httptest.NewUnstartedServer(nil)
	server.Config = access.Server(b.handler, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if change != nil {
		change(server.Config)
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), func() *bytes.Buffer {
		server.Close()
		return log
	}
}

// answers are all answers on a connection that a text was written to.
func answers(t *testing.T, address, text string) (all []*http.Response, bodies []string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	go func() {
		_, _ = io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n")) // the server may have closed it
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	for reader := bufio.NewReader(conn); ; {
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			return all, bodies
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		all, bodies = append(all, answer), append(bodies, string(body)) //nolint:bodyclose // closed above
	}
}

// TestNothingHostileGetsThrough: what a listener is sent is answered with a problem, or its
// connection is closed. Nothing is stored, nothing panics, and no log has a secret.
func TestNothingHostileGetsThrough(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.enqueue(`{}`)
	address, end := b.listening(t, nil)
	const who = "Authorization: Bearer " + operatorToken + "\n"
	const host = "Host: localhost\n" + who
	const json = host + "Content-Type: application/json\n"
	get := func(path, more string) string { return "GET " + path + " HTTP/1.1\n" + host + more + "\n" }
	post := func(body string) string {
		return "POST /runs HTTP/1.1\n" + json + "Content-Length: " + strconv.Itoa(len(body)) + "\n\n" + body
	}
	deep := strings.Repeat(`{"a":`, 300_000) + "1" + strings.Repeat("}", 300_000)
	second := "DELETE /runs/" + id + " HTTP/1.1\n" + host + "\n"
	for name, text := range map[string]string{
		"a method of another request":    "POST /runs/" + id + " HTTP/1.1\n" + json + "X-HTTP-Method-Override: DELETE\nX-Method-Override: DELETE\nContent-Length: 0\n\n",
		"a made up method":               "PURGE /runs HTTP/1.1\n" + host + "\n",
		"a method that is no token":      "G@T/ /runs HTTP/1.1\n" + host + "\n",
		"patch of what has none":         "PATCH /runs/" + id + " HTTP/1.1\n" + json + "Content-Length: 2\n\n{}",
		"two lengths":                    "POST /runs HTTP/1.1\n" + json + "Content-Length: 0\nContent-Length: 44\n\n" + second,
		"lengths in one line":            "POST /runs HTTP/1.1\n" + json + "Content-Length: 0, 44\n\n" + second,
		"a length with a sign":           "POST /runs HTTP/1.1\n" + json + "Content-Length: +2\n\n{}",
		"a length in hex":                "POST /runs HTTP/1.1\n" + json + "Content-Length: 0x2\n\n{}",
		"a length and chunks":            "POST /runs HTTP/1.1\n" + json + "Content-Length: 4\nTransfer-Encoding: chunked\n\n0\n\n",
		"chunks that are hidden":         "POST /runs HTTP/1.1\n" + json + "Transfer-Encoding : chunked\n\n0\n\n" + second,
		"chunks that are misspelt":       "POST /runs HTTP/1.1\n" + json + "Transfer-Encoding: xchunked\n\n0\n\n" + second,
		"chunks that are named twice":    "POST /runs HTTP/1.1\n" + json + "Transfer-Encoding: chunked\nTransfer-Encoding: identity\n\n0\n\n" + second,
		"a line that ends early":         "GET /runs HTTP/1.1\n" + host + "X: a\rX-Y: b\n\n",
		"a name with a blank":            "GET /runs HTTP/1.1\n" + host + "Content Length: 5\n\n",
		"two hosts":                      "GET /runs HTTP/1.1\nHost: localhost\n" + host + "\n",
		"a host with a path":             "GET /runs HTTP/1.1\nHost: localhost/../evil\n" + who + "\n",
		"a host with a person":           "GET /runs HTTP/1.1\nHost: a@b\x01\n" + who + "\n",
		"two persons":                    "GET /runs HTTP/1.1\nHost: localhost\nAuthorization: Bearer x\n" + who + "\n",
		"a slash that is encoded":        get("/runs%2f"+id, ""),
		"a slash that is encoded twice":  get("/runs%252f"+id, ""),
		"a backslash":                    get(`/runs\`+id, ""),
		"a backslash that is encoded":    get("/runs/%5c..%5cruns", ""),
		"dots and a semicolon":           get("/runs/..;/runs", ""),
		"dots that are encoded":          get("/runs/%2e%2e%2f%2e%2e/etc/passwd", ""),
		"a NUL in the path":              get("/runs/"+id+"%00", ""),
		"no text in the path":            get("/runs/%ff%fe", ""),
		"a parameter in the path":        get("/runs/"+id+";x=y", ""),
		"an unfinished escape":           get("/runs/%2", ""),
		"a path that is none":            get("runs", ""),
		"another name for the API":       get("/api/v1/../../runs/x", ""),
		"a file":                         get("/../../../../etc/passwd", ""),
		"an origin of null":              "POST /runs HTTP/1.1\n" + json + "Origin: null\nContent-Length: 14\n\n" + `{"job":"mail"}`,
		"an origin that begins the same": "POST /runs HTTP/1.1\n" + json + "Origin: http://localhost@evil.example\nContent-Length: 14\n\n" + `{"job":"mail"}`,
		"two origins":                    "POST /runs HTTP/1.1\n" + json + "Origin: http://localhost\nOrigin: http://evil.example\nContent-Length: 14\n\n" + `{"job":"nope"}`,
		"a body that is packed":          "POST /runs HTTP/1.1\n" + json + "Content-Encoding: deflate, gzip\nContent-Length: 4\n\n\x1f\x8b\x08\x00",
		"a body that is packed in brief": "POST /runs HTTP/1.1\n" + json + "Content-Encoding: br\nContent-Length: 4\n\n\x1f\x8b\x08\x00",
		"a body that is too deep":        post(`{"job":"mail","args":` + deep[:900_000] + `}`),
		"a body of brackets":             post(strings.Repeat("[", 1_000_000)),
		"args that are too deep":         post(`{"job":"mail","args":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`),
		"a huge number":                  post(`{"job":"mail","priority":1e999999999}`),
		"a long number":                  post(`{"job":"mail","max_attempts":` + strings.Repeat("9", 100_000) + `}`),
		"a small number":                 post(`{"job":"mail","priority":-1e-400}`),
		"no number":                      post(`{"job":"mail","priority":NaN}`),
		"NUL in a body":                  post("{\"job\":\"mail\x00\"}"),
		"NUL in a name":                  post(`{"job":"mail\u0000"}`),
		"half a letter":                  post("{\"job\":\"mail\xff\"}"),
		"half a pair":                    post(`{"job":"mail","tags":["\ud800"]}`),
		"a mark before the body":         post("\xef\xbb\xbf" + `{"job":"mail"}`),
		"UTF-16":                         post("\xff\xfe{\x00}\x00"),
		"two bodies":                     post(`{"job":"mail"}{"job":"mail"}`),
		"members that come twice":        post(`{"job":"mail","job":"fax"}`),
		"a body that ends early":         "POST /runs HTTP/1.1\n" + json + "Content-Length: 500\n\n" + `{"job":"mail"`,
		"a chunk that ends early":        "POST /runs HTTP/1.1\n" + json + "Transfer-Encoding: chunked\n\nff\n{",
		"no HTTP":                        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"HTTP/2":                         "PRI * HTTP/2.0\n\nSM\n\n",
		"a version of its own":           "GET /runs HTTP/9.9\n" + host + "\n",
	} {
		all, bodies := answers(t, address, text) //nolint:bodyclose // answers closes them
		require.LessOrEqual(t, len(all), 1, "%s: a second request came through", name)
		for i, answer := range all {
			require.GreaterOrEqual(t, answer.StatusCode, 400, "%s: %s", name, bodies[i])
			require.NotEqual(t, http.StatusInternalServerError, answer.StatusCode, "%s: %s", name, bodies[i])
			require.NotContains(t, bodies[i], operatorToken, name)
			if answer.Header.Get("Content-Type") == "application/problem+json" {
				continue
			}
			// What is no request, the HTTP server refuses by itself, and closes.
			require.Equal(t, "text/plain; charset=utf-8", answer.Header.Get("Content-Type"), name)
			require.True(t, answer.Close, "%s: %s", name, bodies[i])
			require.Less(t, len(bodies[i]), 200, name)
		}
	}
	for _, ranges := range []string{"bytes=0-0", "bytes=-1", "bytes=0-0,1-1,2-2", "bytes=99999999999999999999-", "rows=1"} {
		all, bodies := answers(t, address, get("/openapi.json", "Connection: close\nRange: "+ranges+"\n")) //nolint:bodyclose // answers closes them
		require.Len(t, all, 1)
		require.Equal(t, http.StatusOK, all[0].StatusCode, "%s: %s", ranges, bodies[0])
	}
	require.Equal(t, "pending", b.want(200, "GET", "/runs/"+id, "")["state"])
	require.Len(t, b.want(200, "GET", "/runs", "")["runs"], 1, "nothing else was stored")
	require.Empty(t, b.want(200, "GET", "/audit", "")["changes"])
	log := end().String() + b.log.String()
	require.NotContains(t, log, operatorToken)
	require.NotContains(t, log, "panic")
}

// TestSlowRequestsAreClosed: a client that sends its headers or its body by the byte has its
// connection closed, and others are answered meanwhile.
func TestSlowRequestsAreClosed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	address, end := b.listening(t, func(s *http.Server) {
		require.Equal(t, []time.Duration{5 * time.Second, 15 * time.Second}, []time.Duration{s.ReadHeaderTimeout, s.ReadTimeout})
		s.ReadHeaderTimeout, s.ReadTimeout = 200*time.Millisecond, 600*time.Millisecond
	})
	const headers = "POST /runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + operatorToken + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
	for name, begins := range map[string]string{"headers": "GET /runs HTTP/1.1\r\nX-Slow: ", "body": headers + "\r\n{"} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, begins)
		require.NoError(t, err)
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			for {
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
				<-time.After(20 * time.Millisecond)
			}
		}()
		status, _ := rawly(t, address, "GET /runs HTTP/1.1\nHost: localhost\nAuthorization: Bearer "+operatorToken+"\n\n")
		require.Equal(t, http.StatusOK, status, "others are answered")
		text, _ := io.ReadAll(conn) // ends when the server closes
		if answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil); err == nil {
			require.Contains(t, []int{http.StatusBadRequest, http.StatusRequestTimeout}, answer.StatusCode, name)
			require.NoError(t, answer.Body.Close())
		}
		require.NoError(t, conn.Close())
		<-sending
	}
	require.Empty(t, b.want(200, "GET", "/runs", "")["runs"])
	require.NotContains(t, end().String()+b.log.String(), operatorToken)
}
