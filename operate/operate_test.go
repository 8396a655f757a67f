package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// stingy is a store that lists one run at a time, each answer after a second.
type stingy struct {
	store.Store
	now time.Time
}

func (s *stingy) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	s.now = s.now.Add(time.Second)
	filter.Limit = 1
	return s.Store.Runs(ctx, filter)
}

func TestRunsFillsThePage(t *testing.T) {
	t.Parallel()
	db := &stingy{Store: memory.New(memory.Config{}), now: time.Now()}
	o := operate.New(db, operate.Config{Now: func() time.Time { return db.now }})
	list, err := o.Runs(t.Context(), store.Filter{})
	require.NoError(t, err)
	text, err := json.Marshal(list)
	require.NoError(t, err)
	require.JSONEq(t, `{"runs":[],"next":null}`, string(text))

	job := durable.NewJob[string]("mail")
	for range 9 {
		_, err := o.Enqueue(t.Context(), job.New("x"))
		require.NoError(t, err)
	}
	list, err = o.Runs(t.Context(), store.Filter{Limit: 3})
	require.NoError(t, err)
	require.Len(t, list.Runs, 3)
	require.Equal(t, list.Runs[2].ID, *list.Next)
	require.NotNil(t, list.Runs[0].Tags, "[] and not null")
	list, err = o.Runs(t.Context(), store.Filter{Limit: 9})
	require.NoError(t, err)
	require.Len(t, list.Runs, 4, "a list ends after three seconds")
	list, err = o.Runs(t.Context(), store.Filter{Limit: 9, Before: list.Runs[3].ID})
	require.NoError(t, err)
	require.Len(t, list.Runs, 4)
	list, err = o.Runs(t.Context(), store.Filter{Limit: 9, Before: *list.Next})
	require.NoError(t, err)
	require.Len(t, list.Runs, 1)
	require.Nil(t, list.Next)
}

// vast is a store in which no run matches, however many were examined.
type vast struct {
	store.Store
	asked int
}

func (s *vast) Runs(context.Context, store.Filter) (store.Page, error) {
	s.asked++
	return store.Page{Next: store.RunID{byte(s.asked)}, Examined: 20_000}, nil
}

func TestSearchEndsAfterSoManyRuns(t *testing.T) {
	t.Parallel()
	db, now := &vast{Store: memory.New(memory.Config{})}, time.Now()
	o := operate.New(db, operate.Config{Now: func() time.Time { return now }})
	list, err := o.Search(t.Context(), store.Filter{Tag: "rare"})
	require.NoError(t, err)
	require.Equal(t, 100_000, list.Examined)
	require.Equal(t, 5, db.asked)
	require.Equal(t, store.RunID{5}, *list.Next)
}

func TestAQueueThatIsNotKnownIsNeitherPausedNorResumed(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{}).As("ann@host")
	_, err := o.PauseQueue(t.Context(), "mail")
	require.ErrorIs(t, err, store.ErrNotFound)
	state, err := o.PauseUnusedQueue(t.Context(), "mail")
	require.NoError(t, err)
	require.True(t, state.Paused)
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w"}, Jobs: []store.JobInfo{{Name: "report", Queue: "slow", MaxAttempts: 1}}}))
	state, err = o.PauseQueue(t.Context(), "slow")
	require.NoError(t, err, "the queue of a declared job is known before its first run")
	require.True(t, state.Paused)
	_, err = o.ResumeQueue(t.Context(), "mial")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = o.ResumeQueue(t.Context(), "m a i l")
	require.ErrorIs(t, err, store.ErrInvalid)
	state, err = o.ResumeQueue(t.Context(), "mail")
	require.NoError(t, err)
	require.False(t, state.Paused)
	audit, err := o.Changes(t.Context(), store.ChangeFilter{Limit: 3})
	require.NoError(t, err)
	require.Len(t, audit.Changes, 3)
	require.Equal(t, o.By(), audit.Changes[0].Actor)
	require.NotNil(t, audit.Next)
	audit, err = o.Changes(t.Context(), store.ChangeFilter{Limit: 2, Before: *audit.Next})
	require.NoError(t, err)
	require.Empty(t, audit.Changes)
	require.Nil(t, audit.Next)
}

func TestASchedulesStateAndPreview(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	o := operate.New(memory.New(memory.Config{}), operate.Config{Now: func() time.Time { return noon }}).As("ann@host")
	s := store.Schedule{Name: "hourly", Rule: store.Every(time.Hour), Job: "mail", Queue: "default", MaxAttempts: 1, Args: []byte(`{}`)}
	next, err := o.SaveSchedule(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, noon.Add(time.Hour), next.UTC())
	_, err = o.SaveSchedule(t.Context(), s)
	require.ErrorIs(t, err, store.ErrConflict)
	past := s
	past.Name, past.Rule = "past", store.Once(noon.Add(-time.Hour))
	_, err = o.SaveSchedule(t.Context(), past)
	require.ErrorIs(t, err, store.ErrInvalid)

	seen, err := o.Preview(t.Context(), "hourly", 2, 5)
	require.NoError(t, err)
	require.Len(t, seen.Next, 2)
	require.Equal(t, operate.ScheduleActive, operate.StateOf(seen.Schedule, noon))
	require.NoError(t, o.PauseSchedule(t.Context(), "hourly"))
	seen, err = o.Preview(t.Context(), "hourly", 2, 5)
	require.NoError(t, err)
	require.Empty(t, seen.Next)
	require.Equal(t, operate.SchedulePaused, operate.StateOf(seen.Schedule, noon))
	require.Equal(t, operate.ScheduleOver, operate.StateOf(store.ScheduleRecord{Rule: store.Once(noon)}, noon))
	_, err = o.Preview(t.Context(), "daily", 1, 1)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestAJobIsDeclaredOrKnownToTheProgram(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	_, err := operate.New(db, operate.Config{}).Job(t.Context(), "mail")
	require.ErrorIs(t, err, store.ErrUnknownJob)
	o := operate.New(db, operate.Config{Jobs: []store.JobInfo{{Name: "mail", Queue: "letters"}}})
	job, err := o.Job(t.Context(), "mail")
	require.NoError(t, err)
	require.Equal(t, "letters", job.Queue)
	_, err = o.Job(t.Context(), "fax")
	require.ErrorContains(t, err, "known jobs are mail")
}

func TestLocksAreReleasedByForce(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	_, err := operate.New(db, operate.Config{}).Locks(t.Context(), "", 1)
	require.ErrorIs(t, err, store.ErrInvalid)
	o := operate.New(db, operate.Config{Locks: db.Locks()}).As("ann@host")
	_, err = o.ReleaseLock(t.Context(), "door", 0, "stuck")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = o.ReleaseLock(t.Context(), "", 0, "stuck")
	require.ErrorIs(t, err, lock.ErrInvalid)
}

func TestCodes(t *testing.T) {
	t.Parallel()
	errAway := errors.New("away")
	for err, want := range map[error]operate.Code{
		store.ErrInvalid: operate.Invalid, lock.ErrInvalid: operate.Invalid, store.ErrNotFound: operate.NotFound, store.ErrConflict: operate.Conflict,
		store.ErrUnknownJob: operate.UnknownJob, context.Canceled: operate.Interrupted, errAway: operate.Unreachable, errors.New("x"): operate.Failed,
	} {
		wrapped := fmt.Errorf("read runs: %w", err)
		require.Equal(t, want, operate.CodeOf(wrapped, func(err error) bool { return errors.Is(err, errAway) }), err)
	}
	require.Equal(t, operate.Failed, operate.CodeOf(errAway, nil))
	text, err := json.Marshal(operate.FailureOf(store.ErrConflict, operate.Conflict))
	require.NoError(t, err)
	require.JSONEq(t, `{"error":{"code":"conflict","message":"`+store.ErrConflict.Error()+`"}}`, string(text))
}

func TestABeginningOfAnIDNamesARun(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{})
	job := durable.NewJob[string]("mail")
	enqueue := func(text string) {
		run := job.New("x")
		var err error
		run.ID, err = store.ParseRunID(text)
		require.NoError(t, err)
		_, err = o.Enqueue(t.Context(), run)
		require.NoError(t, err)
	}
	first, second, last := "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e", "0190c5a0-7d6c-7b0e-9f6e-ffffffffffff", "ffffffff-ffff-7fff-bfff-ffffffffffff"
	for _, id := range []string{first, second, last} {
		enqueue(id)
	}
	for text, want := range map[string]string{
		first: first, "0190c5a0-7d6c-7b0e-9f6e-3": first, "0190C5A0-7D6C-7B0E-9F6E-F": second, "ffffffff": last, "ffffffff-": last,
		"0190c5a0-7d6c-7b0e-9f6e-000000000000": "0190c5a0-7d6c-7b0e-9f6e-000000000000",
	} {
		id, err := o.FindID(t.Context(), text)
		require.NoError(t, err, text)
		require.Equal(t, want, id.String(), text)
	}
	_, err := o.FindID(t.Context(), "0190c5a0")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, second+", "+first)
	_, err = o.FindID(t.Context(), "0190c5a0-7d6c-7b0f")
	require.ErrorIs(t, err, store.ErrNotFound)
	for _, text := range []string{"", "0190c5a", "0190c5a07d6c7b0e", "0190c5ax", "0190c5a0--", first + "0"} {
		_, err = o.FindID(t.Context(), text)
		require.ErrorIs(t, err, store.ErrInvalid, text)
	}
}
