package dashboard

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
)

// Config is what the pages need beside an Operator. Auth must be given.
type Config struct {
	// Auth says who asks, and what they may do.
	Auth access.Auth
	// Hosts are the names under which the pages may be asked for, without ports. Empty:
	// any; with access.Loopback, those of this machine.
	Hosts []string
	// Args is the least role that sees args, results and checkpoints. Default:
	// access.Operator. Others see how many bytes they have, and cannot search in args.
	Args access.Role
	// Texts is the least role that sees what handlers have written: errors, stacks, log
	// lines and notes of progress. Default: access.Viewer. Others cannot search in errors.
	Texts access.Role
	// Title names what the workers work for, such as "shop". It is shown on every
	// page. Empty: nothing is shown.
	Title string
	// Logger receives refusals, and the errors that people see as a page. Default: none.
	Logger *slog.Logger
}

// dashboard is the pages of one Operator.
type dashboard struct {
	operator *operate.Operator
	config   Config
	pages    pages
	files    files
	headers  *headers
	logger   *slog.Logger
}

// New returns the pages as a handler, to be mounted at any path with
// http.StripPrefix. The error names what is missing.
func New(operator *operate.Operator, config Config) (http.Handler, error) {
	if operator == nil {
		return nil, errors.New("dashboard: no operator")
	}
	files, err := readFiles()
	if err != nil {
		return nil, err
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	d := &dashboard{operator: operator, config: config, files: files, headers: newHeaders(), logger: config.Logger}
	handler, err := access.Handler(d.routes(), access.Config{
		Auth: config.Auth, Hosts: config.Hosts, Media: "application/x-www-form-urlencoded", Login: true, Open: []string{"/assets/"},
		Refuse: d.refuse, Sessions: operator, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	return rooted(handler), nil
}

// routes says which function makes which page. The names of queues, schedules and the
// like are in the query: as parts of a path, some of them would change it.
func (d *dashboard) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, maker := range d.makers() {
		mux.Handle(pattern, d.page(maker))
	}
	mux.HandleFunc("GET /live", d.live)
	mux.HandleFunc("GET /assets/{name}", d.files.serve)
	return mux
}

// makers are the functions that make the pages.
func (d *dashboard) makers() map[string]makes {
	return map[string]makes{
		"GET /{$}":                  d.overview,
		"GET /login":                d.login,
		"GET /runs":                 d.runs,
		"GET /runs/new":             d.newRun,
		"POST /runs/new":            d.enqueue,
		"GET /runs/change":          d.confirmRuns,
		"POST /runs/change":         d.changeRuns,
		"GET /runs/{id}":            d.run,
		"GET /runs/{id}/rerun":      d.askRerun,
		"POST /runs/{id}/rerun":     d.rerun,
		"GET /runs/{id}/reveal":     d.askReveal,
		"POST /runs/{id}/reveal":    d.reveal,
		"GET /runs/{id}/send":       d.askSend,
		"POST /runs/{id}/send":      d.send,
		"GET /runs/{id}/forget":     d.askForget,
		"POST /runs/{id}/forget":    d.forget,
		"GET /bulk":                 d.bulks,
		"GET /bulk/{n}":             d.bulk,
		"POST /bulk/{n}":            d.stopBulk,
		"GET /batches":              d.batches,
		"GET /batches/{id}":         d.batch,
		"GET /batches/{id}/change":  d.askBatch,
		"POST /batches/{id}/change": d.changeBatch,
		"GET /problems":             d.problems,
		"GET /problems/change":      d.askProblem,
		"POST /problems/change":     d.changeProblem,
		"GET /queues":               d.queues,
		"GET /queues/change":        d.askQueue,
		"POST /queues/change":       d.changeQueue,
		"GET /jobs":                 d.jobs,
		"GET /schedules":            d.schedules,
		"GET /schedules/change":     d.askSchedule,
		"POST /schedules/change":    d.changeSchedule,
		"GET /schedules/new":        d.askNewSchedule,
		"POST /schedules/new":       d.newSchedule,
		"GET /schedules/edit":       d.askEdit,
		"POST /schedules/edit":      d.edit,
		"GET /workers":              d.workers,
		"GET /workers/{instance}":   d.worker,
		"GET /limits":               d.limits,
		"GET /limits/change":        d.askLimit,
		"POST /limits/change":       d.changeLimit,
		"GET /locks":                d.locks,
		"GET /locks/release":        d.askLock,
		"POST /locks/release":       d.releaseLock,
		"GET /audit":                d.audit,
		"GET /audit.csv":            d.auditFile,
		"GET /health":               d.health,
		"/":                         d.nowhere,
	}
}
