// Command tracing carries a W3C trace from a web request to the handler of the
// run that it enqueued, and on to the run that this handler enqueued. The spans
// are log lines; a tracer for OpenTelemetry has the same shape.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
	"github.com/durable-worker/durable-worker/store"
)

// span is one piece of work within a trace.
type span struct{ trace, id string }

type spanKey struct{}

// traceparent is the span as the W3C has it written.
func (s span) traceparent() string { return "00-" + s.trace + "-" + s.id + "-01" }

// parse reads a traceparent; the zero span: there is none.
func parse(traceparent string) span {
	if part := strings.Split(traceparent, "-"); len(part) == 4 && len(part[1]) == 32 && len(part[2]) == 16 {
		return span{part[1], part[2]}
	}
	return span{}
}

// spans is a Tracer that writes a line for each span that has ended.
type spans struct {
	mu  sync.Mutex
	out io.Writer
}

// begin starts a span below another one, or a trace of its own.
func (t *spans) begin(ctx context.Context, parent span, name string) (context.Context, span, func(outcome any)) {
	s := span{parent.trace, random(8)}
	if s.trace == "" {
		s.trace = random(16)
	}
	return context.WithValue(ctx, spanKey{}, s), s, func(outcome any) {
		t.mu.Lock()
		defer t.mu.Unlock()
		fmt.Fprintf(t.out, "trace=%s span=%s parent=%-16s %s: %v\n", s.trace, s.id, parent.id, name, outcome)
	}
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Enqueue begins a span below the caller's, and gives it to the runs.
func (t *spans) Enqueue(ctx context.Context, runs []durable.NewRun) (context.Context, func(error)) {
	parent, _ := ctx.Value(spanKey{}).(span)
	ctx, s, end := t.begin(ctx, parent, fmt.Sprintf("enqueue %d", len(runs)))
	for i := range runs {
		runs[i].Trace = s.traceparent()
	}
	return ctx, func(err error) { end(err) }
}

// Execute begins a span below the one that enqueued the run.
func (t *spans) Execute(ctx context.Context, run durable.RunInfo) (context.Context, func(store.Outcome)) {
	ctx, _, end := t.begin(ctx, parse(run.Trace), "execute "+run.Job)
	return ctx, func(o store.Outcome) { end(o.Kind) }
}

// The rest is for those who count: calls, outcomes, crashes.
func (t *spans) StoreCalled(durable.StoreCall) {}
func (t *spans) RunSettled(durable.RunVerdict) {}
func (t *spans) RunLost(durable.RunLoss)       {}

func main() {
	path := flag.String("db", "tracing.db", "database file")
	flag.Parse()
	if err := run(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	tracer := &spans{out: out}
	client := durable.NewClient(store).WithTracer(tracer)
	order, receipt := durable.NewJob[int]("order"), durable.NewJob[int]("receipt")
	w := durable.NewWorker(store, durable.WorkerConfig{Tracer: tracer})
	durable.Register(w, order, func(ctx context.Context, run *durable.Run[int]) error {
		_, err := receipt.Enqueue(ctx, client, run.Args)
		return err
	})
	working, stop := context.WithCancel(ctx)
	durable.Register(w, receipt, func(context.Context, *durable.Run[int]) error { stop(); return nil })

	request, _, end := tracer.begin(ctx, span{}, "POST /orders")
	_, err = order.Enqueue(request, client, 42)
	end(err)
	if err != nil {
		return err
	}
	return w.Run(working)
}
