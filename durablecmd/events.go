package durablecmd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/events"
	"github.com/durable-worker/durable-worker/observe/metrics"
	"github.com/durable-worker/durable-worker/store"
)

const (
	varEvents       = "DURABLE_EVENTS"
	varEventsURL    = "DURABLE_EVENTS_WEBHOOK_URL"
	varEventsSecret = "DURABLE_EVENTS_WEBHOOK_SECRET" //nolint:gosec // a name
	defaultEvents   = "run.dead,run.reclaimed,run.stuck,worker.started,worker.stopped"
	heartbeatEvery  = time.Minute // between the events worker.heartbeat
)

func eventVariables() []variable {
	hook := variable{name: varEventsURL, standard: "none", unit: "address", constraint: "https://host/path, and " + varEventsSecret,
		show: func(c Config) string { return hostOnly(c.EventsURL) },
		valid: func(c Config) bool {
			return c.EventsURL == "" || events.CheckURL(c.EventsURL) == nil && c.EventsSecret != ""
		}}
	key := secret(varEventsSecret, func(c Config) string { return c.EventsSecret }, func(c Config) string { return c.EventsSecretFile })
	key[0].constraint = "at least 16 characters, or whsec_ and base64; two with a space between them while you change it"
	key[0].valid = func(c Config) bool { return c.EventsSecret == "" || events.CheckSecret(c.EventsSecret) == nil }
	return append([]variable{
		hook,
		{name: varEvents, standard: defaultEvents, unit: "names", constraint: "kinds of events separated by commas, such as run.dead; run.*, operator.*, worker.* or all",
			show: func(c Config) string { return c.Events },
			valid: func(c Config) bool {
				_, err := events.ParseKinds(c.Events)
				return err == nil
			}},
		{name: "DURABLE_EVENTS_ERRORS", standard: "false", unit: "switch", constraint: "true or false; true: with the texts of errors",
			show: func(c Config) string {
				if c.EventsErrors {
					return "true"
				}
				return "false"
			}},
	}, key...)
}

// hostOnly is a URL without what may be a secret in it.
func hostOnly(text string) string {
	if text == "" {
		return "none"
	}
	u, err := url.Parse(text)
	if err != nil {
		return "(set)"
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// feed passes events on to the webhook while the worker works. A nil feed does nothing.
type feed struct {
	stream  *events.Stream
	client  *http.Client
	version string
}

// newFeed is the feed of a configuration; nil: none.
func newFeed(config Config, version string, logger *slog.Logger) (*feed, error) {
	if config.EventsURL == "" {
		return nil, nil
	}
	kinds, err := events.ParseKinds(config.Events)
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}}
	hook, fault := events.NewWebhook(events.WebhookConfig{URL: config.EventsURL, Secret: config.EventsSecret, Client: client})
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	return &feed{version: version, client: client, stream: events.New(hook, events.Config{Kinds: kinds, Worker: config.WorkerName, Errors: config.EventsErrors, Logger: logger})}, nil
}

// into adds the hooks of the feed to those that there are.
func (f *feed) into(hooks observe.Hooks) observe.Hooks {
	if f == nil {
		return hooks
	}
	return observe.Join(f.stream.Hooks(), hooks)
}

// begin passes events on until the function that it returns is called, which waits for
// what is under way.
func (f *feed) begin(ctx context.Context, worker *durable.Worker) (end func()) {
	if f == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { f.stream.Run(ctx) })
	running.Go(func() { f.beat(ctx, worker) })
	f.stream.Worker(events.WorkerStarted, f.state(worker))
	return func() {
		f.stream.Worker(events.WorkerStopped, f.state(worker))
		cancel()
		running.Wait()
		f.client.CloseIdleConnections()
	}
}

// feedChanges passes on as events what the program's operators change, if the
// configuration wants them, until the function that it returns is called. It waits then
// for a few seconds for what is under way.
func (p *program) feedChanges(ctx context.Context, config Config, logger *slog.Logger) (end func(), err error) {
	kinds, _ := events.ParseKinds(config.Events) // the configuration has been checked
	if !slices.Contains(kinds, events.OperatorChanged) {
		return func() {}, nil
	}
	f, err := newFeed(config, p.seams.versionOf(), logger)
	if f == nil || err != nil {
		return func() {}, err
	}
	p.changed = f.stream.Changed
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { f.stream.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
		f.client.CloseIdleConnections()
	}, nil
}

// changes is what takes the changes of operators; nil: nothing does.
func (f *feed) changes() func(store.Change) {
	if f == nil {
		return nil
	}
	return f.stream.Changed
}

func (f *feed) beat(ctx context.Context, worker *durable.Worker) {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.stream.Worker(events.WorkerHeartbeat, f.state(worker))
		}
	}
}

func (f *feed) state(worker *durable.Worker) events.State {
	s := worker.Status()
	return events.State{Version: f.version, Ready: s.Ready, Executing: s.Executing, Capacity: s.Capacity, Stuck: s.Stuck}
}

// metrics are the figures of the feed; nil: there is none.
func (f *feed) metrics() *metrics.Events {
	if f == nil {
		return nil
	}
	t := f.stream.Totals()
	return &metrics.Events{Sent: t.Sent, Dropped: t.Dropped, Failed: t.Failed, Waiting: t.Waiting}
}
