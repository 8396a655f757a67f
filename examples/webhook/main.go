// Command webhook is notified of dead runs: a worker posts signed events, and a receiver
// verifies them. The receiver refuses the first try, so that the worker sends it again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe/events"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// secret is shared by the worker and the receiver. Yours comes from the environment.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // of an example

func main() {
	path := flag.String("db", "webhook.db", "database file")
	flag.Parse()
	if err := run(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// receiver is what you build: it verifies, answers, and acts.
type receiver struct {
	out   io.Writer
	tries int
	done  func()
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, 2<<20))
	if err != nil || events.Verify(secret, request.Header, body, time.Now()) != nil {
		http.Error(w, "the signature is not valid", http.StatusUnauthorized)
		return
	}
	if r.tries++; r.tries == 1 {
		fmt.Fprintln(r.out, "receiver: not now")
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	var batch events.Batch
	if err := json.Unmarshal(body, &batch); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	for _, e := range batch.Events {
		fmt.Fprintf(r.out, "receiver: %s: job %s, attempt %d of %d: %s\n", e.Kind, e.Run.Job, e.Run.Attempt, e.Run.MaxAttempts, *e.Run.Error)
	}
	r.done()
}

func run(ctx context.Context, path string, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := httptest.NewServer(&receiver{out: out, done: stop})
	defer server.Close()
	hook, err := events.NewWebhook(events.WebhookConfig{URL: server.URL, Secret: secret, Client: server.Client()})
	if err != nil {
		return err
	}
	stream := events.New(hook, events.Config{Kinds: []events.Kind{events.RunDead}, Errors: true})

	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	invoice := durable.NewJob[string]("invoice")
	w := durable.NewWorker(store, durable.WorkerConfig{Hooks: stream.Hooks()})
	durable.Register(w, invoice, func(_ context.Context, run *durable.Run[string]) error {
		return durable.Permanent(errors.New("no customer " + run.Args))
	})
	if _, err := invoice.Enqueue(ctx, durable.NewClient(store), "7"); err != nil {
		return err
	}
	var sending sync.WaitGroup
	sending.Go(func() { stream.Run(ctx) })
	err = w.Run(ctx)
	sending.Wait()
	return err
}
