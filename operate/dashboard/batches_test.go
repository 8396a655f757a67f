package dashboard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

// batchOf leaves an open batch named pages, of a member that has succeeded with a value, one that is
// dead with a hostile text, and one that is not due; a run waits for it.
func batchOf(t *testing.T, db engine, value string) store.BatchID {
	t.Helper()
	batch := store.NewBatch{ID: store.NewRunID(), Name: `pages<b>`, OpenFor: time.Hour}
	job := durable.NewJob[string]("page", durable.OnQueue("pages"))
	runs := []store.NewRun{job.New("ok"), job.New("dies"), job.New("later", durable.After(time.Hour))}
	for i := range runs {
		runs[i].Batch = &batch
	}
	report := job.New("report")
	report.DependsOn = []store.Condition{{Want: store.WantSucceeded, Batches: []store.NewBatch{{ID: batch.ID}}}}
	_, err := db.Enqueue(t.Context(), append(runs, report)...)
	require.NoError(t, err)
	worker := durable.NewWorker(db, durable.WorkerConfig{PollInterval: 20 * time.Millisecond, Queues: []durable.Queue{{Name: "pages"}}, Retention: 1000 * time.Hour, RetentionDead: 1000 * time.Hour})
	durable.Register(worker, job, func(_ context.Context, run *durable.Run[string]) error {
		if run.Args == "dies" {
			return durable.Permanent(errors.New("textcanary<i>"))
		}
		return run.SetResult(value)
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	require.Eventually(t, func() bool {
		b, err := db.Batch(t.Context(), batch.ID)
		return err == nil && b.Counts.Unfinished() == 1
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	return batch.ID
}

func TestABatchIsShownClosedRetriedAndCancelled(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		s := newSite(t, db)
		id := batchOf(t, db, "valuecanary")
		path := "batches/" + id.String()
		has(t, s.get("batches?state=running"), "Batches", path, "pages&lt;b&gt;", "open", "66 %")
		lacks(t, s.get("batches?state=failed"), path)
		lacks(t, s.get("batches?name=none"), path)
		require.Equal(t, 400, s.do("GET", "batches?state=dead", nil).status)
		page := s.get(path)
		has(t, page, "1 of 3 members unfinished", "it is open", "66 % have ended", "Failed members", "textcanary&lt;i&gt;", "What waits for it", "Close…", "Retry all dead (1)…", "Cancel…", "Time left")
		lacks(t, page, "pages<b>", "textcanary<i>", "valuecanary")
		found := "runs?batch=" + id.String() + "&amp;state="
		has(t, page, found+"succeeded", found+"dead", found+"pending&amp;state=running")
		lacks(t, page, found+"cancelled\">") // there is none
		members, err := db.Members(t.Context(), id, store.RunID{}, 1)
		require.NoError(t, err)
		has(t, s.get("runs/"+members.Members[0].ID.String()), "Member of batch", `href="`, path, "pages&lt;b&gt;", "2 of 3 ended")
		list := s.get("runs?state=dead&batch=" + id.String())
		has(t, list, `name="batch" value="`+id.String()+`"`, "textcanary&lt;i&gt;", `<details class="rare" open>`)
		require.Equal(t, 1, strings.Count(list, `<tr id="r-`))
		require.Equal(t, 3, strings.Count(s.get("runs?batch="+id.String()), `<tr id="r-`))
		require.Equal(t, 400, s.do("GET", "runs?batch=00000000-0000-0000-0000-000000000000", nil).status)
		require.Equal(t, 404, s.do("GET", "batches/"+store.NewRunID().String(), nil).status)
		require.Equal(t, 400, s.do("GET", "batches/x", nil).status)
		require.Equal(t, 400, s.do("GET", path+"/change?action=delete", nil).status)

		has(t, s.get(path+"/change?action=close"), "Close batch pages&lt;b&gt;?", "except by its members")
		require.Equal(t, path+"?did=close", s.post(path+"/change", "action", "close"))
		lacks(t, s.get(path), "Close…", "it is open")
		require.Contains(t, s.audited("batch", id.String(), "close").Actor, "ada")

		has(t, s.get(path+"/change?action=retry"), "Retry 1 dead member")
		at := s.post(path+"/change", "action", "retry", "reason", "ticket")
		require.True(t, strings.HasPrefix(at, "bulk/"), at)
		require.Eventually(t, func() bool {
			return strings.Contains(s.get(at), "1 run changed") || strings.Contains(s.get(at), "done")
		}, time.Minute, 10*time.Millisecond)
		has(t, s.get(at), "Retry dead members of a batch", path)
		require.Eventually(t, func() bool {
			b, err := db.Batch(t.Context(), id)
			return err == nil && b.Counts.Dead == 0
		}, time.Minute, 10*time.Millisecond)

		asked := s.do("POST", path+"/change", form("action", "cancel", "word", "no"))
		require.Equal(t, 400, asked.status)
		has(t, asked.body, "type cancel to confirm")
		require.Equal(t, path+"?did=cancel", s.post(path+"/change", "action", "cancel", "word", "cancel", "reason", "wrong<i>"))
		require.Contains(t, s.audited("batch", id.String(), "cancel").Actor, "ada")
		page = s.get(path)
		has(t, page, "wrong&lt;i&gt;")
		lacks(t, page, "wrong<i>", "Cancel…")
		has(t, s.get("audit?kind=batch"), path)
	})
}

func TestAViewerSeesABatchAndNoTextsOfItsMembers(t *testing.T) {
	db := engines["memory"](t)
	s := newSite(t, db)
	id := batchOf(t, db, "valuecanary")
	s.role = access.Viewer
	page := s.get("batches/" + id.String())
	has(t, page, "1 of 3 members unfinished")
	lacks(t, page, "Close…", "Cancel…", "Retry all", "valuecanary")
}
