package api_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// onEach runs a test on stores of every kind.
func onEach(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) { t.Parallel(); test(t, newBench(t)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, benchOn(t, sqliteAddress(t))) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, benchOn(t, pgtest.Server(t))) })
}

func TestRunsAreEnqueuedListedAndChanged(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		id := b.enqueue(`{"to":"ann"}`)
		got := b.want(200, "GET", "/runs/"+id, "")
		require.Equal(t, "pending", got["state"])
		require.Equal(t, map[string]any{"to": "ann"}, got["args"])
		require.Nil(t, got["hidden"])

		require.Equal(t, "cancelled", b.want(200, "POST", "/runs/"+id+"/cancel", `{"reason":"sent by hand"}`)["state"])
		require.Equal(t, "unchanged", b.want(200, "POST", "/runs/"+id+"/cancel", "")["result"], "a repeat changes nothing")
		require.Equal(t, "sent by hand", b.want(200, "GET", "/runs/"+id, "")["error"])
		require.Equal(t, "pending", b.want(200, "POST", "/runs/"+id+"/retry", "")["state"])
		made := b.want(201, "POST", "/runs/"+id+"/rerun", `{"args":{"to":"bob"}}`)["id"].(string)
		require.Equal(t, map[string]any{"to": "bob"}, b.want(200, "GET", "/runs/"+made, "")["args"])
		b.want(200, "DELETE", "/runs/"+made+"?reason=twice", "")
		require.Equal(t, "not_found", b.want(404, "GET", "/runs/"+made, "")["code"])
		require.Equal(t, "not_found", b.want(404, "DELETE", "/runs/"+made, "")["code"])

		list := b.want(200, "GET", "/audit", "")["changes"].([]any)
		require.Len(t, list, 4, "each change is a row")
		require.Equal(t, "operator@192.0.2.1 (token)", list[0].(map[string]any)["actor"])
	})
}

func TestAListHasFiltersAndCursors(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var want []string
		for i := range 5 {
			want = append([]string{b.enqueue(fmt.Sprintf(`{"n":%d}`, i))}, want...)
		}
		b.want(201, "POST", "/runs", `{"job":"report","tags":["a b"],"queue":"slow"}`)
		var have []string
		for cursor := ""; ; {
			page := b.want(200, "GET", "/runs?limit=2&job=mail&since=1h"+cursor, "")
			for _, run := range page["runs"].([]any) {
				have = append(have, run.(map[string]any)["id"].(string))
			}
			if page["next"] == nil {
				break
			}
			cursor = "&cursor=" + page["next"].(string)
		}
		require.Equal(t, want, have)
		require.Len(t, b.want(200, "GET", "/runs?tag="+url.QueryEscape("a b"), "")["runs"], 1)
		require.Len(t, b.want(200, "GET", "/runs?queue=slow&queue=default", "")["runs"], 6)
		require.Len(t, b.want(200, "GET", "/runs?id="+want[0]+"&id="+want[1], "")["runs"], 2)
		require.Empty(t, b.want(200, "GET", "/runs?state=dead&state=cancelled", "")["runs"])
		counts := b.want(200, "GET", "/counts?queue=slow", "")["counts"].(map[string]any)
		require.Equal(t, map[string]any{"n": 1.0}, counts["pending"])
	})
}

func TestRunsAreFoundByWhatIsKnownOfThem(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.enqueue(`{}`)
		id := b.want(201, "POST", "/runs", `{"job":"mail","unique":"order 1","metadata":{"tenant":"acme","city":"Köln"}}`)["id"].(string)
		require.Equal(t, map[string]any{"tenant": "acme", "city": "Köln"}, b.want(200, "GET", "/runs/"+id, "")["metadata"])
		b.want(201, "PUT", "/schedules?name=nightly", `{"job":"mail","rule":{"cron":"@yearly"},"metadata":{"tenant":"acme"}}`)
		made := b.want(202, "POST", "/schedules/run-now", `{"name":"nightly"}`)["id"].(string)
		b.want(200, "POST", "/runs/"+made+"/cancel", `{"reason":"no route to host"}`)
		found := func(query string) (ids []any) {
			for _, run := range b.want(200, "GET", "/runs?"+query, "")["runs"].([]any) {
				ids = append(ids, run.(map[string]any)["id"])
			}
			n := 0.0
			for _, count := range b.want(200, "GET", "/counts?"+query, "")["counts"].(map[string]any) {
				n += count.(map[string]any)["n"].(float64)
			}
			require.InDelta(t, len(ids), n, 0, "%s: a count and a list", query)
			return ids
		}
		for query, want := range map[string][]any{
			"key=order+1": {id}, "schedule=nightly": {made}, "error=no+route": {made}, "worker=nowhere": nil, "ended_since=1h": {made},
			"metadata=tenant%3Dacme": {made, id}, "metadata=tenant%3Dacme&metadata=city%3DK%C3%B6ln": {id}, "metadata=tenant%3Dother": nil,
		} {
			require.Equal(t, want, found(query), query)
		}
		b.want(422, "POST", "/runs", `{"job":"mail","metadata":{"a=b":"x"}}`)
		b.want(400, "POST", "/runs", `{"job":"mail","metadata":{"a":1}}`)
	})
}

func TestARunIsEnqueuedAsItSays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := store.NewRunID().String()
	b.want(201, "POST", "/runs", `{"id":"`+id+`","job":"mail","args":[1,2],"queue":"other","priority":3,"max_attempts":7,"timeout":"30s",
		"tags":["x"],"due_at":"2040-01-01T00:00:00Z","expires_at":"2041-01-01T00:00:00Z","unique":"k","unique_for":"1h"}`, "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	got := b.want(200, "GET", "/runs/"+id, "")
	for name, want := range map[string]any{"queue": "other", "priority": 3.0, "max_attempts": 7.0, "timeout": "30s", "due_at": "2040-01-01T00:00:00Z",
		"expires_at": "2041-01-01T00:00:00Z", "key": "k"} {
		require.Equal(t, want, got[name], name)
	}
	again := b.want(200, "POST", "/runs", `{"job":"mail","unique":"k"}`)
	require.Equal(t, map[string]any{"id": id, "existing": true}, again)
	several := b.want(201, "POST", "/runs", `{"runs":[{"job":"mail","after":"1h"},{"job":"mail","debounce":"d","quiet":"1m","at_most":"1h"},{"job":"report"}]}`)
	require.Len(t, several["runs"], 3)
	require.Len(t, b.want(200, "GET", "/runs", "")["runs"], 4)
}

func TestARequestCanBeRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		id := store.NewRunID().String()
		for _, key := range []string{id, "order 4711"} {
			first := b.want(201, "POST", "/runs", `{"job":"mail","args":{"a":1,"b":2}}`, "Idempotency-Key", key)
			again := b.want(200, "POST", "/runs", `{"job":"mail","args":{"b":2, "a":1}}`, "Idempotency-Key", key)
			require.Equal(t, first["id"], again["id"])
			require.Equal(t, true, again["existing"])
			refused := b.want(422, "POST", "/runs", `{"job":"mail","args":{"a":2}}`, "Idempotency-Key", key)
			require.Equal(t, "conflict", refused["code"])
		}
		b.want(422, "POST", "/runs", `{"job":"report","args":{"a":1,"b":2}}`, "Idempotency-Key", id)
		b.want(422, "POST", "/runs", `{"id":"`+id+`","job":"mail","args":{}}`)
		b.want(200, "POST", "/runs", `{"id":"`+id+`","job":"mail","args":{"a":1,"b":2}}`)
		for _, body := range []string{`{"job":"mail","unique":"k"}`, `{"runs":[{"job":"mail"}]}`} {
			b.want(400, "POST", "/runs", body, "Idempotency-Key", "order 4712")
		}
		b.want(400, "POST", "/runs", `{"job":"mail","id":"`+store.NewRunID().String()+`"}`, "Idempotency-Key", id)
		b.want(400, "POST", "/runs", `{"job":"mail"}`, "Idempotency-Key", strings.Repeat("k", 201))
		b.want(400, "POST", "/runs", `{"job":"mail"}`, "Idempotency-Key", "")
		require.Len(t, b.want(200, "GET", "/runs", "")["runs"], 2)
	})
}

func TestAllOrNothingIsEnqueued(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	refused := b.want(422, "POST", "/runs", `{"runs":[{"job":"mail"},{"job":"mail","priority":9},{"job":"mail","tags":[""]}]}`)
	require.Equal(t, "/runs/1/priority", refused["errors"].([]any)[0].(map[string]any)["pointer"])
	require.Equal(t, "/runs/2/tags", refused["errors"].([]any)[1].(map[string]any)["pointer"])
	refused = b.want(422, "POST", "/runs", `{"job":"mial"}`)
	require.Equal(t, "unknown_job", refused["code"])
	require.Contains(t, refused["detail"], "known jobs are mail, report")
	require.Equal(t, "unknown_limit", b.want(422, "POST", "/runs", `{"job":"mail","limited_by":["nowhere=x"]}`)["code"])
	require.Empty(t, b.want(200, "GET", "/runs", "")["runs"])
}

func TestAThousandRunsAreEnqueuedAndNotOneMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one := `{"job":"mail"}`
	b.want(201, "POST", "/runs", `{"runs":[`+strings.Repeat(one+",", 999)+one+`]}`)
	b.want(400, "POST", "/runs", `{"runs":[`+strings.Repeat(one+",", 1000)+one+`]}`)
	b.want(400, "POST", "/runs", `{"runs":[]}`)
	b.want(400, "POST", "/runs", `{"job":"mail","runs":[`+one+`]}`)
	b.want(201, "POST", "/runs", `{"job":"mail","args":"`+strings.Repeat("x", store.MaxArgsSize-2)+`"}`)
	b.want(422, "POST", "/runs", `{"job":"mail","args":"`+strings.Repeat("x", store.MaxArgsSize-1)+`"}`)
	b.want(413, "POST", "/runs", `{"job":"mail","args":"`+strings.Repeat("x", 1<<20)+`"}`)
}

func TestAClientWaitsForARun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.enqueue(`{}`)
	require.Equal(t, "pending", b.want(202, "GET", "/runs/"+id+"/wait?timeout=10ms", "")["state"])
	got := make(chan map[string]any, 1)
	go func() { got <- b.want(200, "GET", "/runs/"+id+"/wait?timeout=1m", "") }()
	b.want(200, "POST", "/runs/"+id+"/cancel", "")
	require.Equal(t, "cancelled", (<-got)["state"])
	b.want(400, "GET", "/runs/"+id+"/wait?timeout=61s", "")
	b.want(404, "GET", "/runs/"+store.NewRunID().String()+"/wait", "")
}

func TestARunThatExecutesIsAskedToEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	started := make(chan struct{})
	job := durable.NewJob[map[string]any]("busy")
	worker := durable.NewWorker(b.store, durable.WorkerConfig{PollInterval: 10 * time.Millisecond})
	durable.Register(worker, job, func(ctx context.Context, _ *durable.Run[map[string]any]) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	b.declare(job.Info())
	id := b.want(201, "POST", "/runs", `{"job":"busy"}`)["id"].(string)
	stop := b.work(worker)
	<-started
	require.Equal(t, "conflict", b.want(409, "DELETE", "/runs/"+id, "")["code"])
	require.Equal(t, "cancel_requested", b.want(202, "POST", "/runs/"+id+"/cancel", "")["result"])
	require.Equal(t, "cancelled", b.want(200, "GET", "/runs/"+id+"/wait", "")["state"])
	workers := b.want(200, "GET", "/workers", "")["workers"].([]any)
	require.Len(t, workers, 1)
	require.Len(t, b.want(200, "GET", "/jobs?name=busy", "")["jobs"], 1)
	require.Len(t, b.want(200, "GET", "/queues?name=default", "")["queues"], 1)
	stop()
}
