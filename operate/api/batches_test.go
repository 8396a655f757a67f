package api_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/store"
)

// pages leaves an open batch of a member that has succeeded with a canary, one that is dead with
// another, and one that is not due, and returns its id.
func (b *bench) pages() string {
	b.t.Helper()
	job := durable.NewJob[map[string]string]("page")
	worker := durable.NewWorker(b.store, durable.WorkerConfig{})
	durable.Register(worker, job, func(_ context.Context, run *durable.Run[map[string]string]) error {
		if run.Args["page"] == "2" {
			return durable.Permanent(errors.New("text-canary"))
		}
		return run.SetResult("value-canary")
	})
	b.declare(job.Info())
	id := store.NewRunID().String()
	batch := `"batch":{"id":"` + id + `","name":"pages","open_for":"1h"}`
	b.want(201, "POST", "/runs", `{"runs":[{"job":"page","args":{"page":"1"},`+batch+`},{"job":"page","args":{"page":"2"},`+batch+`}]}`)
	b.want(201, "POST", "/runs", `{"job":"page","args":{},"after":"1h","batch":{"id":"`+id+`"}}`)
	stop := b.work(worker)
	defer stop()
	require.Eventually(b.t, func() bool { return b.want(200, "GET", "/batches/"+id, "")["unfinished"] == 1.0 }, time.Minute, 10*time.Millisecond)
	return id
}

func TestBatchesAreListedClosedRetriedAndCancelled(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		id := b.pages()
		list := b.want(200, "GET", "/batches?state=running&name=pages&limit=1", "")
		require.Equal(t, id, list["batches"].([]any)[0].(map[string]any)["id"])
		require.Empty(t, b.want(200, "GET", "/batches?state=failed", "")["batches"])
		b.want(400, "GET", "/batches?state=dead", "")
		one := b.want(200, "GET", "/batches/"+id, "")
		require.Equal(t, map[string]any{"members": 3.0, "succeeded": 1.0, "dead": 1.0, "cancelled": 0.0}, one["counts"])
		require.Equal(t, []any{false, "running"}, []any{one["closed"], one["state"]})
		require.Equal(t, "text-canary", one["failed"].([]any)[0].(map[string]any)["reason"])
		require.Len(t, idsIn(b.want(200, "GET", "/runs?batch="+id, "")), 3)
		require.Len(t, idsIn(b.want(200, "GET", "/runs?state=dead&state=pending&limit=1&batch="+id, "")), 1)
		require.Equal(t, 1.0, b.want(200, "GET", "/counts?state=dead&batch="+id, "")["counts"].(map[string]any)["dead"].(map[string]any)["n"])
		b.want(400, "GET", "/runs?batch=x", "")
		b.want(400, "GET", "/runs?batch=00000000-0000-0000-0000-000000000000", "")
		b.want(400, "POST", "/bulk", `{"action":"delete","filter":{"batch":null}}`)
		run := idsIn(b.want(200, "GET", "/runs?batch="+id, ""))[0].(string)
		require.Equal(t, id, b.want(200, "GET", "/runs/"+run, "")["batch"].(map[string]any)["id"])
		members := b.want(200, "GET", "/batches/"+id+"/members?state=succeeded&state=pending", "")["members"].([]any)
		require.Len(t, members, 2)
		require.Equal(t, "value-canary", members[0].(map[string]any)["result"])

		require.Equal(t, true, b.want(200, "POST", "/batches/"+id+"/close", "")["closed"])
		b.want(200, "POST", "/batches/"+id+"/close", `{}`)
		require.Equal(t, "conflict", b.want(409, "POST", "/runs", `{"job":"page","args":{},"batch":{"id":"`+id+`"}}`)["code"], "it is closed")
		b.want(404, "POST", "/runs", `{"job":"page","args":{},"batch":{"id":"`+store.NewRunID().String()+`"}}`)
		b.want(422, "POST", "/runs", `{"job":"page","args":{},"batch":{"id":"`+store.NewRunID().String()+`","name":"x","open_for":"-1s"}}`)

		begun := b.send("POST", "/batches/"+id+"/retry", `{"reason":"ticket"}`)
		require.Equal(t, 202, begun.Code, begun.Body)
		require.Equal(t, "../../bulk/1", begun.Header().Get("Location"))
		require.Eventually(t, func() bool { return b.want(200, "GET", "/bulk/1", "")["state"] == "done" }, time.Minute, 10*time.Millisecond)
		bulk := b.want(200, "GET", "/bulk/1", "")
		require.Equal(t, []any{id, 1.0}, []any{bulk["batch"], bulk["progress"].(map[string]any)["changed"]})
		require.Equal(t, 2.0, b.want(200, "GET", "/batches/"+id, "")["unfinished"])

		cancelled := b.want(202, "POST", "/batches/"+id+"/cancel", `{"reason":"wrong file"}`)
		require.Equal(t, []any{true, "wrong file"}, []any{cancelled["cancelled"], cancelled["reason"]})
		audited := b.want(200, "GET", "/audit?kind=batch&subject="+id, "")["changes"].([]any)
		require.Equal(t, []any{"cancel", "operator@192.0.2.1 (token)"}, []any{audited[0].(map[string]any)["action"], audited[0].(map[string]any)["actor"]})
		refused := b.want(409, "POST", "/runs", `{"job":"page","args":{},"batch":{"id":"`+id+`"}}`)
		require.Contains(t, refused["detail"], "was cancelled: wrong file")
		require.Equal(t, []any{"close", "operator@192.0.2.1 (token)"}, []any{audited[1].(map[string]any)["action"], audited[1].(map[string]any)["actor"]})
		for _, path := range []string{"", "/members"} {
			b.want(404, "GET", "/batches/"+store.NewRunID().String()+path, "")
			b.want(400, "GET", "/batches/x"+path, "")
		}
		for _, action := range []string{"close", "cancel", "retry"} {
			b.want(404, "POST", "/batches/"+store.NewRunID().String()+"/"+action, `{}`)
			b.want(400, "POST", "/batches/"+id+"/"+action, `{"x":1}`)
		}
	})
}

func TestAViewerSeesNoValuesOfMembersAndChangesNoBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.pages()
	strict, err := api.New(b.op, api.Config{Auth: access.Tokens(operatorToken, viewerToken), Texts: access.Operator})
	require.NoError(t, err)
	b.handler = strict
	viewer := b.as(viewerToken)
	for _, path := range []string{"/batches/" + id, "/batches/" + id + "/members", "/batches"} {
		require.NotContains(t, viewer.send("GET", path, "").Body.String(), "canary", path)
	}
	require.Contains(t, b.send("GET", "/batches/"+id+"/members", "").Body.String(), "value-canary")
	for _, action := range []string{"close", "cancel", "retry"} {
		viewer.want(403, "POST", "/batches/"+id+"/"+action, `{}`)
	}
	require.Equal(t, false, b.want(200, "GET", "/batches/"+id, "")["closed"])
}
