// Package behind_test tests the pages behind nginx, on two sub-paths: one that nginx strips, and
// one that it does not.
package behind_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/browser"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

const config = `daemon off; pid %[1]s/pid; error_log %[1]s/error;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server {
		listen 127.0.0.1:%[2]s;
		proxy_http_version 1.1;
		proxy_set_header Host $http_host;
		location /tools/ops/ { proxy_pass http://%[3]s/; }
		location /kept/pages/ { proxy_pass http://%[4]s; }
	}
}`

const token = "a token of the test, long enough for it"

// front starts nginx before the pages of an Operator, and returns its address.
func front(t *testing.T, op *operate.Operator) string {
	program, err := exec.LookPath("nginx")
	require.NoError(t, err, "there is no nginx: install it (on Debian: apt-get install nginx)")
	pages, err := dashboard.New(op, dashboard.Config{Auth: access.Tokens(token, "")})
	require.NoError(t, err)
	stripped := httptest.NewServer(pages)
	t.Cleanup(stripped.Close)
	mux := http.NewServeMux()
	mux.Handle("/kept/pages/", http.StripPrefix("/kept/pages", pages))
	kept := httptest.NewServer(mux)
	t.Cleanup(kept.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	require.NoError(t, err)
	require.NoError(t, free.Close())
	dir := t.TempDir()
	file := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(config, dir, port, stripped.Listener.Addr(), kept.Listener.Addr())
	if os.Geteuid() == 0 {
		text = "user root;\n" + text
	}
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	nginx := exec.CommandContext(t.Context(), program, "-c", file, "-p", dir, "-e", filepath.Join(dir, "error"))
	nginx.Cancel = func() error { return nginx.Process.Signal(os.Interrupt) }
	nginx.WaitDelay = 10 * time.Second
	require.NoError(t, nginx.Start())
	t.Cleanup(func() { _ = nginx.Process.Signal(os.Interrupt); _ = nginx.Wait() })
	base := "http://127.0.0.1:" + port
	require.Eventually(t, func() bool {
		answer, err := http.Get(base + "/tools/ops/login") //nolint:noctx // of a test
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, 10*time.Second, 20*time.Millisecond)
	return base
}

func TestBehindNginxOnASubPath(t *testing.T) {
	op := operate.New(memory.New(memory.Config{}), operate.Config{})
	t.Cleanup(op.Close)
	_, err := op.As("ada").PauseUnusedQueue(t.Context(), "mail")
	require.NoError(t, err)
	base := front(t, op)
	b, err := browser.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(b.Close)
	for _, path := range []string{"/tools/ops/", "/kept/pages/"} {
		t.Run(path, func(t *testing.T) {
			// Who has no session is sent to log in, and from there to where they wanted.
			require.NoError(t, b.Show(base, browser.View{Path: path + "queues?x=1", Width: 1280, Height: 900}))
			var at string
			require.NoError(t, b.Run(chromedp.Location(&at)))
			require.True(t, strings.HasPrefix(at, base+path+"login"), at)
			require.NoError(t, b.Run(chromedp.SendKeys(`input[type="password"]`, token), chromedp.Click("main form button"), chromedp.WaitVisible("#nav"), chromedp.Location(&at)))
			require.True(t, strings.HasPrefix(at, base+path+"queues"), at)
			// A form works, and leads back.
			require.NoError(t, b.Run(chromedp.Click(`a[href*="name=mail"][href*="action=resume"]`), chromedp.WaitVisible("dialog[open] form"),
				chromedp.Click("dialog button.main"), chromedp.WaitVisible("[data-notice]"), chromedp.Location(&at)))
			require.True(t, strings.HasPrefix(at, base+path+"queues"), at)
			list, err := op.Changes(t.Context(), store.ChangeFilter{Limit: 1})
			require.NoError(t, err)
			require.Equal(t, "resume", list.Changes[0].Action)
			// An open page changes by itself.
			_, err = op.As("grace").PauseQueue(t.Context(), "mail")
			require.NoError(t, err)
			require.NoError(t, b.Run(chromedp.WaitVisible(`a[href*="name=mail"][href*="action=resume"]`)))
			require.Empty(t, b.Said())
			hints(t, base+path)
		})
	}
}

// hints requires that the stream of hints comes through, and not in one piece at its end.
func hints(t *testing.T, pages string) {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	answer, err := client.PostForm(pages+"login", url.Values{"token": {token}, "password": {token}}) //nolint:noctx // of a test
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, pages+"live", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	stream, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = stream.Body.Close() }()
	require.Equal(t, "text/event-stream", stream.Header.Get("Content-Type"))
	lines := bufio.NewScanner(stream.Body)
	for lines.Scan() {
		if lines.Text() == "event: changed" {
			return
		}
	}
	require.NoError(t, lines.Err(), "no hint came through")
}
