package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

type handlerOf = func(ctx context.Context, run *durable.Run[mailArgs]) error

func TestPerform(t *testing.T) {
	ada := mailArgs{To: "ada"}
	t.Run("a success has its result, its log lines and what it enqueued", func(t *testing.T) {
		t.Parallel()
		db := memory.New(memory.Config{})
		client, count := durable.NewClient(db), durable.NewJob[int]("count")
		_, err := count.Enqueue(t.Context(), client, 0) // was there before
		require.NoError(t, err)
		got := durabletest.PerformOn(t, db, mailJob(), func(ctx context.Context, run *durable.Run[mailArgs]) error {
			run.Log().Info("sending", "to", run.Args.To)
			for i := range 2 {
				if _, err := count.Enqueue(ctx, client, i+1); err != nil {
					return err
				}
			}
			run.Log().Debug("sent")
			return run.SetResult(run.Attempt)
		}, ada)
		require.NoError(t, got.Err)
		require.Equal(t, store.Success, got.Outcome.Kind)
		require.Equal(t, durable.Succeeded, got.Record.State)
		require.Len(t, got.Record.Attempts, 1)
		require.Equal(t, "1", string(got.Outcome.Result))
		require.Equal(t, []string{"level=INFO msg=sending to=ada", "level=DEBUG msg=sent"}, got.Log)
		require.Len(t, got.Enqueued, 2)
		require.JSONEq(t, "1", string(got.Enqueued[0].Args))
		durabletest.RequireEnqueued(t, db, count, func(n int, _ durable.Record) bool { return n == 2 })
	})
	t.Run("a failure is reported as the handler returned it, with its delay", func(t *testing.T) {
		t.Parallel()
		fails := func(context.Context, *durable.Run[mailArgs]) error { return fmt.Errorf("send: %w", errBusy) }
		got := durabletest.Perform(t, mailJob(), fails, ada)
		require.ErrorIs(t, got.Err, errBusy)
		require.Equal(t, store.Outcome{Kind: store.Failure, After: 5 * time.Second, Error: "send: busy"}, got.Outcome)
		require.Equal(t, durable.Pending, got.Record.State)
		require.Equal(t, store.Death, durabletest.Perform(t, mailJob(), fails, ada, durable.MaxAttempts(1)).Outcome.Kind)
	})
	for sentence, c := range map[string]struct {
		handler handlerOf
		kind    store.OutcomeKind
		says    string
	}{
		"a permanent error is death": {func(context.Context, *durable.Run[mailArgs]) error { return durable.Permanent(errBusy) }, store.Death, "busy"},
		"a cancel is a cancellation": {func(context.Context, *durable.Run[mailArgs]) error { return durable.Cancel(errBusy) }, store.Cancellation, "busy"},
		"a snooze is no failure":     {func(context.Context, *durable.Run[mailArgs]) error { return durable.Snooze(time.Hour) }, store.Snoozed, "durable: snoozed"},
		"a panic is a failure":       {func(context.Context, *durable.Run[mailArgs]) error { panic("oh") }, store.Failure, "panic: oh"},
		"so is an exit": {func(context.Context, *durable.Run[mailArgs]) error { runtime.Goexit(); return nil }, store.Failure,
			"handler exited: runtime.Goexit"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got := durabletest.Perform(t, mailJob(), c.handler, ada)
			require.Equal(t, c.kind, got.Outcome.Kind)
			require.EqualError(t, got.Err, c.says)
		})
	}
	t.Run("in a test of Run its time is virtual", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return errors.New("not this one") }))
			got := durabletest.PerformOn(t, kit.Store, mailJob(), func(ctx context.Context, _ *durable.Run[mailArgs]) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}, ada, durable.Timeout(time.Hour))
			require.ErrorIs(t, got.Err, durable.ErrTimeout)
			require.Equal(t, "perform", *got.Record.Worker)
		})
	})
	t.Run("elsewhere a handler may talk to a network", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
		defer server.Close()
		got := durabletest.Perform(t, mailJob(), func(ctx context.Context, run *durable.Run[mailArgs]) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				return err
			}
			response, err := server.Client().Do(request)
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }()
			return run.SetResult(response.StatusCode)
		}, ada)
		require.Equal(t, "200", string(got.Outcome.Result))
	})
	t.Run("what cannot be enqueued fails the test", func(t *testing.T) {
		t.Parallel()
		said := fails(t, func(tb testing.TB) {
			durabletest.Perform(tb, mailJob(), func(context.Context, *durable.Run[mailArgs]) error { return nil }, ada, durable.MaxAttempts(0))
		})
		require.Contains(t, said, "max attempts 0")
	})
	t.Run("nothing else in the store is touched", func(t *testing.T) {
		t.Parallel()
		store := memory.New(memory.Config{})
		receipt, err := mailJob().Enqueue(t.Context(), store, ada)
		require.NoError(t, err)
		durabletest.PerformOn(t, store, mailJob(), func(context.Context, *durable.Run[mailArgs]) error { return nil }, ada)
		durabletest.RequireState(t, store, receipt.ID, durable.Pending)
		jobs, err := store.Jobs(t.Context())
		require.NoError(t, err)
		require.Empty(t, jobs)
	})
}
