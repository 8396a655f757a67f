package operate_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestOperator_ActsOnAllThatMatch(t *testing.T) {
	db := memory.New(memory.Config{})
	client, job := durable.NewClient(db), durable.NewJob[string]("mail")
	enqueue := func(options ...durable.Option) store.RunID {
		receipt, err := job.Enqueue(t.Context(), client, "x", options...)
		require.NoError(t, err)
		return receipt.ID
	}
	var kept store.RunID
	for i := range 450 {
		enqueue(durable.Tags("bulk"))
		if i == 100 {
			kept = enqueue()
		}
	}
	o := operate.New(db, operate.Config{}).As("ann")
	var steps []operate.Bulk
	filter := store.Filter{Tag: "bulk"}
	done, err := o.CancelAll(t.Context(), filter, "not wanted", func(b operate.Bulk) { steps = append(steps, b) })
	require.NoError(t, err)
	require.Equal(t, operate.Bulk{Seen: 450, Changed: 450}, done)
	require.Len(t, steps, 3)
	require.Equal(t, 200, steps[0].Changed)
	record, err := o.Run(t.Context(), kept)
	require.NoError(t, err)
	require.Equal(t, store.Pending, record.State)

	filter.Before = steps[0].Next // goes on where the first step ended
	done, err = o.RetryAll(t.Context(), filter, "", nil)
	require.NoError(t, err)
	require.Equal(t, operate.Bulk{Seen: 250, Changed: 250}, done)

	ctx, cancel := context.WithCancel(t.Context())
	done, err = o.DeleteAll(ctx, store.Filter{States: store.States()}, "", func(operate.Bulk) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 200, done.Changed)
	require.NotZero(t, done.Next)
	done, err = o.DeleteAll(t.Context(), store.Filter{States: store.States(), Before: done.Next}, "", nil)
	require.NoError(t, err)
	require.Equal(t, 251, done.Changed)
}

func TestOperator_RefusesAnOrderThatMakesNoSenseEvenForNoRun(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	long := strings.Repeat("x", 1001)
	for _, o := range []*operate.Actor{operate.New(db, operate.Config{}).As(""), operate.New(db, operate.Config{}).As("a\x00"), operate.New(db, operate.Config{}).As(long)} {
		_, err := o.Cancel(t.Context(), "")
		require.ErrorIs(t, err, store.ErrInvalid)
		_, err = o.DeleteAll(t.Context(), store.Filter{}, "", nil)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	_, err := operate.New(db, operate.Config{}).As("ann").RetryAll(t.Context(), store.Filter{}, long, nil)
	require.ErrorIs(t, err, store.ErrInvalid)
}

func TestBulk_SaysAsJSONWhereItGoesOn(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(operate.Bulk{Seen: 2, Changed: 1, Conflict: 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"seen":2,"changed":1,"cancel_requested":0,"unchanged":0,"conflict":1,"locked":0,"not_found":0,"next":null}`, string(text))
	id := store.NewRunID()
	text, err = json.Marshal(&operate.Bulk{Next: id})
	require.NoError(t, err)
	require.Contains(t, string(text), `"next":"`+id.String()+`"`)
	var read operate.Bulk
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, operate.Bulk{Next: id}, read)
}

func TestOperator_OneRunThatDoesNotExistIsAnError(t *testing.T) {
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{}).As("ann")
	receipt, err := durable.NewJob[string]("mail").Enqueue(t.Context(), durable.NewClient(db), "x")
	require.NoError(t, err)
	missing := store.NewRunID()
	for _, change := range []func(context.Context, string, ...store.RunID) (operate.ChangedRuns, error){o.Cancel, o.Retry, o.Delete} {
		_, err := change(t.Context(), "", missing)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorContains(t, err, missing.String())
	}
	changed, err := o.Cancel(t.Context(), "", missing, receipt.ID)
	require.NoError(t, err, "of several runs, the answer says it")
	require.Equal(t, []store.ChangeResult{store.RunNotFound, store.RunChanged}, []store.ChangeResult{changed.Runs[0].Result, changed.Runs[1].Result})
}

func TestActor_RerunInherits(t *testing.T) {
	db := memory.New(memory.Config{})
	client := durable.NewClient(db)
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w"}, Limits: []store.Limit{{Name: "tenant", Kind: store.LimitSemaphore, Max: 2}}}))
	run := durable.NewJob[string]("mail", durable.Metadata(map[string]string{"tenant": "acme"})).New("x", durable.Tags("t"), durable.Metadata(map[string]string{"n": "1"}))
	run.Limits = []store.LimitUse{{Limit: "tenant", Key: "acme"}}
	_, err := client.Enqueue(t.Context(), run)
	require.NoError(t, err)
	o := operate.New(db, operate.Config{}).As("ann")
	made, err := o.Rerun(t.Context(), run.ID, nil)
	require.NoError(t, err)
	first, err := o.Run(t.Context(), run.ID)
	require.NoError(t, err)
	again, err := o.Run(t.Context(), made.ID)
	require.NoError(t, err)
	require.Equal(t, store.Metadata{"tenant": "acme", "n": "1"}, again.Metadata, "of the job and of the run")
	require.Equal(t, []string{"t"}, again.Tags)
	require.NotEmpty(t, again.Limits)
	require.Equal(t, first.Limits, again.Limits)
	made, err = o.Rerun(t.Context(), run.ID, nil, durable.Metadata(map[string]string{"n": "2"}))
	require.NoError(t, err)
	again, err = o.Run(t.Context(), made.ID)
	require.NoError(t, err)
	require.Equal(t, store.Metadata{"tenant": "acme", "n": "2"}, again.Metadata)
}
