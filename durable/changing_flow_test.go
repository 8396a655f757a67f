package durable_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// concurrency counts the handlers that execute concurrently, in the workers of all versions.
type concurrency struct {
	mu              sync.Mutex
	executing, peak int
}

func (c *concurrency) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.executing += n
	c.peak = max(c.peak, c.executing)
}

// most returns the peak since the last call.
func (c *concurrency) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	peak := c.peak
	c.peak = c.executing
	return peak
}

// of registers a job that takes a second.
func (c *concurrency) of(job durable.Job[mail1]) func(w *durable.Worker) {
	return func(w *durable.Worker) {
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[mail1]) error {
			c.add(1)
			defer c.add(-1)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			return nil
		})
	}
}

func (v *versions) enqueueMails(job durable.Job[mail1], n int) {
	for range n {
		v.enqueue(job.New(mail1{To: "ann"}))
	}
}

func limitAdded(t *testing.T, v *versions) {
	one := durable.NewLimit("one", durable.Mutex())
	before, after := durable.NewJob[mail1]("mail"), durable.NewJob[mail1]("mail", durable.Limited(one))
	v.enqueueMails(before, 5)
	var all concurrency
	_, err := v.client.Enqueue(t.Context(), after.New(mail1{}))
	require.ErrorIs(t, err, store.ErrUnknownLimit, "a worker declares the limit first")
	defer v.start(all.of(after))()
	v.pass(10 * time.Second)
	require.Equal(t, 5, all.most(), "stored runs do not get the limit")
	v.enqueueMails(after, 5)
	v.pass(10 * time.Second)
	require.Equal(t, 1, all.most())
	v.enqueueMails(before, 5)
	v.pass(10 * time.Second)
	require.Equal(t, 5, all.most(), "nor do those that the version before enqueues")
}

func limitRaised(t *testing.T, v *versions) {
	limited := func(n int) durable.Job[mail1] {
		return durable.NewJob[mail1]("mail", durable.Limited(durable.NewLimit("some", durable.Semaphore(n))))
	}
	var all concurrency
	stop := v.start(all.of(limited(1)))
	v.enqueueMails(limited(1), 30)
	v.pass(3 * time.Second)
	require.Equal(t, 1, all.most())
	stopNew := v.start(all.of(limited(3)))
	v.pass(3 * time.Second)
	require.Equal(t, 3, all.most(), "stored runs have it as soon as the first worker of the next version starts")
	stopNew()
	stop()
	all.most() // of what was executing until then
	defer v.start(all.of(limited(1)))()
	v.pass(3 * time.Second)
	require.Equal(t, 1, all.most(), "rolled back")
}

func limitRemoved(t *testing.T, v *versions) {
	one := durable.NewLimit("one", durable.Mutex())
	before, after := durable.NewJob[mail1]("mail", durable.Limited(one)), durable.NewJob[mail1]("mail")
	var all concurrency
	v.start(all.of(before))()
	v.enqueueMails(before, 5)
	defer v.start(all.of(after))()
	v.pass(10 * time.Second)
	require.Equal(t, 1, all.most(), "stored runs keep the limit, though no worker declares it")
	v.enqueueMails(after, 5)
	v.pass(10 * time.Second)
	require.Equal(t, 5, all.most())
}

func scheduled(name string, rule durable.Rule) func(w *durable.Worker) {
	return func(w *durable.Worker) {
		job := durable.NewJob[mail1]("mail")
		durable.Register(w, job, func(context.Context, *durable.Run[mail1]) error { return nil })
		durable.AddSchedule(w, name, job, mail1{To: name}, rule)
	}
}

// fired counts the runs of each schedule.
func (v *versions) fired() map[string]int {
	page, err := v.store.Runs(v.t.Context(), store.Filter{Limit: store.LargestPage})
	require.NoError(v.t, err)
	by := map[string]int{}
	for i := range page.Runs {
		by[*page.Runs[i].Schedule]++
	}
	return by
}

func scheduleRenamed(t *testing.T, v *versions) {
	v.start(scheduled("before", durable.Every(time.Hour)))()
	defer v.start(scheduled("after", durable.Every(time.Hour)))()
	v.pass(3*time.Hour + time.Minute)
	require.Equal(t, map[string]int{"before": 3, "after": 3}, v.fired(), "both fire")
	all, err := v.store.ListSchedules(t.Context())
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(all, func(s store.ScheduleRecord) bool { return s.Name == "before" && s.Orphaned }))
	require.NoError(t, v.store.ChangeSchedule(t.Context(), "before", store.DeleteSchedule, "ada"))
	v.pass(2 * time.Hour)
	require.Equal(t, map[string]int{"before": 3, "after": 5}, v.fired())
}

func scheduleChanged(t *testing.T, v *versions) {
	stop := v.start(scheduled("mails", durable.Every(time.Hour)))
	v.pass(time.Minute)
	stopNew := v.start(scheduled("mails", durable.Every(time.Minute)))
	v.pass(10*time.Minute + time.Second)
	require.InDelta(t, 10, v.fired()["mails"], 1, "the next version's rule counts while both work")
	stopNew()
	stop()
	before := v.fired()["mails"]
	defer v.start(scheduled("mails", durable.Every(time.Hour)))()
	v.pass(2*time.Hour + time.Minute)
	require.InDelta(t, before+2, v.fired()["mails"], 1, "rolled back")
}

func scheduleArgsChanged(t *testing.T, v *versions) {
	declare := func(job durable.Job[mail1], args mail1, options ...durable.Option) func(w *durable.Worker) {
		return func(w *durable.Worker) {
			shows(v, job, func(run *durable.Run[mail1]) string { return run.Args.To })(w)
			durable.AddSchedule(w, "mails", job, args, durable.Every(time.Hour), options...)
		}
	}
	newest := func() (string, int) {
		page, err := v.store.Runs(t.Context(), store.Filter{Limit: 1})
		require.NoError(t, err)
		return v.saw(page.Runs[0].ID), page.Runs[0].MaxAttempts
	}
	job := durable.NewJob[mail1]("mail")
	defer v.start(declare(job, mail1{To: "ann"}, durable.MaxAttempts(2)))()
	v.pass(time.Hour + time.Minute)
	to, attempts := newest()
	require.Equal(t, "ann", to)
	require.Equal(t, 2, attempts)
	defer v.start(declare(job, mail1{To: "bob"}, durable.MaxAttempts(5)))()
	v.pass(time.Hour)
	to, attempts = newest()
	require.Equal(t, "bob", to, "the next version's args count while both work")
	require.Equal(t, 5, attempts)
}

func scheduleRemoved(t *testing.T, v *versions) {
	v.start(scheduled("mails", durable.Every(time.Hour)))()
	defer v.start(func(w *durable.Worker) {
		durable.Register(w, durable.NewJob[mail1]("mail"), func(context.Context, *durable.Run[mail1]) error { return nil })
	})()
	v.pass(3*time.Hour + time.Minute)
	require.Equal(t, 3, v.fired()["mails"], "it fires until an operator deletes it")
}
