package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/memory"
)

// hosts is a program with two workers: what it declares on shared ticks once for
// all hosts, what it declares on alone ticks on every host by itself.
type hosts struct {
	shared, alone *durable.Worker
	byDefault     bool            // a timer that is not named ticks once for all hosts
	named         map[string]bool // timers of which the configuration says so
}

// of is the worker that a timer is declared on.
func (h hosts) of(timer string) *durable.Worker {
	once, named := h.named[timer]
	if !named {
		once = h.byDefault
	}
	if once {
		return h.shared
	}
	return h.alone
}

// A timer is moved from every host by itself to once for all hosts, and back, by
// the configuration: one by one, or all that are not named.
func ExampleAddSchedule_oneTimerAtATime() {
	ctx, cancel := context.WithCancel(context.Background())
	database := memory.New(memory.Config{}) // or backend.Open(ctx, url, …): the same for all hosts
	h := hosts{
		shared: durable.NewWorker(database, durable.WorkerConfig{}),
		alone:  durable.NewWorker(memory.New(memory.Config{}), durable.WorkerConfig{}),
		named:  map[string]bool{"refresh-prices": true},
	}
	for _, w := range []*durable.Worker{h.shared, h.alone} { // both know the handlers
		durable.Register(w, greet, func(context.Context, *durable.Run[greeting]) error { return nil })
	}
	for _, timer := range []string{"refresh-prices", "warm-cache"} {
		durable.AddSchedule(h.of(timer), timer, greet, greeting{}, durable.Every(time.Hour))
	}
	var running sync.WaitGroup
	ended := make([]error, 2)
	running.Go(func() { ended[0] = h.shared.Run(ctx) })
	running.Go(func() { ended[1] = h.alone.Run(ctx) })

	var names []string
	for len(names) == 0 { // an example waits for the declaration
		stored, err := database.ListSchedules(ctx)
		if err != nil {
			fmt.Println(err)
			break
		}
		for _, one := range stored {
			names = append(names, one.Name)
		}
	}
	cancel()
	running.Wait()
	fmt.Println("once for all hosts:", slices.Sorted(slices.Values(names)), errors.Join(ended...))
	// Output: once for all hosts: [refresh-prices] <nil>
}
