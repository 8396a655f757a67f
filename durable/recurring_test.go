package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// When recurring work fires, as a user of it says it. durabletest has what
// workers make of it, on every store.
func TestRecurring_NextOccurrence(t *testing.T) {
	t.Parallel()
	for says, one := range map[string]struct {
		expression, zone, after, next string
	}{
		"every five minutes":                               {"*/5 * * * *", "UTC", "2026-01-01T00:02:00Z", "2026-01-01T00:05:00Z"},
		"strictly after the instant asked for":             {"*/5 * * * *", "UTC", "2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"},
		"half a second after an occurrence comes the next": {"*/5 * * * *", "UTC", "2026-01-01T00:05:00.5Z", "2026-01-01T00:10:00Z"},
		"a nanosecond before an occurrence comes that one": {"*/5 * * * *", "UTC", "2026-01-01T00:04:59.999999999Z", "2026-01-01T00:05:00Z"},
		"hours of business, from a Saturday":               {"0 9-17 * * 1-5", "UTC", "2026-08-15T12:00:00Z", "2026-08-17T09:00:00Z"},
		"days by their names":                              {"0 8 * * MON-FRI", "UTC", "2026-08-15T12:00:00Z", "2026-08-17T08:00:00Z"},
		"steps within a range":                             {"0-30/10 12 * * *", "UTC", "2026-01-01T12:11:00Z", "2026-01-01T12:20:00Z"},
		"Sunday is 0":                                      {"0 6 * * 0", "UTC", "2026-08-13T00:00:00Z", "2026-08-16T06:00:00Z"},
		"Sunday is 7":                                      {"0 6 * * 7", "UTC", "2026-08-13T00:00:00Z", "2026-08-16T06:00:00Z"},
		"the first, or any Monday":                         {"0 0 1 * 1", "UTC", "2026-08-13T00:00:00Z", "2026-08-17T00:00:00Z"},
		"six fields begin with seconds":                    {"*/15 * * * * *", "UTC", "2026-01-01T00:00:01Z", "2026-01-01T00:00:15Z"},
		"five fields mean second zero":                     {"30 14 * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T14:30:00Z"},
		"half past six in New York, in winter":             {"30 6 * * *", "America/New_York", "2026-01-15T00:00:00Z", "2026-01-15T11:30:00Z"},
		"half past six in New York, in summer":             {"30 6 * * *", "America/New_York", "2026-07-15T00:00:00Z", "2026-07-15T10:30:00Z"},
		"a time that the clock leaves out comes after it":  {"30 2 * * *", "America/New_York", "2026-03-08T00:00:00Z", "2026-03-08T07:00:00Z"},
		"a time that the clock shows twice comes once":     {"30 1 * * *", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"},
		"a beat goes on when the clock is set back":        {"*/30 * * * *", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z"},
		"once a month":                                     {"0 0 1 * *", "UTC", "2026-08-02T00:00:00Z", "2026-09-01T00:00:00Z"},
		"once a year":                                      {"0 0 1 1 *", "UTC", "2026-01-02T00:00:00Z", "2027-01-01T00:00:00Z"},
		"once in four years":                               {"0 0 29 2 *", "UTC", "2026-01-02T00:00:00Z", "2028-02-29T00:00:00Z"},
		"the last day of the month":                        {"0 0 L * *", "Europe/Berlin", "2028-02-02T00:00:00Z", "2028-02-28T23:00:00Z"},
		"no zone is UTC":                                   {"0 12 * * *", "", "2026-08-02T00:00:00Z", "2026-08-02T12:00:00Z"},
		"the last minute of a leap year":                   {"59 23 31 12 *", "Europe/Berlin", "2028-06-01T00:00:00Z", "2028-12-31T22:59:00Z"},
		"over the end of a leap year":                      {"0 3 1 1 *", "Europe/Berlin", "2028-12-30T00:00:00Z", "2029-01-01T02:00:00Z"},
		"a beat on the last day of a leap year":            {"*/15 * * * *", "Europe/Berlin", "2028-12-31T00:00:00Z", "2028-12-31T00:15:00Z"},
		"Friday the thirteenth is either":                  {"0 0 13 * 5", "UTC", "2026-08-10T00:00:00Z", "2026-08-13T00:00:00Z"},
	} {
		s := store.Schedule{Name: "tick", Rule: durable.Cron(one.expression, one.zone), Job: "tick", Queue: durable.DefaultQueue, Args: []byte(`{}`), MaxAttempts: 1}
		require.NoError(t, store.CheckSchedule(s), says)
		after, err := time.Parse(time.RFC3339Nano, one.after)
		require.NoError(t, err)
		next, err := s.Preview(after, 1)
		require.NoError(t, err, says)
		require.Equal(t, one.next, next[0].Format(time.RFC3339Nano), says)
	}
}

// TestRecurring_FridayTheThirteenth: where an expression means both, blackouts
// say so.
func TestRecurring_FridayTheThirteenth(t *testing.T) {
	t.Parallel()
	s := store.Schedule{Name: "tick", Rule: durable.Cron("0 0 13 * *", "UTC")}
	s.Plan.Blackouts = []durable.Window{{Days: "sat-thu"}}
	next, err := s.Preview(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), 2)
	require.NoError(t, err)
	require.Equal(t, []time.Time{time.Date(2026, 11, 13, 0, 0, 0, 0, time.UTC), time.Date(2027, 8, 13, 0, 0, 0, 0, time.UTC)}, next)
}

func TestRecurring_WrongDeclarationsFailFast(t *testing.T) {
	for says, add := range map[string]func(w *durable.Worker, job durable.Job[letter]){
		"want five fields": func(w *durable.Worker, job durable.Job[letter]) {
			durable.AddSchedule(w, "broken", job, letter{}, durable.Cron("banana", "UTC"))
		},
		"no rule": func(w *durable.Worker, job durable.Job[letter]) {
			durable.AddSchedule(w, "broken", job, letter{}, durable.Cron("", "UTC"))
		},
		"never fires": func(w *durable.Worker, job durable.Job[letter]) {
			durable.AddSchedule(w, "broken", job, letter{}, durable.Cron("0 0 30 2 *", "UTC"))
		},
		"it has 7 fields": func(w *durable.Worker, job durable.Job[letter]) {
			durable.AddSchedule(w, "broken", job, letter{}, durable.Cron("0 0 0 1 1 * 2027", "UTC"))
		},
		`time zone "Central Standard Time"`: func(w *durable.Worker, job durable.Job[letter]) {
			durable.AddSchedule(w, "broken", job, letter{}, durable.Cron("@daily", "Central Standard Time"))
		},
		"declared twice": func(w *durable.Worker, job durable.Job[letter]) {
			durable.AddSchedule(w, "broken", job, letter{}, durable.Cron("@daily", "America/Chicago"))
			durable.AddSchedule(w, "broken", durable.NewJob[letter]("other"), letter{}, durable.Cron("@daily", "America/Chicago"))
		},
		"start 20000": func(w *durable.Worker, job durable.Job[letter]) {
			durable.AddSchedule(w, "broken", job, letter{}, durable.Every(time.Hour), durable.StartAt(time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)))
		},
	} {
		t.Run(says, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				w := s.worker(durable.WorkerConfig{})
				job := durable.NewJob[letter]("tick")
				durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
				add(w, job)
				err := w.Run(t.Context())
				require.ErrorIs(t, err, durable.ErrInvalid)
				require.ErrorContains(t, err, `schedule "broken"`)
				require.ErrorContains(t, err, says)
				stored, err := s.store.ListSchedules(t.Context())
				require.NoError(t, err)
				require.Empty(t, stored)
			})
		})
	}
}

// TestRecurring_SeveralSchedulesOfOneJob, each with args of its own, and one of
// a job that this worker does not execute.
func TestRecurring_SeveralSchedulesOfOneJob(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		job := durable.NewJob[letter]("tick")
		var a, b atomic.Int32
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			map[string]*atomic.Int32{"a": &a, "b": &b}[run.Args.To].Add(1)
			return nil
		})
		durable.AddSchedule(w, "for-a", job, letter{To: "a"}, durable.Cron("*/1 * * * * *", "UTC"))
		durable.AddSchedule(w, "for-b", job, letter{To: "b"}, durable.Cron("*/2 * * * * *", "UTC"))
		durable.AddSchedule(w, "elsewhere", durable.NewJob[letter]("nobody"), letter{}, durable.Cron("*/1 * * * * *", "UTC"))
		stop := s.begin(w)
		s.pass(20*time.Second + 500*time.Millisecond)
		require.InDelta(t, 20, a.Load(), 1)
		require.InDelta(t, 10, b.Load(), 1)
		page, err := s.store.Runs(t.Context(), durable.Filter{Jobs: []string{"nobody"}})
		require.NoError(t, err)
		require.Len(t, page.Runs, 1, "it waits for who executes it, and the others are skipped")
		require.Equal(t, durable.Pending, page.Runs[0].State)
		require.NoError(t, stop())
	})
}
