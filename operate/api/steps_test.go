package api_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/store"
)

// waiting leaves a run that has recorded a result and a failure with canaries, and that waits for
// the input approved, and returns its id.
func (b *bench) waiting() string {
	b.t.Helper()
	job := durable.NewJob[map[string]any]("order", durable.Redacted("token"))
	worker := durable.NewWorker(b.store, durable.WorkerConfig{})
	durable.Register(worker, job, func(ctx context.Context, run *durable.Run[map[string]any]) error {
		_, err := durable.Step(ctx, run, "pay/\u202e<b>", func(context.Context) (map[string]string, error) {
			return map[string]string{"token": "rule-canary", "n": "value-canary"}, nil
		})
		if err != nil {
			return err
		}
		_, err = durable.Step(ctx, run, "charge", func(context.Context) (int, error) { return 0, errors.New("text-canary") }, durable.StepAttempts(1))
		if !durable.Final(err) {
			return err
		}
		_, err = durable.Receive[map[string]any](ctx, run, "approved", time.Hour)
		return err
	})
	b.declare(job.Info())
	id, _ := b.want(201, "POST", "/runs", `{"job":"order","args":{}}`)["id"].(string)
	stop := b.work(worker)
	defer stop()
	require.Eventually(b.t, func() bool { return len(b.want(200, "GET", "/runs/"+id+"/steps", "")["waits"].([]any)) > 0 }, time.Minute, 10*time.Millisecond)
	return id
}

func TestStepsAreListedAndForgottenAndInputsSent(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		id := b.waiting()
		list := b.want(200, "GET", "/runs/"+id+"/steps", "")
		steps := list["steps"].([]any)
		require.Len(t, steps, 3)
		first := steps[0].(map[string]any)
		require.Equal(t, []any{"pay/\u202e<b>", "done", map[string]any{"token": "•••", "n": "value-canary"}}, []any{first["name"], first["kind"], first["value"]})
		require.Equal(t, "text-canary", steps[1].(map[string]any)["error"])
		wait := list["waits"].([]any)[0].(map[string]any)
		require.Equal(t, []any{"approved", "input"}, []any{wait["name"], wait["kind"]})
		require.NotNil(t, wait["until"])
		blocker := b.want(200, "GET", "/runs/"+id+"/explain", "")["blockers"].([]any)
		require.Contains(t, kindsOf(blocker), "input")

		shown := b.want(200, "POST", "/runs/"+id+"/reveal", `{"reason":"ticket"}`)["steps"].([]any)[0].(map[string]any)
		require.Equal(t, map[string]any{"token": "rule-canary", "n": "value-canary"}, shown["value"])

		to := "/runs/" + id + "/inputs/"
		require.Equal(t, "invalid", b.want(400, "PUT", to+"approved", `{"a":`)["code"])
		b.want(400, "PUT", to+"approved", "")
		b.want(400, "PUT", to+"approved", `{"token":"•••"}`)
		b.want(400, "PUT", to+"a%1bb", `1`)
		b.want(404, "PUT", "/runs/"+store.NewRunID().String()+"/inputs/approved", `1`)
		require.Equal(t, false, b.want(201, "PUT", to+"note%20<b>", `{"a": 1}`)["existing"])
		require.Equal(t, true, b.want(200, "PUT", to+"note%20<b>", `{"a":1}`)["existing"])
		require.Equal(t, "conflict", b.want(409, "PUT", to+"note%20<b>", `{"a":2}`)["code"])
		inputs := b.want(200, "GET", "/runs/"+id+"/steps", "")["inputs"].([]any)
		require.Equal(t, "operator@192.0.2.1 (token)", inputs[0].(map[string]any)["by"])
		audited := b.want(200, "GET", "/audit?action=send_input&subject="+id, "")["changes"].([]any)
		require.Len(t, audited, 1, "what was sent again, or refused, is no change")
		require.Equal(t, map[string]any{"input": "note <b>", "size": 7.0}, audited[0].(map[string]any)["detail"])
		require.Equal(t, "operator@192.0.2.1 (token)", audited[0].(map[string]any)["actor"])

		require.Equal(t, 1.0, b.want(200, "DELETE", "/runs/"+id+"/steps/"+url.PathEscape("pay/\u202e<b>"), "")["steps"])
		require.Equal(t, "not_found", b.want(404, "DELETE", "/runs/"+id+"/steps/none", "")["code"])
		change := b.want(200, "GET", "/audit?action=forget_steps&subject="+id, "")["changes"].([]any)[0].(map[string]any)
		require.Equal(t, map[string]any{"steps": []any{"pay/\u202e<b>"}}, change["detail"])
		b.want(200, "POST", "/runs/"+id+"/cancel", `{}`)
		require.Contains(t, b.want(409, "PUT", to+"late", `1`)["detail"], "the run has ended")
		require.Empty(t, b.want(200, "GET", "/runs/"+id+"/steps", "")["waits"])
	})
}

func kindsOf(blockers []any) (kinds []any) {
	for _, blocker := range blockers {
		kinds = append(kinds, blocker.(map[string]any)["kind"])
	}
	return kinds
}

// TestAViewerSeesNoValueOfAStep: nor its error, if texts are for operators.
func TestAViewerSeesNoValueOfAStep(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		id := b.waiting()
		b.want(201, "PUT", "/runs/"+id+"/inputs/other", `"value-canary"`)
		for path, text := range b.readAll(id) {
			require.NotContains(t, text, "rule-canary", path)
		}
		viewer := b.as(viewerToken)
		for path, text := range viewer.readAll(id) {
			require.NotContains(t, text, "value-canary", path)
		}
		list := viewer.want(200, "GET", "/runs/"+id+"/steps", "")
		require.Greater(t, list["steps"].([]any)[0].(map[string]any)["size"], 10.0)
		require.EqualValues(t, len(`"value-canary"`), list["inputs"].([]any)[0].(map[string]any)["size"])
		require.Equal(t, "forbidden", viewer.want(403, "PUT", "/runs/"+id+"/inputs/approved", `1`)["code"])
		require.Equal(t, "forbidden", viewer.want(403, "DELETE", "/runs/"+id+"/steps/charge", "")["code"])

		strict, err := api.New(b.op, api.Config{Auth: access.Tokens(operatorToken, viewerToken), Texts: access.Operator})
		require.NoError(t, err)
		viewer.handler = strict
		for path, text := range viewer.readAll(id) {
			require.NotContains(t, text, "canary", path)
		}
		require.Equal(t, "•••", viewer.want(200, "GET", "/runs/"+id+"/steps", "")["steps"].([]any)[1].(map[string]any)["error"])
	})
}
