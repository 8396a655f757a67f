package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Exporter posts spans to a collector. Make it with New and give it to a span
// processor that batches: it waits for answers. What a collector does not take is
// lost and logged, at most one line a minute, and never an error.
type Exporter struct {
	settings *Settings
	client   *http.Client
	logger   *slog.Logger

	each atomic.Int64 // the bytes of a span in the last request, and some more

	mu     sync.Mutex
	lost   int       // spans that were not taken, since the last line
	silent time.Time // no line before
}

// New makes an exporter. It connects to nothing.
func New(settings *Settings, logger *slog.Logger) *Exporter {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: settings.tls, ForceAttemptHTTP2: true,
		MaxIdleConns: 1, MaxConnsPerHost: 1, IdleConnTimeout: time.Minute,
	}
	return &Exporter{settings: settings, logger: logger, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

const (
	tries     = 3
	pause     = time.Second // before the second try; it doubles
	pauseMost = 5 * time.Second
	logEvery  = time.Minute
	maxAnswer = 1 << 10
	spanSpare = 32 // bytes of a request for each span, so that its memory seldom grows
)

// ExportSpans posts the spans. It returns nil whatever happens to them.
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.settings.timeout)
	defer cancel()
	body := encode(spans, int(e.each.Load())*len(spans))
	e.each.Store(int64(len(body)/len(spans) + spanSpare))
	e.note(len(spans), e.send(ctx, body))
	return nil
}

// Shutdown gives up the connection.
func (e *Exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// send repeats what a collector has put off, until ctx ends.
func (e *Exporter) send(ctx context.Context, body []byte) (err error) {
	if e.settings.gzip {
		body = zipped(body)
	}
	for try := range tries {
		var after time.Duration
		var again bool
		if after, again, err = e.post(ctx, body); !again || try == tries-1 {
			return err
		}
		wait := time.NewTimer(min(max(after, pause<<try), pauseMost))
		select {
		case <-ctx.Done():
			wait.Stop()
			return err
		case <-wait.C:
		}
	}
	return err
}

// post makes one request. The errors that it returns have neither the URL nor the
// headers, which may hold secrets.
func (e *Exporter) post(ctx context.Context, body []byte) (after time.Duration, again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.settings.url, bytes.NewReader(body))
	if err != nil {
		return 0, false, errUnsendable
	}
	request.Header = e.settings.headers.Clone()
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("User-Agent", "durable-worker")
	if e.settings.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := e.client.Do(request)
	if err != nil {
		return 0, ctx.Err() == nil, withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // so that the connection can be used again
	switch code := response.StatusCode; {
	case code/100 == 2:
		return 0, false, nil
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return time.Duration(min(max(seconds, 0), 3600)) * time.Second, true, fmt.Errorf("the collector answers %s", response.Status)
	default:
		return 0, false, fmt.Errorf("the collector answers %s", response.Status)
	}
}

// note logs what is lost.
func (e *Exporter) note(spans int, err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += spans
	if now := time.Now(); !now.Before(e.silent) {
		e.logger.Warn("spans could not be exported and are lost", "event", "trace.export_failed", "spans", e.lost, "error", err)
		e.lost, e.silent = 0, now.Add(logEvery)
	}
}

func zipped(body []byte) []byte {
	var to bytes.Buffer
	w := gzip.NewWriter(&to)
	_, _ = w.Write(body) // memory takes all
	_ = w.Close()
	return to.Bytes()
}

func statusOf(s sdk.ReadOnlySpan) uint64 {
	switch s.Status().Code {
	case codes.Ok:
		return 1
	case codes.Error:
		return 2
	default:
		return 0
	}
}

var errUnsendable = errors.New("the request cannot be made")

// withoutURL is the reason of an error of the client's.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
