package durablecmd_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/observe/events"
)

const eventSecret = "canary-0123456789abcdef"

// TestAWorkerPostsItsEvents has a real worker post to a real receiver.
func TestAWorkerPostsItsEvents(t *testing.T) {
	t.Parallel()
	posted := make(chan events.Event, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if events.Verify(eventSecret, r.Header, body, time.Now()) != nil {
			return
		}
		var batch events.Batch
		if json.Unmarshal(body, &batch) != nil {
			return
		}
		for _, e := range batch.Events {
			posted <- e
		}
	}))
	t.Cleanup(receiver.Close)
	env := file(t, "DURABLE_EVENTS_WEBHOOK_URL="+receiver.URL+"/hooks?key=canary", "DURABLE_EVENTS_WEBHOOK_SECRET="+eventSecret,
		"DURABLE_EVENTS=run.*,worker.started,worker.stopped", "DURABLE_WORKER_NAME=web-7")
	s := serve(t, env, stock)
	require.Equal(t, events.WorkerStarted, (<-posted).Kind)
	id := strings.TrimSpace(execute(t, env, "enqueue", "sleep", "--args", `{"for":"long"}`, "--max-attempts", "1", "--force").stdout)
	require.Equal(t, events.RunStarted, (<-posted).Kind)
	dead := <-posted
	require.Equal(t, events.RunDead, dead.Kind)
	require.Equal(t, []any{id, "sleep", "web-7", 1}, []any{dead.Run.ID.String(), dead.Run.Job, dead.Worker, dead.Run.Attempt})
	require.Nil(t, dead.Run.Error)
	// A batch is counted when its answer has come back, which is after the receiver has it.
	require.Eventually(t, func() bool {
		return strings.Contains(scrape(t, s.address()), "\ndurable_events_sent_total 3\n")
	}, time.Minute, 50*time.Millisecond)
	require.Contains(t, scrape(t, s.address()), "\ndurable_events_dropped_total 0\n")
	s.signal()
	require.Equal(t, 0, s.ends())
	require.Equal(t, events.WorkerStopped, (<-posted).Kind, "what waits is sent when the worker stops")
	require.NotContains(t, s.stderr.String(), "canary")
}

func TestWhatIsWrongWithAWebhookIsSaid(t *testing.T) {
	t.Parallel()
	const url, key = "DURABLE_EVENTS_WEBHOOK_URL=", "DURABLE_EVENTS_WEBHOOK_SECRET="
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{url + "https://a.example/canary"}, "DURABLE_EVENTS_WEBHOOK_URL: want https://host/path, and DURABLE_EVENTS_WEBHOOK_SECRET"},
		{[]string{url + "canary", key + eventSecret}, "DURABLE_EVENTS_WEBHOOK_URL: want"},
		{[]string{url + "https://a.example/", key + "canary"}, "DURABLE_EVENTS_WEBHOOK_SECRET: want at least 16"},
		{[]string{url + "https://a.example/", key + "whsec_canary-canary-canary"}, "DURABLE_EVENTS_WEBHOOK_SECRET: want at least 16"},
		{[]string{"DURABLE_EVENTS=run.died"}, `DURABLE_EVENTS="run.died": want kinds of events`},
	} {
		refused := execute(t, file(t, c.env...), "config")
		require.Equal(t, 2, refused.code, c.env)
		require.Contains(t, refused.stderr, c.want)
		require.NotContains(t, refused.stderr, "canary")
	}
	shown := execute(t, file(t, url+"https://a.example/canary?canary", key+eventSecret), "config")
	require.Equal(t, 0, shown.code, shown.stderr)
	require.Contains(t, shown.stdout, "https://a.example/…")
	require.NotContains(t, shown.stdout, "canary")
}

// TestACommandPostsWhatItChanges: a verb that changes something waits until its event is
// sent, and one that only reads sends none.
func TestACommandPostsWhatItChanges(t *testing.T) {
	t.Parallel()
	posted := make(chan events.Event, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var batch events.Batch
		if json.NewDecoder(r.Body).Decode(&batch) == nil {
			for _, e := range batch.Events {
				posted <- e
			}
		}
	}))
	t.Cleanup(receiver.Close)
	env := file(t, "DURABLE_EVENTS_WEBHOOK_URL="+receiver.URL, "DURABLE_EVENTS_WEBHOOK_SECRET="+eventSecret, "DURABLE_EVENTS=operator.*")
	migrated := execute(t, env, "migrate", "up")
	require.Equal(t, 0, migrated.code, migrated.stderr)
	paused := execute(t, env, "queues", "pause", "mail", "--force")
	require.Equal(t, 0, paused.code, paused.stderr)
	require.Equal(t, 0, execute(t, env, "queues", "list").code)
	require.Len(t, posted, 1)
	e := <-posted
	require.Equal(t, events.OperatorChanged, e.Kind)
	require.Equal(t, []any{"queue", "mail", "pause"}, []any{e.Change.Kind, e.Change.Subject, e.Change.Action})
	require.NotEmpty(t, e.Change.By)
	require.Nil(t, e.Run)
}
