package operate_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestValuesAreHiddenByRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rule, have, want string }{
		{"card.number", `{"card":{"number":4711,"by":"ann"},"n":1.50}`, `{"card":{"number":"•••","by":"ann"},"n":1.50}`},
		{"card", `{"card":{"number":4711}}`, `{"card":"•••"}`},
		{"*.token", `{"a":{"token":"x"},"b":{"token":["y"]},"token":"z"}`, `{"a":{"token":"•••"},"b":{"token":"•••"},"token":"z"}`},
		{"**.token", `{"a":[{"b":{"token":"x"}}],"token":"<z>","n":"<n>"}`, `{"a":[{"b":{"token":"•••"}}],"token":"•••","n":"<n>"}`},
		{"items.price", `{"items":[{"price":1},{"price":2,"n":3}]}`, `{"items":[{"price":"•••"},{"price":"•••","n":3}]}`},
		{"**.password", `{"Password":"x","a":{"PASSWORD":["y"]},"pa\u0073sword":"z","paſſword":"w","passwords":1}`, `{"Password":"•••","a":{"PASSWORD":"•••"},"password":"•••","paſſword":"•••","passwords":1}`},
		{"Card.Number", `{"card":{"number":1},"CARD":{"Number":2},"card.number":3}`, `{"card":{"number":"•••"},"CARD":{"Number":"•••"},"card.number":3}`},
		{"card.number", `{"card":{"number":"x"},"card":5}`, `{"card":{"number":"•••"},"card":5}`},
		{"card.number", `{"card":{"number":"x","number":"y"},"card":{"number":["z"]}}`, `{"card":{"number":"•••","number":"•••"},"card":{"number":"•••"}}`},
		{"**.token", `[[[{"a":[[{"token":{"b":1}}]]}]],{"token":null}]`, `[[[{"a":[[{"token":"•••"}]]}]],{"token":"•••"}]`},
		{"token", `{"a":1} {"token":"x"}`, `"•••"`},
		{"token", `{"a":1,"token":"x"`, `"•••"`},
		{"token", `{"a":"\ud800","b":[1e400,-0,true,null,{}],"token":1}`, `{"a":"�","b":[1e400,-0,true,null,{}],"token":"•••"}`},
		{"token", `[{"token":1}]`, `[{"token":"•••"}]`},
		{"token", `{"other": 12345678901234567890}`, `{"other": 12345678901234567890}`},
		{"token", `"text"`, `"text"`},
		{"token", `not JSON`, `"•••"`},
	} {
		r, err := operate.NewRedaction(c.rule)
		require.NoError(t, err)
		require.Equal(t, c.want, string(r.Of([]byte(c.have))), c.rule)
	}
	for _, bad := range []string{"", "a..b", ".a", "**", "a.**.b"} {
		_, err := operate.NewRedaction(bad)
		require.ErrorIs(t, err, store.ErrInvalid, bad)
	}
}

// TestWhatIsHiddenIsNotLost: what an operator reads with masks and sends back keeps its
// values, and a mask is never stored.
func TestWhatIsHiddenIsNotLost(t *testing.T) {
	t.Parallel()
	rule, err := operate.NewRedaction("token")
	require.NoError(t, err)
	db := memory.New(memory.Config{})
	plain, o := operate.New(db, operate.Config{}), operate.New(db, operate.Config{Redact: rule}).As("ann")
	job := durable.NewJob[map[string]any]("mail")
	made, err := o.Enqueue(t.Context(), job.New(map[string]any{"token": "canary", "n": 1}))
	require.NoError(t, err)
	shown, err := o.Run(t.Context(), made.ID)
	require.NoError(t, err)
	require.JSONEq(t, `{"token":"•••","n":1}`, string(shown.Args))
	list, err := o.Runs(t.Context(), store.Filter{})
	require.NoError(t, err)
	text, err := json.Marshal(list)
	require.NoError(t, err)
	require.NotContains(t, string(text), "canary")

	_, err = o.SaveSchedule(t.Context(), store.Schedule{Name: "s", Rule: store.Every(3600e9), Job: "mail", Queue: "default", MaxAttempts: 1, Args: []byte(`{"token":"canary"}`)})
	require.NoError(t, err)
	schedule, err := o.Schedule(t.Context(), "s")
	require.NoError(t, err)
	require.JSONEq(t, `{"token":"•••"}`, string(schedule.Args))
	edited := schedule.Schedule()
	edited.Rule = store.Every(7200e9)
	_, err = o.SaveSchedule(t.Context(), edited)
	require.NoError(t, err)
	edited.Args, edited.Generation = []byte(`{"token":"•••","more":1}`), edited.Generation+1
	_, err = o.SaveSchedule(t.Context(), edited)
	require.ErrorIs(t, err, store.ErrInvalid)
	schedule, err = plain.Schedule(t.Context(), "s")
	require.NoError(t, err)
	require.JSONEq(t, `{"token":"canary"}`, string(schedule.Args))

	for _, args := range []json.RawMessage{nil, shown.Args} {
		again, err := o.Rerun(t.Context(), made.ID, args)
		require.NoError(t, err)
		stored, err := plain.Run(t.Context(), again.ID)
		require.NoError(t, err)
		require.JSONEq(t, `{"token":"canary","n":1}`, string(stored.Args))
	}
	_, err = o.Rerun(t.Context(), made.ID, json.RawMessage(`{"token":"•••","n":2}`))
	require.ErrorIs(t, err, store.ErrInvalid)
	twice := job.New(nil)
	twice.Args = []byte(`{"Token":"canary","n":1,"token":"canary"}`)
	made, err = plain.As("ann").Enqueue(t.Context(), twice)
	require.NoError(t, err)
	shown, err = o.Run(t.Context(), made.ID)
	require.NoError(t, err)
	require.Equal(t, `{"Token":"•••","n":1,"token":"•••"}`, string(shown.Args))
	for _, args := range []string{`{"token":"•••","n":1}`, `{"token":"•••","n":1,"token":"•••"}`} {
		_, err = o.Rerun(t.Context(), made.ID, json.RawMessage(args))
		require.ErrorIs(t, err, store.ErrInvalid, "a member is not the one that is stored")
	}
	again, err := o.Rerun(t.Context(), made.ID, json.RawMessage(`{ "n":1, "Token":"•••","token":"•••"}`))
	require.NoError(t, err)
	stored, err := plain.Run(t.Context(), again.ID)
	require.NoError(t, err)
	require.Equal(t, string(twice.Args), string(stored.Args))
	_, err = o.EnqueueAll(t.Context(), []store.NewRun{job.New(map[string]any{"token": operate.Mask})})
	require.ErrorIs(t, err, store.ErrInvalid)
}
