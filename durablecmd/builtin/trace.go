package builtin

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// The names of the W3C's headers.
const (
	headerParent = "Traceparent"
	headerState  = "Tracestate"
)

// setTrace sets the headers that join what a run asks of others with its trace. A
// trace that is the run's id has its fence as the span, and is not sampled.
func (j *Jobs) setTrace(ctx context.Context, run durable.RunInfo, header http.Header) {
	if j.config.Trace != nil {
		if j.config.Trace(ctx, header); header.Get(headerParent) != "" {
			return
		}
	}
	parent, state := store.TraceHeaders(run.Trace)
	if parent == "" {
		header.Set(headerParent, fmt.Sprintf("00-%x-%016x-00", run.ID[:], max(uint64(run.Fence), 1))) //nolint:gosec // not negative
		return
	}
	header.Set(headerParent, parent)
	if state != "" {
		header.Set(headerState, state)
	}
}

// traceVariables are the headers as a program has them in its environment.
func (j *Jobs) traceVariables(ctx context.Context, run durable.RunInfo) (environ []string) {
	header := http.Header{}
	j.setTrace(ctx, run, header)
	for _, name := range []string{headerParent, headerState} {
		if value := header.Get(name); value != "" && !strings.ContainsRune(value, 0) {
			environ = append(environ, strings.ToUpper(name)+"="+value)
		}
	}
	return environ
}
