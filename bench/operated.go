package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/otlp"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/events"
	"github.com/durable-worker/durable-worker/observe/metrics"
	"github.com/durable-worker/durable-worker/observe/tracing"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store/backend"
)

// operated is what operating offers, switched on beside a worker as the stock worker
// has it: metrics that are scraped as often as deploy/prometheus has it, spans
// and events that leave for a collector, and the API and the pages, on connections of
// their own, with one stream open on one of the workers. OTEL_TRACES_SAMPLER chooses among the traces; by default all are taken.
type operated struct {
	db        backend.Store
	operator  *operate.Operator
	operators string // URL at which this worker announces itself
	server    *httptest.Server
	tally     *observe.Tally
	spans     *otlp.TracerProvider
	stream    *events.Stream
	end       context.CancelFunc
	running   sync.WaitGroup
}

const (
	scrapePause = 15 * time.Second
	samplePause = 10 // scrapes after which each of 20 stock workers reads the database's part again
)

const operatorToken = "bench-operator-0123456789abcdef" //nolint:gosec // of a server on loopback

// operatedOf switches it on in the configuration of a worker.
func operatedOf(ctx context.Context, s spec, config *durable.WorkerConfig, logger *slog.Logger) (o *operated, err error) {
	o = &operated{tally: observe.NewTally(), operators: s.Collector}
	if o.db, err = backend.Open(ctx, s.Target, backend.Config{Logger: logger, Operators: true}); err != nil {
		return nil, err
	}
	settings, err := otlp.FromEnvironment(func(name string) string {
		if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
			return s.Collector
		}
		return os.Getenv(name)
	})
	if err == nil {
		o.spans, err = otlp.Provider(ctx, settings, otlp.Service{Name: "bench"}, logger)
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	kinds, _ := events.ParseKinds("run.dead,run.reclaimed,run.stuck,worker.started,worker.stopped") // the default
	hook, err := events.NewWebhook(events.WebhookConfig{URL: s.Collector + "/events", Secret: operatorToken})
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.stream = events.New(hook, events.Config{Kinds: kinds, Worker: "bench", Logger: logger})
	config.Tally = o.tally
	config.Hooks = observe.Join(tracing.Hooks(tracing.Config{Provider: o.spans}), o.stream.Hooks())
	return o, o.serve(logger)
}

// serve serves what operators see.
func (o *operated) serve(logger *slog.Logger) error {
	o.operator = operate.New(o.db, operate.Config{})
	auth := access.Tokens(operatorToken, "")
	v1, err := api.New(o.operator, api.Config{Auth: auth, Logger: logger})
	if err != nil {
		return err
	}
	pages, err := dashboard.New(o.operator, dashboard.Config{Auth: auth, Logger: logger})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", http.StripPrefix("/api/v1", v1))
	mux.Handle("/", pages)
	var scrapes atomic.Int64
	scrapes.Store(rand.Int64N(samplePause))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if scrapes.Add(1)%samplePause == 0 {
			if _, err := o.operator.Sample(r.Context()); err != nil && r.Context().Err() == nil {
				fmt.Fprintln(os.Stderr, "sample:", err)
			}
		}
		metrics.Serve(w, r, metrics.Snapshot{Totals: o.tally.Totals()})
	})
	o.server = httptest.NewServer(mux)
	return nil
}

// begin sends events, and announces this worker to the operators.
func (o *operated) begin(ctx context.Context, watched bool) {
	ctx, o.end = context.WithCancel(ctx)
	o.running.Go(func() { o.stream.Run(ctx) })
	there := url.Values{"url": {o.server.URL}, "watched": {strconv.FormatBool(watched)}}
	o.running.Go(func() { ask(ctx, o.operators+"/workers?"+there.Encode()) })
}

// ask reads an answer to its end.
func ask(ctx context.Context, url string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	r.Header.Set("Authorization", "Bearer "+operatorToken)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		fmt.Fprintf(os.Stderr, "%s: %s\n", url, answer.Status)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
}

func (o *operated) close() (err error) {
	if o.end != nil {
		o.end()
		o.running.Wait()
	}
	if o.spans != nil {
		err = o.spans.Shutdown(context.Background())
	}
	if o.server != nil {
		o.server.CloseClientConnections()
		o.server.Close()
	}
	if o.operator != nil {
		o.operator.Close()
	}
	o.db.Close()
	return err
}

// operators scrape the workers that announce themselves, watch one of them, and take what they
// send. They run in the process of the benchmark, so their CPU is not counted as the workers'.
type operators struct {
	server  *httptest.Server
	end     context.CancelFunc
	running sync.WaitGroup
}

func operatorsOf(ctx context.Context) *operators {
	o := &operators{}
	ctx, o.end = context.WithCancel(ctx)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("GET /workers", func(_ http.ResponseWriter, r *http.Request) {
		worker := r.FormValue("url")
		o.running.Go(func() { scrape(ctx, worker+"/metrics") })
		if r.FormValue("watched") == "true" {
			o.running.Go(func() { ask(ctx, worker+"/api/v1/events") })
		}
	})
	o.server = httptest.NewServer(mux)
	return o
}

// scrape reads the metrics of a worker, the first time at some time of the pause.
func scrape(ctx context.Context, url string) {
	if pause(ctx, rand.N(scrapePause)) != nil {
		return
	}
	tick := time.NewTicker(scrapePause)
	defer tick.Stop()
	for ctx.Err() == nil {
		ask(ctx, url)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (o *operators) close() {
	o.end()
	o.server.CloseClientConnections()
	o.server.Close()
	o.running.Wait()
}

// operatedRows measure workers with all that operating offers switched on beside the
// same with nothing of it.
func operatedRows(n int, window time.Duration) []row {
	with := func(what string, measure func(ctx context.Context, b *bench, s spec, label string) (sample, error)) []side {
		return []side{
			{name: "operated", measure: func(ctx context.Context, b *bench, label string) (sample, error) {
				o := operatorsOf(ctx)
				defer o.close()
				return measure(ctx, b, spec{Contender: ours, Collector: o.server.URL}, label)
			}},
			{name: what, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
				return measure(ctx, b, spec{Contender: ours}, label)
			}},
		}
	}
	drained := func(ctx context.Context, b *bench, s spec, label string) (sample, error) {
		s.Concurrency = tuned(ours).Concurrency
		return b.drain(ctx, drain{worker: s, n: n, processes: 1, label: label})
	}
	fleets := func(ctx context.Context, b *bench, s spec, label string) (sample, error) {
		return fleet{workers: 20, rate: 100, window: window, collector: s.Collector}.measure(ctx, b, ours, label)
	}
	costs := unbounded(costs())
	for i := range costs {
		costs[i].ratio = 0.98
	}
	return []row{
		{name: "operated-drain", long: true, title: fmt.Sprintf("drain %d runs with metrics, traces, events, API and pages in use", n),
			figures: append([]figure{rate(0.98)}, costs...), sides: with("plain", drained)},
		{name: "operated-fleet", long: true, title: "20 workers, 100 single enqueues a second, with metrics, traces, events, API and pages in use",
			figures: fleetFigures(), sides: with("plain", fleets)},
	}
}
