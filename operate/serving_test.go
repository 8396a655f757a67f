package operate_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// watched is a store whose clock a test moves, with its operator.
type watched struct {
	*operate.Operator

	t     *testing.T
	store *memory.Store
	now   time.Time
}

func watch(t *testing.T) *watched {
	t.Helper()
	w := &watched{t: t, now: time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)}
	w.store = memory.New(memory.Config{Clock: func() time.Time { return w.now }})
	w.Operator = operate.New(w.store, operate.Config{})
	return w
}

// reports has a new worker report that it serves the job mail, and others, on queues.
func (w *watched) reports(name string, queues []string, did ...store.LaneTally) store.WorkerID {
	w.t.Helper()
	id := store.WorkerID{Name: name, Instance: uuid.New()}
	_, err := w.store.ReportWorker(w.t.Context(), store.WorkerReport{Worker: id, Number: 1, Did: did, Presence: store.Presence{
		Version: "v1.4", Queues: queues, Jobs: []string{"mail", "report"}, Capacity: 10, Every: store.Duration(20 * time.Second)}})
	require.NoError(w.t, err)
	return id
}

func (w *watched) enqueues(job, queue string, options ...durable.Option) {
	w.t.Helper()
	_, err := w.Enqueue(w.t.Context(), durable.NewJob[string](job).New("", append(options, durable.OnQueue(queue))...))
	require.NoError(w.t, err)
}

// finds returns the findings on a name.
func (w *watched) finds(name string) (levels []store.Level, texts, hints string) {
	w.t.Helper()
	for _, f := range w.ExamineServing(w.t.Context()) {
		if f.Name == name {
			levels, texts, hints = append(levels, f.Level), texts+f.Text+"\n", hints+f.Hint+"\n"
		}
	}
	return levels, texts, hints
}

func TestAJobOnAQueueThatItsWorkersDoNotServeIsAWarning(t *testing.T) {
	t.Parallel()
	w := watch(t)
	id := w.reports("web-1", []string{"images"})
	info := durable.NewJob[string]("mail").Info()
	require.NoError(t, w.store.Declare(t.Context(), store.Declaration{Worker: id, Jobs: []store.JobInfo{
		info, durable.NewJob[string]("report", durable.OnQueue("images")).Info(), durable.NewJob[string]("other").Info(),
	}}))
	levels, texts, hints := w.finds("jobs")
	require.Equal(t, []store.Level{store.Warning}, levels, texts)
	require.Equal(t, "no living worker serves queue default, on which runs of job mail are enqueued: they would wait\n", texts)
	require.Contains(t, hints, "serve the queues images")
	w.enqueues("mail", "default")
	_, texts, _ = w.finds("jobs")
	require.Contains(t, texts, "no living worker serves job mail on queue default: 1 run due", "said once, with the runs")
	require.NotContains(t, texts, "would wait")
	w.reports("web-2", []string{"default"})
	levels, texts, _ = w.finds("jobs")
	require.Equal(t, []store.Level{store.Fine}, levels, texts)
}

func TestAFleetThatWasKilledIsAFailure(t *testing.T) {
	t.Parallel()
	w := watch(t)
	levels, texts, _ := w.finds("workers")
	require.Equal(t, []store.Level{store.Warning}, levels)
	require.Equal(t, "0 workers alive\n", texts)

	w.reports("web-7", []string{"default"})
	levels, texts, _ = w.finds("workers")
	require.Equal(t, []store.Level{store.Fine}, levels)
	require.Equal(t, "1 worker alive\n", texts)
	w.now = w.now.Add(9 * time.Second)
	for range 4 {
		w.enqueues("mail", "default")
	}
	w.now = w.now.Add(52 * time.Second) // 61 s after the last report, well below 90 s
	levels, texts, _ = w.finds("workers")
	require.Equal(t, []store.Level{store.Failed}, levels)
	require.Equal(t, "0 workers alive; silent: web-7 v1.4 (1 min 1 s ago); 4 runs due, the oldest for 52 s\n", texts)
	levels, _, _ = w.finds("jobs")
	require.Empty(t, levels, "one failure says it")

	w.reports("web-8", []string{"default"})
	levels, texts, _ = w.finds("workers")
	require.Equal(t, []store.Level{store.Warning}, levels)
	require.Contains(t, texts, "1 worker alive; silent: web-7")
}

func TestRunsThatNoLivingWorkerServesAreAFailure(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.reports("bulk-1", []string{"bulk"})
	w.now = w.now.Add(2 * time.Minute)
	w.reports("web-7", []string{"default", "slow"})
	w.enqueues("mail", "default")
	levels, texts, _ := w.finds("jobs")
	require.Equal(t, []store.Level{store.Fine}, levels, texts)

	for _, c := range []struct {
		job, queue string
		after      time.Duration
		level      store.Level
		text, hint string
	}{
		{job: "mail", queue: "bulk", level: store.Failed, text: "no living worker serves job mail on queue bulk: 1 run due, the oldest for less than 1 s; last bulk-1 v1.4, 2 min ago", hint: "those that have the job serve the queues default, slow"},
		{job: "fax", queue: "slow", level: store.Failed, text: "no living worker serves job fax on queue slow: 1 run due", hint: "those that serve the queue do not have the job (a renamed job needs durable.Alias): web-7"},
		{job: "fax", queue: "nosuch", level: store.Failed, text: "no living worker serves job fax on queue nosuch: 1 run due", hint: "start a worker that has the job and serves the queue"},
		{job: "late", queue: "nosuch", after: time.Hour, level: store.Warning, text: "no living worker serves job late on queue nosuch: 1 run waits"},
	} {
		w.enqueues(c.job, c.queue, durable.After(c.after))
		levels, texts, hints := w.finds("jobs")
		require.Contains(t, texts, c.text)
		require.Contains(t, hints, c.hint)
		require.Contains(t, levels, c.level)
		require.NotContains(t, texts, "queue default")
	}
	for _, queue := range []string{"bulk", "slow", "nosuch"} {
		_, err := w.As("ann").PauseQueue(t.Context(), queue)
		require.NoError(t, err)
	}
	levels, _, _ = w.finds("jobs")
	require.NotContains(t, levels, store.Failed, "nothing is due in a paused queue")
}

func TestJobsAndQueuesSayWhoServesThem(t *testing.T) {
	t.Parallel()
	w := watch(t)
	did := store.LaneTally{Queue: "default", Job: "mail", Tally: store.Tally{Succeeded: 8, Failed: 2}}
	w.reports("web-7", []string{"default"}, did)
	w.now = w.now.Add(4*time.Minute + 30*time.Second)
	id := w.reports("web-8", []string{"default", "slow"}, did)
	w.enqueues("mail", "default")
	w.enqueues("fax", "slow")
	require.NoError(t, w.store.Declare(t.Context(), store.Declaration{Worker: id, Jobs: []store.JobInfo{
		{Name: "mail", Queue: "default", MaxAttempts: 1}, {Name: "report", Queue: "slow", MaxAttempts: 1}}}))

	jobs, err := w.Jobs(t.Context(), operate.Part{})
	require.NoError(t, err)
	require.Len(t, jobs.Jobs, 3)
	fax, mail, report := jobs.Jobs[0], jobs.Jobs[1], jobs.Jobs[2]
	require.Equal(t, []any{"fax", "slow", false, 0, int64(1)}, []any{fax.Job, fax.Queue, fax.Declared, fax.ServedBy, fax.Due.N})
	require.Equal(t, []string{}, fax.Workers, "[] and not null")
	require.Equal(t, []any{"mail", "default", true, 1, []string{"web-8"}}, []any{mail.Job, mail.Queue, mail.Declared, mail.ServedBy, mail.Workers})
	require.InDelta(t, 20/4.5, mail.Rate, 0.001, "20 attempts since 12:00, at 12:04:30")
	require.Equal(t, []any{"report", "slow", true, 1, int64(0)}, []any{report.Job, report.Queue, report.Declared, report.ServedBy, report.Pending.N})

	queues, err := w.Queues(t.Context(), operate.Part{})
	require.NoError(t, err)
	require.Len(t, queues.Queues, 2)
	require.Equal(t, []any{"default", int64(1), 1}, []any{queues.Queues[0].Name, queues.Queues[0].Pending.N, queues.Queues[0].ServedBy})
	require.InDelta(t, 20/4.5, queues.Queues[0].Rate, 0.001)
	require.Zero(t, queues.Queues[1].Rate)

	for _, name := range []string{"web-8", id.Instance.String(), id.Instance.String()[:8]} {
		one, err := w.Worker(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, id.Instance, one.Instance)
	}
	w.reports("web-8", []string{"slow"})
	_, err = w.Worker(t.Context(), "web-8")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, id.Instance.String())
	_, err = w.Worker(t.Context(), "web")
	require.ErrorIs(t, err, store.ErrNotFound)
}
