package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/durable-worker/durable-worker/internal/otlp"
)

// collector answers with a status after another, the last one again and again.
type collector struct {
	mu       sync.Mutex
	statuses []int
	requests []*http.Request
	bodies   [][]byte
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests, c.bodies = append(c.requests, r), append(c.bodies, body)
	status := c.statuses[0]
	if len(c.statuses) > 1 {
		c.statuses = c.statuses[1:]
	}
	w.WriteHeader(status)
}

// export sends spans to a collector, and returns what is logged.
func export(t *testing.T, c http.Handler, spans []sdk.ReadOnlySpan, variables map[string]string) string {
	t.Helper()
	server := httptest.NewServer(c)
	defer server.Close()
	if variables == nil {
		variables = map[string]string{}
	}
	variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = strings.Replace(server.URL, "://", "://user:canary@", 1)
	settings, err := otlp.FromEnvironment(of(variables))
	require.NoError(t, err)
	var log bytes.Buffer
	e := otlp.New(settings, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, e.ExportSpans(t.Context(), spans))
	require.NoError(t, e.Shutdown(t.Context()))
	return log.String()
}

// sample is a span with all that a span can have.
func sample() []sdk.ReadOnlySpan {
	ids := func(n byte, remote bool) trace.SpanContext {
		state, _ := trace.ParseTraceState("vendor=1")
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0: 0xaa, 15: 1}, SpanID: trace.SpanID{7: n}, TraceFlags: 1, TraceState: state, Remote: remote})
	}
	at := time.Unix(1_900_000_000, 7)
	about := resource.NewWithAttributes("https://schema/r", attribute.String("service.name", "shop"))
	stub := tracetest.SpanStub{
		Name: "execute mail", SpanContext: ids(2, false), Parent: ids(1, true), SpanKind: trace.SpanKindConsumer, StartTime: at, EndTime: at.Add(time.Second),
		Attributes: []attribute.KeyValue{
			attribute.String("s", "ä"), attribute.Int("i", -1), attribute.Bool("t", true), attribute.Bool("f", false), attribute.Float64("d", 0.5),
			attribute.StringSlice("ss", []string{"a", ""}), attribute.Int64Slice("is", []int64{0, 1}), attribute.Float64Slice("ds", []float64{0}), attribute.BoolSlice("bs", []bool{false}), attribute.String("none", ""),
		},
		DroppedAttributes: 3, DroppedEvents: 4, DroppedLinks: 5,
		Events:               []sdk.Event{{Name: "exception", Time: at, Attributes: []attribute.KeyValue{attribute.Int("n", 1)}, DroppedAttributeCount: 2}},
		Links:                []sdk.Link{{SpanContext: ids(1, true), Attributes: []attribute.KeyValue{attribute.Int("n", 2)}, DroppedAttributeCount: 1}},
		Status:               sdk.Status{Code: codes.Error, Description: "why"},
		Resource:             about,
		InstrumentationScope: instrumentation.Scope{Name: "tracing", Version: "v1", SchemaURL: "https://schema/s"},
	}
	return tracetest.SpanStubs{stub, {Name: "b", SpanContext: ids(3, false), Resource: about, StartTime: at, EndTime: at, Status: sdk.Status{Code: codes.Ok}}, stub}.Snapshots()
}

// testdata/request.hex was decoded with OpenTelemetry's library and is, field by field,
// what its own exporter (v1.47.0) makes of the same spans, but that a link has its
// tracestate and a scope without a name is an empty message.
func TestTheMessageIsTheOneOfTheProtocol(t *testing.T) {
	t.Parallel()
	c := &collector{statuses: []int{200}}
	require.Empty(t, export(t, c, sample(), map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x=1"}))
	require.Len(t, c.bodies, 1)
	r := c.requests[0]
	require.Equal(t, "/v1/traces", r.URL.Path)
	require.Equal(t, http.MethodPost, r.Method)
	require.Equal(t, "application/x-protobuf", r.Header.Get("Content-Type"))
	require.Equal(t, "a b", r.Header.Get("Api-Key"))
	require.Equal(t, "1", r.Header.Get("X"))
	golden := filepath.Join("testdata", "request.hex")
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), hex.EncodeToString(c.bodies[0]))
}

func TestACompressedMessage(t *testing.T) {
	t.Parallel()
	plain, packed := &collector{statuses: []int{200}}, &collector{statuses: []int{200}}
	export(t, plain, sample(), nil)
	export(t, packed, sample(), map[string]string{"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"})
	require.Equal(t, "gzip", packed.requests[0].Header.Get("Content-Encoding"))
	r, err := gzip.NewReader(bytes.NewReader(packed.bodies[0]))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, plain.bodies[0], text)
}

// What a collector puts off is sent again; what it refuses is lost, with a line that
// has no secret.
func TestWhatACollectorAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		statuses []int
		requests int
		logged   string
	}{
		{[]int{503, 200}, 2, ""},
		{[]int{400}, 1, "400 Bad Request"},
		{[]int{307}, 1, "307 Temporary Redirect"},
	} {
		to := &collector{statuses: c.statuses}
		logged := export(t, to, sample(), nil)
		require.Len(t, to.bodies, c.requests, c.statuses)
		require.Equal(t, c.logged != "", logged != "", logged)
		require.Contains(t, logged, c.logged)
		require.NotContains(t, logged, "canary")
	}
}

// A collector that is down costs one line a minute, and one that does not answer no
// more than the timeout.
func TestACollectorThatIsAway(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	hung := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-hung
	}))
	defer silent.Close()
	defer close(hung)
	for _, url := range []string{gone.URL, silent.URL} {
		settings, err := otlp.FromEnvironment(of(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "100"}))
		require.NoError(t, err)
		var log bytes.Buffer
		e := otlp.New(settings, slog.New(slog.NewTextHandler(&log, nil)))
		for range 3 {
			require.NoError(t, e.ExportSpans(context.Background(), sample()))
		}
		require.NoError(t, e.Shutdown(context.Background()))
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "spans=3")
	}
}

func TestACertificateOfOnesOwn(t *testing.T) {
	t.Parallel()
	c := &collector{statuses: []int{200}}
	server := httptest.NewTLSServer(c)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	settings, err := otlp.FromEnvironment(of(map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": server.URL + "/spans", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": file, "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere",
	}))
	require.NoError(t, err)
	e := otlp.New(settings, slog.New(slog.DiscardHandler))
	require.NoError(t, e.ExportSpans(t.Context(), sample()))
	require.NoError(t, e.Shutdown(t.Context()))
	require.Equal(t, "/spans", c.requests[0].URL.Path)
}
