// Command limit-rate calls an API that allows fifty requests a second: from runs, and
// from code outside of runs, under one limit. When the API is overloaded and asks for a
// pause, all of them pause.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/limit"
	"github.com/durable-worker/durable-worker/store/memory"
)

// API allows fifty calls a second, and five of them together after a pause.
var API = durable.NewLimit("api", durable.TokenBucket(50, time.Second, 5))

var syncContact = durable.NewJob[int]("sync-contact", durable.Limited(API))

func main() {
	if err := rate(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func rate(ctx context.Context, out io.Writer) error {
	db, api := memory.New(memory.Config{}), &service{began: time.Now()}
	var all sync.WaitGroup
	all.Add(40)
	worker := durable.NewWorker(db, durable.WorkerConfig{})
	durable.Register(worker, syncContact, func(ctx context.Context, run *durable.Run[int]) error {
		err := api.call()
		var busy *busyError
		if errors.As(err, &busy) { // 429 Too Many Requests, Retry-After
			if err := run.Penalize(ctx, API, busy.retryAfter); err != nil {
				return err
			}
			return durable.RetryAfter(busy.retryAfter, err)
		}
		all.Done()
		return err
	})
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(working) })
	defer running.Wait()
	defer stop()
	for !worker.Status().Ready { // it has declared the limit
		time.Sleep(time.Millisecond)
	}

	var runs []durable.NewRun
	for contact := range 40 {
		runs = append(runs, syncContact.New(contact))
	}
	if _, err := durable.NewClient(db).Enqueue(ctx, runs...); err != nil {
		return err
	}
	limiter := limit.New(db, API, limit.Config{}) // a web process has one, for instance
	for range 10 {
		if err := limiter.Wait(ctx, "", 1); err != nil {
			return err
		}
		if err := api.call(); err != nil {
			if busy := (*busyError)(nil); !errors.As(err, &busy) {
				return err
			}
		}
	}
	all.Wait()
	api.report(out)
	return nil
}

// service is the API. Its twentieth call finds it overloaded.
type service struct {
	mu      sync.Mutex
	began   time.Time
	calls   []time.Duration
	resumes time.Duration
	early   int // calls during the pause that it has asked for
}

// busyError is its answer 429.
type busyError struct{ retryAfter time.Duration }

func (*busyError) Error() string { return "429 Too Many Requests" }

func (s *service) call() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.began)
	s.calls = append(s.calls, at)
	if len(s.calls) == 20 {
		s.resumes = at + time.Second
		return &busyError{time.Second}
	}
	if len(s.calls) > 25 && at < s.resumes { // up to five were under way
		s.early++
	}
	return nil
}

func (s *service) report(out io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := 0
	for i := range s.calls {
		n := 0
		for n < len(s.calls)-i && s.calls[i+n] < s.calls[i]+time.Second {
			n++
		}
		most = max(most, n)
	}
	fmt.Fprintf(out, "%d calls, at most 54 in any second: %v\n", len(s.calls), most <= 54)
	fmt.Fprintf(out, "calls in the pause that the API asked for: %d\n", s.early)
}
