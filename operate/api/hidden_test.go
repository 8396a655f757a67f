package api_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
)

// failing leaves a dead run that has failed with a text, a stack and a line of its log,
// and returns its id.
func (b *bench) failing(text string) string {
	b.t.Helper()
	job := durable.NewJob[map[string]any]("fails", durable.MaxAttempts(1))
	worker := durable.NewWorker(b.store, durable.WorkerConfig{})
	durable.Register(worker, job, func(ctx context.Context, run *durable.Run[map[string]any]) error {
		run.Log().Info(text)
		if err := run.Progress(ctx, 0.5, text); err != nil {
			return err
		}
		panic(errors.New(text))
	})
	b.declare(job.Info())
	id, _ := b.want(201, "POST", "/runs", `{"job":"fails","args":{"a":"args-canary"}}`)["id"].(string)
	stop := b.work(worker)
	b.want(200, "GET", "/runs/"+id+"/wait", "")
	stop()
	return id
}

// readAll is everything that may be read, one answer after the other.
func (b *bench) readAll(id string) map[string]string {
	all := map[string]string{}
	for _, pattern := range api.Patterns() {
		method, path := target(strings.Replace(strings.Replace(pattern, "{id}", id, 1), "{n}", "1", 1))
		if method != http.MethodGet || path == "/events" {
			continue
		}
		if path == "/schedules/preview" || path == "/limits/key" {
			path += "?name=s"
		}
		all[path] = b.send("GET", path, "").Body.String()
	}
	for _, path := range []string{"/runs?state=dead", "/problems?acknowledged=true", "/audit?kind=bulk", "/schedules?name=s"} {
		all[path] = b.send("GET", path, "").Body.String()
	}
	return all
}

// TestAViewerSeesNoTexts: not in a run, a list, an explanation, problems, attention, the
// audit or a bulk change, when texts are for operators.
func TestAViewerSeesNoTexts(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		id := b.failing("text-canary")
		b.want(202, "POST", "/bulk", `{"action":"acknowledge","filter":{"error":"text-canary","args":"args-canary"}}`)
		b.op.Close()
		b.want(200, "POST", "/runs/"+id+"/retry", "")
		id = b.failing("text-canary")
		group := b.want(200, "GET", "/problems", "")["groups"].([]any)[0].(map[string]any)["id"].(string)
		b.want(200, "POST", "/problems/acknowledge", `{"id":"`+group+`"}`)
		id2 := b.failing("text-canary")

		viewer := b.as(viewerToken)
		var seen int
		for path, text := range viewer.readAll(id2) {
			require.NotContains(t, text, "args-canary", path)
			seen += strings.Count(text, "text-canary")
		}
		require.Greater(t, seen, 5, "viewers see texts, unless they are for operators")

		strict, err := api.New(b.op, api.Config{Auth: access.Tokens(operatorToken, viewerToken), Texts: access.Operator})
		require.NoError(t, err)
		viewer.handler = strict
		for _, one := range []string{id, id2} {
			for path, text := range viewer.readAll(one) {
				require.NotContains(t, text, "canary", path)
			}
		}
		shown := viewer.want(200, "GET", "/runs/"+id2, "")
		require.Equal(t, "•••", shown["error"])
		require.Greater(t, shown["hidden"].(map[string]any)["texts"], 50.0)
		operator := viewer.as(operatorToken)
		require.Equal(t, "panic: text-canary", operator.want(200, "GET", "/runs/"+id2, "")["error"])
	})
}

// TestAViewerCannotFindOut: what a role does not see it cannot search for.
func TestAViewerCannotFindOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.enqueue(`{"a":"4711"}`)
	require.Len(t, b.want(200, "GET", "/runs?args=4711", "")["runs"], 1)
	require.Empty(t, b.want(200, "GET", "/runs?args=4712", "")["runs"])
	b.want(200, "GET", "/counts?args=4711", "")
	b.want(400, "GET", "/runs?args=", "")
	b.want(400, "POST", "/bulk", `{"action":"cancel","filter":{"args":""}}`)
	for _, path := range []string{"/runs?args=4711", "/counts?args=4711", "/runs?job=mail&args=4711&id=" + id} {
		refused := b.as(viewerToken).want(403, "GET", path, "")
		require.Equal(t, "forbidden", refused["code"])
		require.Equal(t, "operator", refused["role"])
	}
	require.Len(t, b.as(viewerToken).want(200, "GET", "/runs?error=x", "")["runs"], 0)
	var err error
	b.handler, err = api.New(b.op, api.Config{Auth: access.Tokens(operatorToken, viewerToken), Texts: access.Operator})
	require.NoError(t, err)
	for _, path := range []string{"/runs?error=x", "/counts?error=x"} {
		require.Equal(t, "forbidden", b.as(viewerToken).want(403, "GET", path, "")["code"])
	}
	b.want(200, "GET", "/runs?error=x", "")
}

// TestHintsHaveNoArgs reads what a viewer's stream says of a run.
func TestHintsHaveNoArgs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+viewerToken)
	answer, err := server.Client().Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, answer.Body.Close()) }()
	b.enqueue(`{"a":"canary"}`)
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		require.NotContains(t, lines.Text(), "canary")
		if strings.HasPrefix(lines.Text(), "event: changed") {
			return
		}
	}
	t.Fatal("the stream has ended", lines.Err())
}

// TestWhatARuleHidesCanBeRevealed: to an operator, of one run, once the audit log says so. The
// rule is of a job whose code the API does not have.
func TestWhatARuleHidesCanBeRevealed(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.declare(durable.NewJob[map[string]any]("charge", durable.Redacted("card.number"), durable.Alias("pay")).Info())
		for _, job := range []string{"charge", "pay"} {
			run := durable.NewJob[map[string]any](job).New(map[string]any{"card": map[string]string{"number": "canary"}})
			_, err := b.store.Enqueue(t.Context(), run)
			require.NoError(t, err)
			id := run.ID.String()
			b.want(200, "POST", "/runs/"+id+"/cancel", "")
			for path, text := range b.readAll(id) {
				require.NotContains(t, text, "canary", path)
			}
			viewer := b.as(viewerToken)
			require.Equal(t, "forbidden", viewer.want(403, "POST", "/runs/"+id+"/reveal", `{}`)["code"])
			require.Equal(t, "unauthorized", b.as("").want(401, "POST", "/runs/"+id+"/reveal", `{}`)["code"])
			require.Empty(t, b.want(200, "GET", "/audit?action=reveal&subject="+id, "")["changes"])

			shown := b.want(200, "POST", "/runs/"+id+"/reveal", `{"reason":"ticket 4711"}`)
			require.Equal(t, map[string]any{"card": map[string]any{"number": "canary"}}, shown["args"])
			changes := b.want(200, "GET", "/audit?action=reveal&subject="+id, "")["changes"].([]any)
			require.Len(t, changes, 1)
			row := changes[0].(map[string]any)
			require.Equal(t, []any{"operator@192.0.2.1 (token)", "run", "reveal"}, []any{row["actor"], row["kind"], row["action"]})
			require.Equal(t, map[string]any{"reason": "ticket 4711"}, row["detail"])
			require.NotContains(t, b.send("GET", "/runs/"+id, "").Body.String(), "canary", "for that one look")
			b.want(400, "POST", "/runs/"+id+"/reveal", `{"why":"x"}`)
			b.want(400, "POST", "/runs/"+id+"/reveal", `{"reason":"`+strings.Repeat("x", 1001)+`"}`)
		}
		b.want(404, "POST", "/runs/0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e/reveal", "")
	})
}
