package access

import (
	"log/slog"
	"net/http"
	"time"
)

// Server returns a server for a handler, with limits of time and of headers, so that
// slow clients cost little. Answers that last set their own deadlines by
// http.ResponseController.
func Server(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
