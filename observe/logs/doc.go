// Package logs writes a log to a place that may stop taking it, and does not make the
// program wait for it: a pipe that is not read any more, the pipe of a log driver that
// hangs, a disk that is full.
//
//	lines := logs.New(os.Stderr, logs.Config{})
//	logger := slog.New(slog.NewJSONHandler(lines, nil))
//	defer lines.Flush(ctx)
//
// Every handler of package slog writes while it holds a lock, and a write to a pipe that is
// full does not return. So one goroutine that logs stops all the others that do.
//
// A reader that goes away is another matter: a write to the standard streams of a process
// then ends it with SIGPIPE, unless the process receives this signal:
//
//	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
//
// Begin reading at writer.go.
package logs
