package durablecmd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
)

const (
	dashboardToken = "operator-canary-0123456789"
	viewerToken    = "viewer-canary-0123456789"
	proxySecret    = "proxy-canary-0123456789"
)

// call asks the API, and returns the status and the answer.
func call(t *testing.T, client *http.Client, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := client.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode, string(text)
}

func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// dashboard is where the service's dashboard answers.
func (s *service) dashboard() string {
	s.t.Helper()
	s.logs("dashboard ready")
	found := regexp.MustCompile(`"dashboard ready","event":"dashboard.ready","addr":"([^"]+)"`).FindStringSubmatch(s.stderr.String())
	require.NotNil(s.t, found)
	return found[1]
}

func TestADashboardThatOthersReachNeedsAWayToKeepThemOut(t *testing.T) {
	t.Parallel()
	token, secret := "DURABLE_DASHBOARD_TOKEN="+dashboardToken, "DURABLE_DASHBOARD_PROXY_SECRET="+proxySecret
	empty, short := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "short")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(short, []byte("canary\n"), 0o600))
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"DURABLE_DASHBOARD_ADDR=:0"}, "nothing says who may: set DURABLE_DASHBOARD_TOKEN (or DURABLE_DASHBOARD_TOKEN_FILE), or DURABLE_DASHBOARD_USER_HEADER"},
		{[]string{"DURABLE_DASHBOARD_ADDR=0.0.0.0:0"}, "or listen on 127.0.0.1"},
		{[]string{"DURABLE_DASHBOARD_ADDR=[::]:0"}, "nothing says who may"},
		{[]string{"DURABLE_DASHBOARD_ADDR=192.0.2.1:0"}, "nothing says who may"},
		{[]string{"DURABLE_DASHBOARD_ADDR=host.example:0"}, "nothing says who may"},
		{[]string{"DURABLE_DASHBOARD_ADDR=localhost.evil.example:0"}, "nothing says who may"},
		{[]string{"DURABLE_DASHBOARD_ADDR=127.0.0.1"}, "want host:port"},
		{[]string{"DURABLE_DASHBOARD_ADDR="}, "must not be empty"},
		{[]string{"DURABLE_DASHBOARD_TOKEN=canary"}, "at least 16 characters"},
		{[]string{"DURABLE_DASHBOARD_TOKEN="}, "must not be empty"},
		{[]string{"DURABLE_DASHBOARD_TOKEN_FILE=" + empty}, "at least 16 characters"},
		{[]string{"DURABLE_DASHBOARD_TOKEN_FILE=" + short}, "at least 16 characters"},
		{[]string{"DURABLE_DASHBOARD_TOKEN_FILE=" + empty + "x"}, "want a file that can be read"},
		{[]string{token, "DURABLE_DASHBOARD_TOKEN_FILE=" + short}, "and not both"},
		{[]string{token, "DURABLE_DASHBOARD_VIEWER_TOKEN=" + dashboardToken}, "not the operators' token"},
		{[]string{"DURABLE_DASHBOARD_USER_HEADER=X-User"}, "with DURABLE_DASHBOARD_PROXY_SECRET"},
		{[]string{"DURABLE_DASHBOARD_USER_HEADER=X-User", secret, token}, "without tokens"},
		{[]string{"DURABLE_DASHBOARD_USER_HEADER=X User", secret}, "the name of the header"},
		{[]string{"DURABLE_DASHBOARD_USER_HEADER=X-User", secret, "DURABLE_DASHBOARD_GROUPS_HEADER=X-Groups:"}, "DURABLE_DASHBOARD_GROUPS_HEADER"},
		{[]string{token, "DURABLE_DASHBOARD_HOSTS=,"}, "want host names separated by commas, without ports"},
		{[]string{token, "DURABLE_DASHBOARD_HOSTS=https://ops.example.com"}, "DURABLE_DASHBOARD_HOSTS"},
		{[]string{token, "DURABLE_DASHBOARD_HOSTS=ops.example.com,ops.example.com:8081"}, "DURABLE_DASHBOARD_HOSTS"},
		{[]string{token, "DURABLE_DASHBOARD_HOSTS=*.example.com"}, "DURABLE_DASHBOARD_HOSTS"},
		{[]string{"DURABLE_DASHBOARD_USER_HEADER=X-User", secret, "DURABLE_DASHBOARD_OPERATORS= , "}, "DURABLE_DASHBOARD_OPERATORS"},
		{[]string{"DURABLE_DASHBOARD_USER_HEADER=X-User", secret, "DURABLE_DASHBOARD_GROUPS_HEADER=X-Groups"}, "and DURABLE_DASHBOARD_OPERATOR_GROUPS"},
		{[]string{"DURABLE_DASHBOARD_USER_HEADER=X-User", secret, "DURABLE_DASHBOARD_OPERATOR_GROUPS=ops"}, "with DURABLE_DASHBOARD_GROUPS_HEADER"},
		{[]string{"DURABLE_DASHBOARD_USER_HEADER=X-User", secret, "DURABLE_DASHBOARD_GROUPS_HEADER=X-Groups", "DURABLE_DASHBOARD_OPERATOR_GROUPS=,"}, "DURABLE_DASHBOARD_OPERATOR_GROUPS"},
		{[]string{token, "DURABLE_DASHBOARD_OPERATORS=ann"}, "with DURABLE_DASHBOARD_USER_HEADER"},
		{[]string{token, "DURABLE_DASHBOARD_GROUPS_HEADER=X-Groups"}, "with DURABLE_DASHBOARD_USER_HEADER"},
		{[]string{"DURABLE_REDACT=,"}, "DURABLE_REDACT"},
		{[]string{"DURABLE_DASHBOARD_TLS_CERT=" + short}, "a file with the certificate in PEM"},
	} {
		for _, verb := range []string{"work", "dashboard"} {
			e := execute(t, file(t, c.env...), verb)
			require.Equal(t, 2, e.code, "%s %v: %s", verb, c.env, e.stderr)
			require.Contains(t, e.stderr, c.want)
			require.NotContains(t, e.stderr+e.stdout, "canary")
		}
	}
}

func TestAWorkerServesTheAPI(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_DASHBOARD_ADDR=127.0.0.1:0", "DURABLE_DASHBOARD_TOKEN="+dashboardToken, "DURABLE_DASHBOARD_VIEWER_TOKEN="+viewerToken)
	s := serve(t, env, stock)
	s.logs("worker started")
	base, c := "http://"+s.dashboard()+"/api/v1", client(t)
	operator, viewer := []string{"Authorization", "Bearer " + dashboardToken}, []string{"Authorization", "Bearer " + viewerToken}

	code, text := call(t, c, "GET", base+"/runs", "")
	require.Equal(t, 401, code, text)
	code, text = call(t, c, "POST", base+"/runs", `{"job":"sleep","args":{"for":"1ms"}}`, viewer...)
	require.Equal(t, 403, code, text)
	code, text = call(t, c, "POST", base+"/runs", `{"job":"sleep","args":{"for":"1ms"}}`, operator...)
	require.Equal(t, 201, code, text)
	id := strings.Split(text, `"`)[3]
	code, text = call(t, c, "GET", base+"/runs/"+id+"/wait", "", viewer...)
	require.Equal(t, 200, code, text)
	require.Contains(t, text, `"state":"succeeded"`)
	require.Contains(t, text, `"args":null`, "a viewer sees no args")
	require.Contains(t, text, `"hidden":{"args":13`)
	code, _ = call(t, c, "GET", "http://"+s.dashboard()+"/debug/pprof/", "", operator...)
	require.Equal(t, 404, code)
	s.signal()
	require.Equal(t, 0, s.ends())
	require.NotContains(t, s.stderr.String(), "canary")
	require.NotContains(t, execute(t, env, "config").stdout, "canary")
	require.Contains(t, execute(t, env, "config").stdout, "(set)")
}

func TestTheCommandDashboardServesAlone(t *testing.T) {
	t.Parallel()
	env := migrated(t, "DURABLE_DASHBOARD_ADDR=127.0.0.1:0")
	stdout := &buffer{}
	s := serveWith(t, durablecmd.Start{Env: env, Setup: stock, Args: []string{"dashboard"}, Stdout: stdout})
	var base string
	require.Eventually(t, func() bool { base = strings.TrimSpace(stdout.String()); return base != "" }, time.Minute, 5*time.Millisecond)
	c := client(t)
	code, text := call(t, c, "GET", base+"api/v1/queues", "")
	require.Equal(t, 200, code, text)
	code, text = call(t, c, "GET", base+"api/v1/queues", "", "X-Forwarded-For", "127.0.0.1")
	require.Equal(t, 401, code, text)
	require.Contains(t, text, "X-Forwarded-For")

	// A stream does not keep the program from ending.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"api/v1/events", nil)
	require.NoError(t, err)
	stream, err := c.Do(request)
	require.NoError(t, err)
	require.Equal(t, "text/event-stream", stream.Header.Get("Content-Type"))
	s.signal()
	require.Equal(t, 0, s.ends())
	_, _ = io.ReadAll(stream.Body)
	require.NoError(t, stream.Body.Close())
	require.Equal(t, 2, execute(t, append(env, "DURABLE_DASHBOARD_ADDR=off"), "dashboard").code)
	require.Equal(t, 2, execute(t, []string{"DURABLE_DATABASE_URL=memory:"}, "dashboard").code)
}

func TestTheDashboardSpeaksTLS(t *testing.T) {
	t.Parallel()
	cert, key, roots := certificate(t)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(proxySecret+"\n"), 0o600))
	s := serve(t, file(t, "DURABLE_DASHBOARD_ADDR=0.0.0.0:0", "DURABLE_DASHBOARD_TLS_CERT="+cert, "DURABLE_DASHBOARD_TLS_KEY="+key,
		"DURABLE_DASHBOARD_USER_HEADER=X-User", "DURABLE_DASHBOARD_PROXY_SECRET_FILE="+secret, "DURABLE_DASHBOARD_OPERATORS=ann,dev",
		"DURABLE_DASHBOARD_GROUPS_HEADER=X-Groups", "DURABLE_DASHBOARD_OPERATOR_GROUPS=ops,bob", "DURABLE_DASHBOARD_HOSTS=127.0.0.1"), stock)
	s.logs("worker started")
	_, port, err := net.SplitHostPort(s.dashboard())
	require.NoError(t, err)
	base := "https://127.0.0.1:" + port + "/api/v1"
	c := client(t)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	code, text := call(t, c, "GET", base+"/runs", "", "X-User", "ann")
	require.Equal(t, 401, code, text)
	code, text = call(t, c, "POST", base+"/queues/pause", `{"name":"mail","unused":true}`, "X-User", "ann", "X-Durable-Proxy", proxySecret)
	require.Equal(t, 200, code, text)
	code, text = call(t, c, "POST", base+"/queues/resume", `{"name":"mail"}`, "X-User", "bob", "X-Groups", "dev", "X-Durable-Proxy", proxySecret)
	require.Equal(t, 403, code, text)
	code, text = call(t, c, "POST", base+"/queues/resume", `{"name":"mail"}`, "X-User", "eve", "X-Groups", "dev, ops", "X-Durable-Proxy", proxySecret)
	require.Equal(t, 200, code, text)
	code, text = call(t, c, "GET", base+"/audit", "", "X-User", "bob", "X-Durable-Proxy", proxySecret)
	require.Equal(t, 200, code, text)
	require.Contains(t, text, `"actor":"ann@127.0.0.1 (proxy)"`)
	old := client(t)
	old.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} //nolint:gosec // it is refused
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/runs", nil)
	require.NoError(t, err)
	answer, err := old.Do(request)
	if err == nil {
		require.NoError(t, answer.Body.Close())
	}
	require.ErrorContains(t, err, "protocol version")
	s.signal()
	require.Equal(t, 0, s.ends())
	require.NotContains(t, s.stderr.String(), "canary")
}

// TestWhoHoldsConnectionsKeepsNoOthersOut opens more connections than the dashboard has, sends
// the beginning of a login on each, and reads the pages and the API meanwhile: on a
// connection of before, and on new ones.
func TestWhoHoldsConnectionsKeepsNoOthersOut(t *testing.T) {
	t.Parallel()
	s := serve(t, file(t, "DURABLE_DASHBOARD_ADDR=127.0.0.1:0", "DURABLE_DASHBOARD_TOKEN="+dashboardToken), stock)
	s.logs("worker started")
	operator := []string{"Authorization", "Bearer " + dashboardToken}
	kept := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	t.Cleanup(kept.CloseIdleConnections)
	reused := 0
	read := func(c *http.Client) int {
		trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
			if got.Reused {
				reused++
			}
		}}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "http://"+s.dashboard()+"/api/v1/queues", nil)
		require.NoError(t, err)
		request.Header.Set(operator[0], operator[1])
		answer, err := c.Do(request)
		if err != nil {
			return 0
		}
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	require.Equal(t, 200, read(kept))
	for range 1300 {
		conn := dial(t, s.dashboard())
		_, err := io.WriteString(conn, "POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ntoken=")
		if err != nil {
			require.ErrorContains(t, err, "reset") // others have come after it
		}
	}
	for range 20 {
		require.Equal(t, 200, read(client(t)), "a new connection")
		require.Equal(t, 200, read(kept))
	}
	require.GreaterOrEqual(t, reused, 20, "the connection of a known client is kept")
	code, text := call(t, client(t), "GET", "http://"+s.dashboard()+"/queues", "", operator...)
	require.Equal(t, 200, code, text)
	s.signal()
	require.Equal(t, 0, s.ends())
}

// certificate makes a certificate for 127.0.0.1.
func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return cert, key, roots
}
