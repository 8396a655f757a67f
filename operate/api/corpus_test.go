package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
)

// TestBodiesThatNearlyMakeSense: each is refused as the client's fault, and stores nothing.
func TestBodiesThatNearlyMakeSense(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var wrong []string
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	for _, body := range []string{
		`{"job":"mail","j\u006fb":"report"}`, `{"job":"mail","args":{},"args":null}`,
		`{"job":"mail","metadata":{"a":"1","a":"2"}}`, `{"job":"mail","metadata":{"a":1}}`, `{"job":"mail","metadata":{"":"x"}}`,
		"\ufeff" + `{"job":"mail"}`, "\xff\xfe{\x00}\x00", `{"job":"mail"}` + "\x00", `{"job":"mail",}`, `{job:"mail"}`, `{'job':'mail'}`, `{"job":"mail"}//`,
		`{"job":"\ud800"}`, `{"job":"mail","tags":["\u0000"]}`, `{"job":"mail","tags":[null]}`, `{"job":"mail","unique":"\u0000"}`, `{"job":"mail","queue":"\u202e"}`,
		`{"job":"mail","queue":""}`, `{"job":"mail","queue":" "}`, `{"job":"mail","queue":"` + strings.Repeat("q", 129) + `"}`,
		`{"job":"mail","priority":1e400}`, `{"job":"mail","priority":"1"}`, `{"job":"mail","priority":99999}`, `{"job":"mail","priority":9223372036854775808}`,
		`{"job":"mail","max_attempts":0}`, `{"job":"mail","max_attempts":-1}`, `{"job":"mail","max_attempts":true}`,
		`{"job":"mail","timeout":"-1s"}`, `{"job":"mail","timeout":"1ns"}`, `{"job":"mail","timeout":"99999999h"}`, `{"job":"mail","after":"9e9h"}`,
		`{"job":"mail","due_at":"10000-01-01T00:00:00Z"}`, `{"job":"mail","due_at":"0000-00-00T00:00:00Z"}`, `{"job":"mail","due_at":1700000000}`, `{"job":"mail","due_at":"0001-01-01T00:00:00Z"}`, `{"job":"mail","expires_at":"0001-01-01T00:00:00Z"}`, `{"job":"mail","due_at":"2030-02-30T00:00:00Z"}`,
		`{"job":"mail","args":` + deep + `}`, deep, strings.Repeat("[", 100000), `{"runs":[` + strings.Repeat(`{},`, 1000) + `{}]}`, `{"runs":[]}`, `{"runs":[null]}`, `{"runs":[[]]}`,
		`{"job":"mail","id":"00000000-0000-0000-0000-000000000000"}`, `{"job":"mail","id":"urn:uuid:0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e"}`,
		`{"job":"mail","id":"{0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e}"}`, `{"job":"mail","id":"0190c5a07d6c7b0e9f6e3a1f4b2c5d6e"}`, `{"job":"mail","id":"0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e\n"}`,
		`{"job":"mail","debounce":"x","quiet":"0s"}`, `{"job":"mail","debounce":"x","quiet":"1s","at_most":"1ms"}`, `{"job":"mail","unique":"x","unique_for":"-1s"}`,
		`{"job":"mail","metadata":{"a":null}}`, `{"job":"mail","limited_by":[null]}`, `{"job":"mail","after":"1h","due_at":"2030-01-01T00:00:00Z"}`,
	} {
		if w := b.send("POST", "/runs", body, "Content-Type", "application/json"); w.Code != 400 && w.Code != 422 {
			wrong = append(wrong, fmt.Sprintf("%d to %.200s: %s", w.Code, body, w.Body))
		}
	}
	for _, body := range []string{`{"action":"explode"}`, `{"action":"cancel","all":null}`, `{"action":"cancel","filter":null,"all":false}`, `{"action":"cancel","filter":{"id":[]}}`,
		`{"action":"cancel","filter":{"state":[]}}`, `{"action":"cancel","filter":{"since":"1h"}}`, `{"action":"cancel","filter":{"job":["mail"],"until":"0001-01-01T00:00:00Z"}}`, `{"action":"cancel","filter":{"args":null}}`, `{"action":"cancel","all":true,"cursor":"x"}`,
		`{"action":"cancel","all":true,"reason":"\u0000"}`, `{"action":"delete","filter":{"state":[null]}}`, `{"action":"cancel","filter":{"job":[null]}}`,
		`{"action":"cancel","filter":{"queue":["mail",null]}}`, `{"action":"cancel","filter":{"id":[null]}}`, `{"action":"cancel","filter":{"metadata":{"a":null}}}`} {
		if w := b.send("POST", "/bulk", body); w.Code != 400 {
			wrong = append(wrong, fmt.Sprintf("%d to %s: %s", w.Code, body, w.Body))
		}
	}
	for _, blackout := range []string{`{"days":"sat","form":"22:00"}`, `{"days":"sat","days":"sun"}`, `null`, `"sat"`} {
		if w := b.send("PUT", "/schedules?name=x", `{"job":"report","rule":{"every":"1h"},"plan":{"blackouts":[`+blackout+`]}}`); w.Code != 400 {
			wrong = append(wrong, fmt.Sprintf("%d to the blackout %s: %s", w.Code, blackout, w.Body))
		}
	}
	require.Empty(t, wrong)
	require.Empty(t, b.want(200, "GET", "/runs", "")["runs"])
	require.Empty(t, b.want(200, "GET", "/audit", "")["changes"])
}

// TestAddressesThatNearlyMakeSense: ids, cursors and encodings that are almost right.
func TestAddressesThatNearlyMakeSense(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.enqueue(`{}`)
	var wrong []string
	for path, status := range map[string]int{
		"/runs/" + id + "%0a": 400, "/runs/%20" + id: 400, "/runs/" + id + "%00": 400, "/runs/" + strings.ReplaceAll(id, "-", ""): 400, "/runs/%7b" + id + "%7d": 400,
		"/runs/urn:uuid:" + id: 400, "/runs/" + id[:35]: 400, "/runs/" + id + "0": 400, "/runs/" + strings.Replace(id, "0", "%ef%bc%90", 1): 400, "/runs/" + id + ";x=1": 400,
		"/runs/" + id + "/": 404, "/runs/" + id + "/explain/": 404, "/runs/%2e": 404, "/runs/%2e%2e": 404, "/%72uns": 200, "/runs%2f" + id: 404, "/runs/%c0%af": 400, "/runs/%252e": 400, "/RUNS": 404, "/runs%00": 404,
		"/runs?cursor=00000000-0000-0000-0000-000000000000": 200, "/runs?cursor=ffffffff-ffff-ffff-ffff-ffffffffffff": 200, "/runs?cursor=" + id + "%20": 400, "/runs?cursor=": 400,
		"/audit?cursor=9223372036854775807": 400, "/audit?cursor=-1": 400, "/audit?cursor=1e3": 400, "/audit?cursor=0x10": 400, "/audit?cursor=%205": 400, "/audit?cursor=1&cursor=2": 400,
		"/runs?limit=%31": 200, "/runs?limit=1%00": 400, "/runs?limit=%d9%a1": 400, "/runs?=x": 400, "/runs?&&": 200, "/runs?limit": 400, "/runs?LIMIT=1": 400, "/runs?limit[]=1": 400,
		"/runs?since=0001-01-01T00:00:00Z": 400, "/runs?until=1970-01-01T00:00:00Z": 200, "/runs?since=9999999999999d": 400, "/runs?since=1h&until=2h": 200, "/runs?metadata=x": 400, "/runs?metadata==": 400, "/runs?tag=%ed%a0%80": 400,
		"/bulk/0": 400, "/bulk/-1": 400, "/bulk/1e1": 400, "/bulk/99999999999999999999": 400, "/bulk/+1": 400, "/schedules?name=%2e%2e": 404, "/series?range=1y": 400, "/workers?name=%00": 400,
		"/runs/" + id + "/wait?timeout=-1s": 400, "/runs/" + id + "/wait?timeout=61s": 400, "/runs/" + id + "/wait?timeout=NaN": 400, "/limits/key?name=none": 404,
	} {
		if w := b.send("GET", path, ""); w.Code != status {
			wrong = append(wrong, fmt.Sprintf("%d, not %d, to %s: %.200s", w.Code, status, path, w.Body))
		}
	}
	require.Empty(t, wrong)
	require.Equal(t, id, b.want(200, "GET", "/runs/"+strings.ToUpper(id), "")["id"], "letters of either case")
}

// rawly sends bytes to a server, and returns what it answers to the first request.
func rawly(t *testing.T, address, text string) (status int, body string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, _ = io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n")) // the server may have closed it
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = answer.Body.Close() }()
	all, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, string(all)
}

// TestRequestsThatAreHardlyHTTP speaks to a server as clients do that are broken or evil.
// Zero: the server closes the connection without an answer.
func TestRequestsThatAreHardlyHTTP(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	server := httptest.NewUnstartedServer(nil)
	server.Config = access.Server(b.handler, slog.New(slog.DiscardHandler))
	server.Start()
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	const who = "Authorization: Bearer " + operatorToken + "\n"
	const host = "Host: localhost\n" + who
	const json = "Content-Type: application/json\n"
	const run = `{"job":"mail"}`
	for _, c := range []struct {
		text     string
		statuses []int
	}{
		{"GET /runs HTTP/1.0\n" + who + "\n", []int{200}},
		{"GET /runs\n\n", []int{0, 400}},
		{"GET /runs HTTP/2.0\n" + host + "\n", []int{505, 400}},
		{"GET /runs HTTP/1.1\n" + who + "\n", []int{400}},
		{"GET /runs HTTP/1.1\nHost: a\nHost: b\n" + who + "\n", []int{400}},
		{"GET /runs HTTP/1.1\nHost: a b\n" + who + "\n", []int{400}},
		{"GET http://evil.example/runs HTTP/1.1\n" + host + "\n", []int{200}},
		{"get /runs HTTP/1.1\n" + host + "\n", []int{403, 405}},
		{"OPTIONS * HTTP/1.1\n" + host + "\n", []int{200, 404}},
		{"CONNECT evil.example:443 HTTP/1.1\n" + host + "\n", []int{400, 403, 404, 405}},
		{"TRACE /runs HTTP/1.1\n" + host + "\n", []int{403, 405}},
		{"GET /runs HTTP/1.1\n" + host + "X: a\x00b\n\n", []int{400}},
		{"GET /runs HTTP/1.1\n" + host + "X : a\n\n", []int{400}},
		{"GET /runs HTTP/1.1\n" + host + "Range: bytes=0-1\n\n", []int{200}},
		{"GET /openapi.json HTTP/1.1\n" + host + "Range: bytes=0-1\n\n", []int{200}},
		{"GET /runs HTTP/1.1\n" + host + "Upgrade: websocket\nConnection: upgrade\n\n", []int{200}},
		{"GET /runs HTTP/1.1\n" + host + "X: " + strings.Repeat("x", 80<<10) + "\n\n", []int{0, 431}},
		{"GET /runs?tag=" + strings.Repeat("x", 9<<10) + " HTTP/1.1\n" + host + "\n", []int{414}},
		{"POST /runs HTTP/1.1\n" + host + json + "Content-Length: 14\nContent-Length: 15\n\n" + run, []int{400}},
		{"POST /runs HTTP/1.1\n" + host + json + "Content-Length: -1\n\n" + run, []int{400}},
		{"POST /runs HTTP/1.1\n" + host + json + "Content-Length: 14\nTransfer-Encoding: chunked, identity\n\n" + run, []int{400, 501}},
		{"POST /runs HTTP/1.1\n" + host + json + "Transfer-Encoding: gzip\n\n" + run, []int{501}},
		{"POST /runs HTTP/1.1\n" + host + json + "Transfer-Encoding: chunked\n\nzz\n" + run, []int{400}},
		{"POST /runs HTTP/1.1\n" + host + json + "Transfer-Encoding: chunked\n\nffffffffffffffffff\n" + run, []int{400}},
		{"POST /runs HTTP/1.1\n" + host + json + "Transfer-Encoding: chunked\n\n200000\n" + strings.Repeat(" ", 2<<20) + "\n0\n\n", []int{413}},
		{"POST /runs HTTP/1.1\n" + host + json + "Expect: the-unexpected\nContent-Length: 14\n\n" + run, []int{417}},
		{"POST /runs HTTP/1.1\n" + host + json + "Content-Length: 2000000\nExpect: 100-continue\n\n", []int{413}},
		{"POST /runs HTTP/1.1\n" + host + json + "Content-Encoding: gzip\nContent-Length: 14\n\n" + run, []int{415}},
		{"POST /runs HTTP/1.1\n" + host + "Content-Type: application/json; charset=utf-16\nContent-Length: 14\n\n" + run, []int{415}},
		{"POST /runs HTTP/1.1\n" + host + json + "Content-Type: text/plain\nContent-Length: 14\n\n" + run, []int{415}},
		{"POST /runs HTTP/1.1\n" + host + json + "Origin: http://localhost.evil.example\nContent-Length: 14\n\n" + run, []int{403}},
		{"POST /runs HTTP/1.1\n" + host + json + "Origin: file://\nContent-Length: 14\n\n" + run, []int{403}},
		{"POST /runs HTTP/1.1\n" + host + json + "Sec-Fetch-Site: none, cross-site\nContent-Length: 14\n\n" + run, []int{403}},
		{"POST /runs HTTP/1.1\n" + host + who + json + "Content-Length: 14\n\n" + run, []int{401}},
		{"POST /runs HTTP/1.1\n" + host + json + "Idempotency-Key: a\nIdempotency-Key: b\nContent-Length: 14\n\n" + run, []int{400}},
		{"POST /runs HTTP/1.1\n" + host + json + "Idempotency-Key:  \nContent-Length: 14\n\n" + run, []int{400}},
	} {
		status, body := rawly(t, address, c.text)
		require.Contains(t, c.statuses, status, "%.150q: %.300s", c.text, body)
	}
	require.Empty(t, b.want(200, "GET", "/runs", "")["runs"], "nothing was stored")
	status, _ := rawly(t, address, "POST /runs HTTP/1.1\n"+host+json+"Transfer-Encoding: chunked\n\n7\n"+run[:7]+"\n7\n"+run[7:]+"\n0\nX-Trailer: x\n\n")
	require.Equal(t, 201, status, "chunks are a body as any other")
	require.False(t, bytes.Contains(b.log.Bytes(), []byte("request.panicked")))
}
