package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/backend"
)

// flowed is a worker with a flow in a place of its own, and what enqueues for it.
type flowed struct {
	*watch
	shared *counters
	worker *child
	db     backend.Store
	client *durable.Client
}

func (b *bench) flowed(ctx context.Context, s spec) (f *flowed, err error) {
	f = &flowed{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.watch, err = b.place(ctx, ours, onPostgres); err != nil {
		return nil, err
	}
	if _, err = f.conn.Exec(ctx, "CREATE TABLE bench_commits (n bigint); GRANT INSERT ON bench_commits TO "+loadName); err != nil {
		return f, err
	}
	if f.shared, err = newCounters(b.dir); err != nil {
		return f, err
	}
	s.Contender, s.Role, s.Target, s.Counters, s.Latency = ours, working, f.target, f.shared.path, true
	if f.worker, err = spawn(s); err != nil {
		return f, err
	}
	if f.db, err = backend.Open(ctx, f.target, backend.Config{}); err != nil {
		return f, err
	}
	f.client = durable.NewClient(f.db)
	return f, f.worker.begin()
}

func (f *flowed) close() {
	if f.worker != nil {
		f.worker.end()
	}
	if f.db != nil {
		f.db.Close()
	}
	if f.shared != nil {
		f.shared.close()
	}
	if f.watch != nil {
		f.watch.close()
	}
}

// enqueue stores runs, some thousand in a call.
func (f *flowed) enqueue(ctx context.Context, runs []durable.NewRun) error {
	for some := range slices.Chunk(runs, 2000) {
		if _, err := f.client.Enqueue(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

// reach waits until the handlers have taken so many samples.
func (f *flowed) reach(ctx context.Context, n int) error {
	if err := until(ctx, func() bool { return f.shared.handled() >= int64(n) }, stall); err != nil {
		return fmt.Errorf("%d of %d: %w", f.shared.handled(), n, err)
	}
	return nil
}

// samples are those that the handlers have taken, once there are so many.
func (f *flowed) samples(ctx context.Context, n int) ([]float64, error) {
	if err := f.reach(ctx, n); err != nil {
		return nil, err
	}
	u, err := f.worker.report()
	return u.Samples, err
}

// counted waits until the database counts so many.
func (f *flowed) counted(ctx context.Context, sql string, n int, most time.Duration) error {
	deadline := time.Now().Add(most)
	for {
		found, err := f.count(ctx, sql)
		switch {
		case err != nil || found == n:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d: %s", found, n, sql)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

const countWaits = "SELECT count(*) FROM durable.steps"

// waits are the figures of latencies.
func waits(list []float64) sample {
	list = slices.Clone(list)
	slices.Sort(list)
	return sample{"p50": percentile(list, 0.50), "p99": percentile(list, 0.99), "max": list[len(list)-1]}
}

// stepAlone measures the steps of one handler beside commits of the same process.
func (b *bench) stepAlone(ctx context.Context, runs int) (sample, error) {
	f, err := b.flowed(ctx, spec{Flow: alone, Concurrency: 1})
	if err != nil {
		return nil, err
	}
	defer f.close()
	job := durable.NewJob[args](jobName)
	for i := range runs {
		if _, err := job.Enqueue(ctx, f.client, args{N: int64(firstNumber + i)}); err != nil {
			return nil, err
		}
	}
	list, err := f.samples(ctx, 2*runs*stepsAlone)
	if err != nil {
		return nil, err
	}
	var steps, commits []float64
	for pair := range slices.Chunk(list, 2) {
		steps, commits = append(steps, pair[0]), append(commits, pair[1])
	}
	found, reference := waits(steps), waits(commits)
	found["commit"], found["times"] = reference["p50"], found["p50"]/reference["p50"]
	return found, nil
}

// wake measures how late runs begin that sleep until instants within a time. Plain ones are
// due then and have not begun before.
func (b *bench) wake(ctx context.Context, do flow, n int, within time.Duration) (sample, error) {
	s := tuned(ours)
	s.Flow = do
	f, err := b.flowed(ctx, s)
	if err != nil {
		return nil, err
	}
	defer f.close()
	job, first := durable.NewJob[args](jobName), time.Now().Add(time.Duration(n)*2*time.Millisecond+5*time.Second)
	runs := make([]durable.NewRun, n)
	for i := range runs {
		at := first.Add(within * time.Duration(i) / time.Duration(n))
		if runs[i] = job.New(args{N: at.UnixNano()}); do == plainly {
			runs[i].At = at
		}
	}
	if err := f.enqueue(ctx, runs); err != nil {
		return nil, err
	}
	if do == sleeping {
		if err := f.counted(ctx, countWaits, n, time.Until(first)-time.Second); err != nil {
			return nil, fmt.Errorf("not all are asleep in time: %w", err)
		}
	}
	if err := pause(ctx, time.Until(first)-time.Second); err != nil {
		return nil, err
	}
	list, err := f.samples(ctx, n)
	if err != nil {
		return nil, err
	}
	return waits(list), nil
}

// wakeAtOnce measures sleepers of one instant beside plain runs that are due at one.
func (b *bench) wakeAtOnce(ctx context.Context, n int) (sample, error) {
	plain, err := b.wake(ctx, plainly, n, 0)
	if err != nil {
		return nil, err
	}
	found, err := b.wake(ctx, sleeping, n, 0)
	if err != nil {
		return nil, err
	}
	found["plain"], found["beyond"] = plain["max"], found["p99"]-plain["max"]
	return found, nil
}

// inputs measures from a send until the handler begins, while as many runs are enqueued, and wait,
// as are sent their input, a second later.
func (b *bench) inputs(ctx context.Context, n, rate int) (sample, error) {
	const lag = 2 * time.Second
	f, err := b.flowed(ctx, spec{Flow: receiving})
	if err != nil {
		return nil, err
	}
	defer f.close()
	job := durable.NewJob[args](jobName)
	ids, faults := make(chan durable.RunID, n), make(chan error, 9)
	began := time.Now()
	at := func(i int) time.Time { return began.Add(time.Duration(i) * time.Second / time.Duration(rate)) }
	var going sync.WaitGroup
	going.Go(func() {
		defer close(ids)
		batch := max(rate/100, 1)
		for done := 0; done < n; done += batch {
			runs := make([]durable.NewRun, min(batch, n-done))
			for i := range runs {
				runs[i] = job.New(args{N: int64(firstNumber + done + i)})
			}
			_ = pause(ctx, time.Until(at(done)))
			receipts, err := f.client.Enqueue(ctx, runs...)
			if err != nil {
				faults <- err
				return
			}
			for _, receipt := range receipts {
				ids <- receipt.ID
			}
		}
	})
	sending := make(chan durable.RunID)
	for range 8 {
		going.Go(func() {
			for id := range sending {
				if _, err := job.Send(ctx, f.client, id, inputName, time.Now().UnixNano()); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	for i := 0; ; i++ {
		id, more := <-ids
		if !more || len(faults) > 0 || pause(ctx, time.Until(at(i).Add(lag))) != nil {
			break
		}
		sending <- id
	}
	close(sending)
	going.Wait()
	close(faults)
	for fault := range faults {
		err = errors.Join(err, fault)
	}
	if err != nil {
		return nil, err
	}
	list, err := f.samples(ctx, n)
	if err != nil {
		return nil, err
	}
	return waits(list[n/10:]), nil
}
