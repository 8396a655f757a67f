package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// asynqContender keeps its runs in Redis; its target is a socket's path.
type asynqContender struct{}

func asynqOptions(target string) asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Network: "unix", Addr: target, PoolSize: 50}
}

func (asynqContender) prepare(context.Context, string) error { return nil }

func (asynqContender) enqueuer(_ context.Context, s spec) (*enqueuer, error) {
	client := asynq.NewClient(asynqOptions(s.Target))
	enqueue := func(ctx context.Context, numbers []int64) error {
		if len(numbers) == 1 {
			_, err := client.EnqueueContext(ctx, asynq.NewTask(jobName, args{N: numbers[0]}.json()))
			return err
		}
		return enqueueEach(ctx, client, numbers)
	}
	return &enqueuer{enqueue: enqueue, close: func() { _ = client.Close() }}, nil
}

// enqueueEach enqueues from 16 goroutines; there is no call for many.
func enqueueEach(ctx context.Context, client *asynq.Client, numbers []int64) error {
	const goroutines = 16
	faults := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < len(numbers) && faults[g] == nil; i += goroutines {
				_, faults[g] = client.EnqueueContext(ctx, asynq.NewTask(jobName, args{N: numbers[i]}.json()))
			}
		})
	}
	all.Wait()
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}

func (asynqContender) worker(_ context.Context, s spec, handled func(int64)) (*worker, error) {
	concurrency := s.Concurrency
	if concurrency == 0 {
		concurrency = 100 // the default is the number of CPUs, which is less than the others'
	}
	server := asynq.NewServer(asynqOptions(s.Target), asynq.Config{
		Concurrency: concurrency, TaskCheckInterval: s.Poll, LogLevel: asynq.ErrorLevel, ShutdownTimeout: 5 * time.Second,
	})
	handler := asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		var a args
		if err := json.Unmarshal(t.Payload(), &a); err != nil {
			return err
		}
		handled(a.N)
		return nil
	})
	return &worker{start: func() error { return server.Start(handler) }, stop: server.Shutdown}, nil
}

func (asynqContender) unsettled(_ context.Context, w *watch) (bool, error) {
	info, err := asynqInfo(w.target)
	if err != nil {
		return false, err
	}
	return info.Pending+info.Active > 0, nil
}

func (asynqContender) finished(_ context.Context, w *watch) (int, error) {
	info, err := asynqInfo(w.target)
	if err != nil {
		return 0, err
	}
	return info.ProcessedTotal - info.FailedTotal, nil
}

func asynqInfo(target string) (*asynq.QueueInfo, error) {
	inspector := asynq.NewInspector(asynqOptions(target))
	defer func() { _ = inspector.Close() }()
	return inspector.GetQueueInfo("default")
}
