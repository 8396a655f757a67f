package api_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

func TestDependentsAreEnqueuedAndShown(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		extract, load := store.NewRunID().String(), store.NewRunID().String()
		b.want(201, "POST", "/runs", fmt.Sprintf(`{"runs":[{"job":"mail","id":%q},{"job":"mail","id":%q,"depends_on":[{"on":"success","runs":[%q]}]}]}`, extract, load, extract))
		alarm := b.want(201, "POST", "/runs", fmt.Sprintf(`{"job":"report","depends_on":[{"on":"failure","runs":[%q,%q]}]}`, extract, load))["id"].(string)

		shown := b.want(200, "GET", "/runs/"+load, "")
		require.Equal(t, []any{map[string]any{"run": extract, "job": "mail", "state": "pending", "step": nil, "on": "success", "any_of": 0.0, "met": false}}, shown["depends_on"])
		require.Equal(t, map[string]any{"n": 0.0, "is": "exact"}, shown["more_dependents"])
		require.Nil(t, shown["parent"])
		require.Equal(t, []any{alarm}, runsIn(shown["dependents"]))
		require.ElementsMatch(t, []any{load, alarm}, runsIn(b.want(200, "GET", "/runs/"+extract, "")["dependents"]))
		require.Equal(t, []any{alarm, load}, idsIn(b.want(200, "GET", "/runs?waiting_on="+extract, "")))
		require.Equal(t, 2.0, b.want(200, "GET", "/counts?state=pending&waiting_on="+extract, "")["counts"].(map[string]any)["pending"].(map[string]any)["n"])

		dead := func(shown map[string]any) bool { return shown["state"] == "dead" }
		b.works(extract, dead, func(context.Context, *durable.Run[map[string]any]) error {
			return durable.Permanent(errors.New("broken"))
		})
		_, err := b.store.Release(t.Context(), store.ReleaseRequest{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []any{load}, idsIn(b.want(200, "GET", "/runs?waiting_on="+extract, "")), "the alarm is due")
		items := b.want(200, "GET", "/attention", "")["items"].([]any)
		held := itemOf(items, "held")
		require.Equal(t, extract, held["subject"])
		require.Equal(t, "runs retry "+extract, held["next"].([]any)[0].(map[string]any)["command"])

		b.want(202, "POST", "/bulk", fmt.Sprintf(`{"action":"cancel","filter":{"waiting_on":%q}}`, extract))
		require.Eventually(t, func() bool { return b.want(200, "GET", "/runs/"+load, "")["state"] == "cancelled" }, time.Minute, 10*time.Millisecond)
		require.Equal(t, "pending", b.want(200, "GET", "/runs/"+alarm, "")["state"], "what does not wait for it is not changed")
	})
}

func TestDependenciesThatMakeNoSenseAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		id, unknown := b.enqueue(`{}`), store.NewRunID().String()
		for body, pointer := range map[string]string{
			`{"job":"mail","depends_on":[{"on":"done","runs":[%q]}]}`:                     "/depends_on/0/on",
			`{"job":"mail","depends_on":[{"runs":[%q]}]}`:                                 "/depends_on/0/on",
			`{"job":"mail","depends_on":[{"on":"end","runs":[%q]},{"on":"end"}]}`:         "/depends_on/1/runs",
			`{"job":"mail","after":"1h","depends_on":[{"on":"end","runs":[%q]}]}`:         "/depends_on",
			`{"runs":[{"job":"mail","depends_on":[{"on":"success","runs":[%q,"7"]}]}]}`:   "/runs/0/depends_on/0/runs",
			`{"job":"mail","depends_on":[{"on":"success","runs":[%q],"what":"is this"}]}`: "/depends_on/0/what",
			`{"job":"mail","depends_on":[{"on":"success","runs":[%q,null]}]}`:             "/depends_on/0/runs",
		} {
			faults := b.want(400, "POST", "/runs", fmt.Sprintf(body, id))["errors"].([]any)
			require.Contains(t, faults[0].(map[string]any)["pointer"], pointer, body)
		}
		problem := b.want(404, "POST", "/runs", fmt.Sprintf(`{"job":"mail","depends_on":[{"on":"end","runs":[%q]}]}`, unknown))
		require.Equal(t, "not_found", problem["code"])
		require.Contains(t, problem["detail"], "depends on run "+unknown+", which does not exist: store it before, or in the same call")
		circle := b.want(422, "POST", "/runs", fmt.Sprintf(`{"runs":[{"job":"mail","id":%[1]q,"depends_on":[{"on":"end","runs":[%[2]q]}]},{"job":"mail","id":%[2]q,"depends_on":[{"on":"end","runs":[%[1]q]}]}]}`,
			unknown, store.NewRunID()))
		require.Contains(t, fmt.Sprint(circle), "runs depend on each other")
		b.want(400, "GET", "/runs?parent=00000000-0000-0000-0000-000000000000", "")
		b.want(400, "GET", "/runs?waiting_on="+id+"&parent="+id, "")
		b.want(400, "POST", "/bulk", `{"action":"delete","filter":{"parent":"00000000-0000-0000-0000-000000000000"}}`)
		b.want(400, "POST", "/bulk", `{"action":"delete","filter":{"waiting_on":null}}`)
	})
}

func TestChildrenAreShownWithTheirParent(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		parent := b.enqueue(`{}`)
		report := durable.Returning[int](durable.NewJob[map[string]any]("report", durable.OnQueue("slow")))
		called := func(shown map[string]any) bool {
			return len(shown["children"].([]any)) > 0 && shown["state"] == "pending"
		}
		b.works(parent, called, func(ctx context.Context, run *durable.Run[map[string]any]) error {
			_, err := report.Call(ctx, run, "sum", map[string]any{})
			return err
		})
		id, err := store.ParseRunID(parent)
		require.NoError(t, err)
		child := durable.IDFrom(id, "sum").String()
		shown := b.want(200, "GET", "/runs/"+parent, "")
		require.Equal(t, []any{map[string]any{"run": child, "job": "report", "state": "pending", "step": "sum", "on": nil, "any_of": 0.0, "met": false}}, shown["children"])
		require.Equal(t, map[string]any{"run": parent, "job": "mail", "state": "pending", "step": "sum"}, b.want(200, "GET", "/runs/"+child, "")["parent"])
		require.Equal(t, []any{child}, idsIn(b.want(200, "GET", "/runs?parent="+parent, "")))
		require.Empty(t, idsIn(b.want(200, "GET", "/runs?parent="+child, "")))
	})
}

// works has a worker execute runs of mail until something is so of the run as it is shown.
func (b *bench) works(id string, until func(shown map[string]any) bool, handler func(context.Context, *durable.Run[map[string]any]) error) {
	b.t.Helper()
	worker := durable.NewWorker(b.store, durable.WorkerConfig{PollInterval: 20 * time.Millisecond})
	durable.Register(worker, durable.NewJob[map[string]any]("mail"), handler)
	stop := b.work(worker)
	defer stop()
	require.Eventually(b.t, func() bool { return until(b.want(200, "GET", "/runs/"+id, "")) }, time.Minute, 10*time.Millisecond)
}

func itemOf(items []any, kind string) map[string]any {
	for _, item := range items {
		if one := item.(map[string]any); one["kind"] == kind {
			return one
		}
	}
	return nil
}

func runsIn(links any) (ids []any) {
	for _, link := range links.([]any) {
		ids = append(ids, link.(map[string]any)["run"])
	}
	return ids
}

func idsIn(page map[string]any) (ids []any) {
	for _, run := range page["runs"].([]any) {
		ids = append(ids, run.(map[string]any)["id"])
	}
	return ids
}
