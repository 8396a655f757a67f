package durablecmd

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe/logs"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// dashboardVerb serves the dashboard without a worker.
type dashboardVerb struct{}

// Run serves until it is signalled.
func (dashboardVerb) Run(ctx context.Context, p *program) error {
	p.service = true
	return p.withStore(ctx, served, func(ctx context.Context, db backend.Store, config Config) error {
		logger := newLogger(p.errors(), config.LogLevel, config.LogFormat)
		switch config.DashboardAddr {
		case "":
			config.DashboardAddr = dashboardAlone
		case "off":
			return &configError{[]invalidVariable{{varDashboardAddr, "off", "there is nothing else to serve; want host:port"}}}
		}
		locks, closeLocks, err := openLocks(ctx, db, config)
		if err != nil {
			return err
		}
		defer closeLocks(logger)
		board, err := p.listenDashboard(ctx, config, logger)
		if err != nil {
			return err
		}
		defer board.open(db, locks, p.changed)()
		scheme := "http"
		if config.DashboardCert != "" {
			scheme = "https"
		}
		fmt.Fprintf(logs.New(p.stdout, logs.Config{}), "%s://%s/\n", scheme, board.listener.Addr())
		return board.serve(ctx)
	})
}

// maxDashboard is how many connections the dashboard has at a time: those of all
// streams and some. See bounded for who keeps one when there are more.
const maxDashboard = 1200

// board is a dashboard that listens. Until it is open it has no store to show.
type board struct {
	p        *program
	config   Config
	logger   *slog.Logger
	title    string // of what is shown; empty: none
	listener net.Listener
	shown    atomic.Pointer[http.Handler]
}

// listenDashboard opens the dashboard's listener; nil: none is wanted.
func (p *program) listenDashboard(ctx context.Context, config Config, logger *slog.Logger) (*board, error) {
	if config.DashboardAddr == "" || config.DashboardAddr == "off" {
		return nil, nil
	}
	var binder net.ListenConfig
	listener, err := binder.Listen(ctx, "tcp", config.DashboardAddr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", varDashboardAddr, err)
	}
	listener = newBounded(listener, maxDashboard, "dashboard", logger)
	if config.DashboardCert != "" {
		pair, err := tls.LoadX509KeyPair(config.DashboardCert, config.DashboardKey)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", varTLSCert, err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	}
	return &board{p: p, config: config, logger: logger, listener: listener}, nil
}

// open shows a store. The function that it returns ends what the dashboard has begun.
func (b *board) open(db backend.Store, locks lock.Locks, changed func(store.Change)) (end func()) {
	if b == nil {
		return func() {}
	}
	b.p.changed = changed
	operator := operate.New(db, b.p.operating(db, locks)) // what it repeats is no news: a request that fails is logged
	handler, err := b.handler(operator)
	if err != nil { // the configuration has been checked
		b.logger.Error("the dashboard cannot be served", "event", "dashboard.failed", "error", err)
		return operator.Close
	}
	b.shown.Store(&handler)
	return func() {
		b.shown.Store(nil)
		operator.Close()
	}
}

// handler is everything that the dashboard serves.
func (b *board) handler(operator *operate.Operator) (http.Handler, error) {
	mux, auth, hosts := http.NewServeMux(), b.config.auth(), list(b.config.DashboardHosts)
	args, texts := b.config.sees()
	v1, err := api.New(operator, api.Config{Auth: auth, Hosts: hosts, Args: args, Texts: texts, Logger: b.logger})
	if err != nil {
		return nil, err
	}
	mux.Handle("/api/v1/", http.StripPrefix("/api/v1", v1))
	pages, err := dashboard.New(operator, dashboard.Config{Auth: auth, Hosts: hosts, Args: args, Texts: texts, Title: b.title, Logger: b.logger})
	mux.Handle("/", pages)
	return mux, err
}

// ServeHTTP answers once there is a store.
func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if shown := b.shown.Load(); shown != nil {
		(*shown).ServeHTTP(w, r)
		return
	}
	wire.NewProblem(http.StatusServiceUnavailable, operate.Unreachable, "The database has not been reached yet.").Write(w)
}

// serve serves until ctx ends, which ends streams too.
func (b *board) serve(ctx context.Context) error {
	server := access.Server(b, b.logger)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	server.ConnContext = acquainted
	return serveUntil(ctx, server, b.listener, "dashboard")
}
