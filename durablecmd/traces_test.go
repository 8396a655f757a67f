package durablecmd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/otlp/otlptest"
)

// The kinds and the status of a span in OTLP.
const (
	otlpClient, otlpProducer, otlpConsumer = 3, 4, 5
	otlpError                              = 2
)

// A run of a program's own enqueues one of the job http, whose request belongs to the
// same trace.
func TestTheStockWorkerExportsTraces(t *testing.T) {
	t.Parallel()
	collector := otlptest.Start(t)
	asked := make(chan http.Header, 1)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer target.Close()
	env := migrated(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "DURABLE_HTTP_JOB_ALLOW="+target.URL, "DURABLE_TRACE_DETAIL=calls",
		"DURABLE_WORKER_NAME=web-7")
	s := serve(t, env, func(_ context.Context, app *durablecmd.App) error {
		durablecmd.RegisterJobs(app)
		durable.Register(app.Worker, durable.NewJob[string]("order"), func(ctx context.Context, run *durable.Run[string]) error {
			_, err := durable.NewJob[map[string]string]("http").Enqueue(ctx, app.Client, map[string]string{"url": run.Args})
			return err
		})
		return nil
	})
	s.logs("worker started")
	require.Zero(t, execute(t, env, "enqueue", "order", "--args", `"`+target.URL+`/canary"`).code)
	header := <-asked
	s.logs("run is dead")
	s.signal()
	require.Zero(t, s.ends())

	order, enqueued, posted := collector.Named(t, "execute order"), collector.Named(t, "enqueue http"), collector.Named(t, "execute http")
	require.Empty(t, order.Parent)
	require.Equal(t, order.ID, enqueued.Parent)
	require.Equal(t, enqueued.ID, posted.Parent)
	require.Equal(t, []string{enqueued.ID}, posted.Links)
	require.Equal(t, posted.ID, collector.Named(t, "settle http").Parent)
	require.Equal(t, []uint64{otlpProducer, otlpConsumer, otlpClient}, []uint64{enqueued.Kind, posted.Kind, collector.Named(t, "settle http").Kind})
	require.Equal(t, order.Trace, posted.Trace)
	require.Equal(t, "00-"+posted.Trace+"-"+posted.ID+"-01", header.Get("Traceparent"), "the request names the attempt's span")
	require.EqualValues(t, otlpError, posted.Status)
	require.Equal(t, "dead", posted.Attributes["durable.outcome"])
	require.Equal(t, "web-7", posted.Resource["service.instance.id"])
	require.NotEmpty(t, posted.Resource["service.name"])
	for _, span := range collector.Spans(t) {
		for name, value := range span.Attributes {
			require.NotContains(t, value, "canary", name)
		}
	}
}

// A collector that does not answer keeps no run waiting, and no worker from stopping.
func TestACollectorThatHangsKeepsNothingWaiting(t *testing.T) {
	t.Parallel()
	const runs = 3000 // more than the spans that may wait
	hung := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	defer collector.Close()
	defer close(hung)
	var executed atomic.Int64
	done := make(chan struct{})
	s := serve(t, []string{"DURABLE_DATABASE_URL=memory:", "DURABLE_HTTP_ADDR=off", "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_EXPORTER_OTLP_TIMEOUT=300"},
		func(ctx context.Context, app *durablecmd.App) error {
			job := durable.NewJob[int]("count")
			durable.Register(app.Worker, job, func(context.Context, *durable.Run[int]) error {
				if executed.Add(1) == runs {
					close(done)
				}
				return nil
			})
			for i := range runs {
				if _, err := job.Enqueue(ctx, app.Client, i); err != nil {
					return err
				}
			}
			return nil
		})
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%d runs were executed:\n%s", executed.Load(), s.stderr)
	}
	s.signal()
	require.Zero(t, s.ends())
	require.Contains(t, s.stderr.String(), "spans could not be exported and are lost")
	require.EqualValues(t, runs, executed.Load())
}

// Without the variables nothing is exported; wrong ones are said, and change nothing else.
func TestTracesThatAreOffOrWrong(t *testing.T) {
	t.Parallel()
	collector := otlptest.Start(t)
	for name, env := range map[string][]string{
		"off":   {"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_TRACES_EXPORTER=none"},
		"wrong": {"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
	} {
		env = append(env, "DURABLE_DATABASE_URL=memory:", "DURABLE_HTTP_ADDR=off")
		s := serve(t, env, func(ctx context.Context, app *durablecmd.App) error {
			durablecmd.RegisterJobs(app)
			_, err := durable.NewJob[map[string]string]("log").Enqueue(ctx, app.Client, map[string]string{"message": "good morning"})
			return err
		})
		s.logs("good morning")
		s.signal()
		require.Zero(t, s.ends())
		require.Equal(t, name == "wrong", strings.Contains(s.stderr.String(), "OTEL_EXPORTER_OTLP_PROTOCOL: want http/protobuf"))
		require.Empty(t, collector.Spans(t))
		require.Equal(t, name == "wrong", strings.Contains(execute(t, env, "doctor").stdout, "OTEL_EXPORTER_OTLP_PROTOCOL: want http/protobuf"))
	}
}
