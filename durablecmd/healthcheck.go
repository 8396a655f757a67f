package durablecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// healthcheckVerb asks a worker on this machine how it is, for images that hold
// nothing else that could ask.
type healthcheckVerb struct {
	Ready   bool          `help:"Check /readyz (the worker takes work) instead of /healthz (the process answers)."`
	Timeout time.Duration `default:"3s" help:"Time limit for the answer (1ms to 1m)."`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// Run prints the answer of the worker at DURABLE_HTTP_ADDR and fails unless it
// is a good one.
func (v healthcheckVerb) Run(ctx context.Context, p *program) error {
	if v.Timeout < time.Millisecond || v.Timeout > time.Minute {
		return usage("--timeout %v: want 1ms to 1m", v.Timeout)
	}
	config, _, err := p.config("warn")
	if err != nil {
		return err
	}
	if config.HTTPAddr == "off" {
		return &configError{[]invalidVariable{{varHTTPAddr, "off", "the worker has no listener to check; want host:port"}}}
	}
	path := "/healthz"
	if v.Ready {
		path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	url := "http://" + reachable(config.HTTPAddr) + path
	status, body, err := ask(ctx, url)
	if err != nil {
		return fmt.Errorf("%w: no answer: %w", errUnhealthy, err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("%w: %s answers %d: %s", errUnhealthy, url, status, oneLine(body))
	}
	if v.JSON {
		return p.printJSON(map[string]any{"url": url, "answer": body})
	}
	_, err = fmt.Fprintf(p.stdout, "%s: ok\n", url)
	return err
}

// reachable is the address at which a listener can be asked from here: one that
// listens everywhere listens on the loopback address too.
func reachable(addr string) string {
	host, port, _ := net.SplitHostPort(addr) // loadConfig has checked it
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// ask gets a URL, through no proxy.
func ask(ctx context.Context, url string) (status int, body json.RawMessage, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }() // what was not read is of no use
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err == nil && !json.Valid(text) {
		text, err = json.Marshal(clipped(string(text), 200))
	}
	return response.StatusCode, text, err
}
