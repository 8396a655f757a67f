package durablecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/logs"
	"github.com/durable-worker/durable-worker/observe/metrics"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

const defaultHTTPAddr = "127.0.0.1:8080"

// listen opens the health listener, or returns nil where none is wanted. Only
// an address that was not asked for gives way to a free port, as a second worker on
// the machine of a developer needs it.
func listen(ctx context.Context, config Config, logger *slog.Logger) (net.Listener, error) {
	if config.HTTPAddr == "off" {
		return nil, nil
	}
	var binder net.ListenConfig
	listener, err := binder.Listen(ctx, "tcp", config.HTTPAddr)
	if errors.Is(err, syscall.EADDRINUSE) && !config.given[varHTTPAddr] {
		if listener, err = binder.Listen(ctx, "tcp", "127.0.0.1:0"); err == nil {
			logger.Warn("the health port is taken, using a free one: set "+varHTTPAddr+" where probes must find it", "event", "health.port_taken",
				"taken", config.HTTPAddr, "addr", listener.Addr().String())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", varHTTPAddr, err)
	}
	return listener, nil
}

// serve answers health checks until ctx ends. A client may
// have few connections, and each for seconds only: a probe needs no more.
func serve(ctx context.Context, listener net.Listener, health *health, logger *slog.Logger) error {
	server := &http.Server{
		Handler:           health.mux,
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      5 * time.Second,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false)
	return serveUntil(ctx, server, newBounded(listener, maxProbes, "health", logger), "health listener")
}

// serveUntil serves until ctx ends, and then for a moment.
func serveUntil(ctx context.Context, server *http.Server, listener net.Listener, what string) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("%s: %w", what, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		_ = server.Close() // answers are short; clients that still read are cut off
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// health knows how the process is doing. A new one is of a worker that has not
// reached its database.
type health struct {
	mux     *http.ServeMux // App.Handle adds to it
	version string         // of the program
	lines   *logs.Writer   // of the log; nil: it is not known how it fares
	patient time.Duration  // how long the log may take one write

	mu     sync.Mutex
	worker *durable.Worker
	tally  *observe.Tally
	pools  func() []store.Pool
	sample *sampler
	locks  *lockProbe // nil: they are in the worker's own database
	feed   *feed
}

// watch makes the state of the app's worker the answer.
func (h *health) watch(app *App) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worker, h.tally, h.feed = app.Worker, app.Tally, app.feed
	if app.config.RedisURL != "" {
		h.locks = &lockProbe{probe: lock.NewLocker(app.Locks, lock.LockerConfig{CallTimeout: probeWithin}).Probe, now: lease.Elapsed}
	}
	h.sample = &sampler{read: operate.New(app.Store, operate.Config{}).Sample, now: lease.Elapsed}
	if s, ok := app.Store.(interface{ Pools() []store.Pool }); ok {
		h.pools = s.Pools
	}
}

func (h *health) watched() *durable.Worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.worker
}

func (h *health) lockProbe() *lockProbe {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.locks
}

// hear makes the state of the log a part of the answer: it fails when one write has taken
// longer than the given time. Call it before anything is served.
func (h *health) hear(lines *logs.Writer, patient time.Duration) { h.lines, h.patient = lines, patient }

// unheard says that the log is not read; empty: it is, or its writes fail, which a restart
// would not change.
func (h *health) unheard() string {
	if h.lines == nil {
		return ""
	}
	if blocked := h.lines.Blocked(); blocked > h.patient {
		return fmt.Sprintf("the log is not read: a write to it has not returned for %v", blocked.Round(time.Second))
	}
	return ""
}

// hurry ends the worker's drain, if there is a worker.
func (h *health) hurry() {
	if w := h.watched(); w != nil {
		w.StopNow()
	}
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready        bool            `json:"ready"`
	Reason       *string         `json:"reason"` // why not
	Executing    int             `json:"executing"`
	Stuck        int             `json:"stuck"`
	SinceContact *store.Duration `json:"since_contact"` // with the database
	Unsettled    *unsettled      `json:"unsettled"`     // outcomes that the database does not take; null: none
	Locks        *lock.Health    `json:"locks"`         // of their store, as the last probe found it; null: it is the database, or the first probe is under way
	SetAside     []setAside      `json:"set_aside"`     // what else the database refuses to change, and the worker goes around; some
}

// setAside names one thing that the database refuses to change.
type setAside struct {
	Doing string `json:"doing"` // what was tried
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Tries int    `json:"tries"`
}

// namedMost bounds the things that /readyz names.
const namedMost = 10

func setAsideOf(all []durable.SetAside) []setAside {
	named := []setAside{}
	for _, one := range all[:min(len(all), namedMost)] {
		named = append(named, setAside{Doing: one.Doing, Kind: one.Kind, Name: one.Name, Tries: one.Tries})
	}
	return named
}

// unsettled reports outcomes that the database does not take.
type unsettled struct {
	Count  int             `json:"count"`
	Runs   []durable.RunID `json:"runs"` // some
	Locked int             `json:"locked"`
}

// unsettledOf is what health checks show of outcomes that cannot be written. The reason
// is in the logs only: an error of the database may hold what clients may not see.
func unsettledOf(s durable.Unsettled) *unsettled {
	if s.Count == 0 && s.Locked == 0 && !s.Full {
		return nil
	}
	return &unsettled{Count: s.Count, Runs: append([]durable.RunID{}, s.Runs...), Locked: s.Locked}
}

func (h *health) readiness(ctx context.Context) readiness {
	notReady := func(r readiness, reason string) readiness {
		r.Reason = &reason
		return r
	}
	w := h.watched()
	if w == nil {
		return notReady(readiness{SetAside: []setAside{}}, "the database has not been reached yet")
	}
	s := w.Status()
	since := store.Duration(s.SinceContact.Round(time.Millisecond))
	r := readiness{Executing: s.Executing, Stuck: s.Stuck, SinceContact: &since, Unsettled: unsettledOf(s.Unsettled), SetAside: setAsideOf(s.SetAside)}
	if found := h.lockProbe().latest(ctx); found != nil {
		r.Locks = &found.health
	}
	unheard := h.unheard()
	switch {
	case s.Draining:
		return notReady(r, "draining")
	case s.Unsettled.Full:
		return notReady(r, "too many outcomes cannot be written: the worker claims nothing until the database takes them")
	case s.Misfit != "":
		return notReady(r, "the database's schema does not fit this program: "+s.Misfit)
	case !s.Ready:
		return notReady(r, "the worker is not in touch with its database")
	case unheard != "":
		return notReady(r, unheard)
	default:
		r.Ready = true
		return r
	}
}

// newHealth serves /healthz, which says that the process answers and is heard, /readyz,
// which says that the worker takes work, and /metrics.
func newHealth(version string) *health {
	mux := http.NewServeMux()
	h := &health{mux: mux, version: version}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if reason := h.unheard(); reason != "" {
			answer(w, http.StatusServiceUnavailable, map[string]string{"status": "failing", "reason": reason})
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, request *http.Request) {
		r := h.readiness(request.Context())
		status := http.StatusOK
		if !r.Ready {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, r)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { metrics.Serve(w, r, h.metrics(r.Context())) })
	return h
}

// metrics is what /metrics shows.
func (h *health) metrics(ctx context.Context) metrics.Snapshot {
	h.mu.Lock()
	worker, tally, pools, sample, feed := h.worker, h.tally, h.pools, h.sample, h.feed
	h.mu.Unlock()
	shown := metrics.Snapshot{Version: h.version, Events: feed.metrics()}
	if tally != nil {
		shown.Totals = tally.Totals()
	}
	if pools != nil {
		shown.Pools = pools()
	}
	if sample != nil {
		shown.Database = sample.latest(ctx)
	}
	shown.Locks = h.lockProbe().latest(ctx).metrics()
	if h.lines != nil {
		shown.Log = &metrics.Log{Dropped: h.lines.Dropped(), Blocked: h.lines.Blocked()}
	}
	if worker == nil {
		return shown
	}
	s := worker.Status()
	shown.Worker = &metrics.Worker{Ready: s.Ready, Draining: s.Draining, Capacity: s.Capacity, Stuck: s.Stuck, BeatLag: s.BeatLag, LeaseMargin: s.LeaseMargin, CPULatency: s.SchedulingLatency, Waiting: s.Waiting,
		SinceContact: s.SinceContact, Outages: s.Outages, Outage: s.Outage, Resting: s.Resting, Unsettled: s.Unsettled.Count, Locked: s.Unsettled.Locked, SetAside: map[string]int{}}
	for _, one := range s.SetAside {
		shown.Worker.SetAside[one.Doing]++
	}
	return shown
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the asker may have gone
}
