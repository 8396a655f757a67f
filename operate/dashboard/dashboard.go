package dashboard

import (
	"errors"
	"html/template"
	"log/slog"
	"net/http"

	"github.com/durable-worker/durable-worker/operate"
)

// Config is what the pages need beside an Operator.
type Config struct {
	// Title names what the workers work for, such as "shop". It is shown on every
	// page. Empty: nothing is shown.
	Title string
	// Logger receives the errors that people see as a number. Default: none.
	Logger *slog.Logger
}

// dashboard is the pages of one Operator.
type dashboard struct {
	operator *operate.Operator
	config   Config
	pages    map[string]*template.Template
	files    files
	headers  *headers
	logger   *slog.Logger
}

// New returns the pages as a handler.
func New(operator *operate.Operator, config Config) (http.Handler, error) {
	if operator == nil {
		return nil, errors.New("dashboard: no operator")
	}
	files, err := readFiles()
	if err != nil {
		return nil, err
	}
	pages, err := parsePages()
	if err != nil {
		return nil, err
	}
	logger := config.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	d := &dashboard{operator: operator, config: config, pages: pages, files: files, headers: newHeaders(), logger: logger}
	return d.routes(), nil
}

// routes says which function makes which page.
func (d *dashboard) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, make := range map[string]maker{
		"/{$}":         d.overview,
		"/runs":        d.runs,
		"/runs/{id}":   d.run,
		"/runs/change": d.confirmRuns,
		"/queues":      d.queues,
	} {
		mux.Handle("GET "+pattern, d.page(make))
	}
	for pattern, act := range map[string]maker{
		"/runs/change": d.changeRuns,
	} {
		mux.Handle("POST "+pattern, d.page(act))
	}
	mux.HandleFunc("GET /assets/{name}", d.files.serve)
	mux.Handle("/", d.page(d.nowhere))
	return mux
}
