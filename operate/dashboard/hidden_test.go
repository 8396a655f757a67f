package dashboard_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

// TestViewersOfPagesSeeWhatTheyMay crawls all pages as a viewer who may see no texts.
func TestViewersOfPagesSeeWhatTheyMay(t *testing.T) {
	db := engines["memory"](t)
	made := fillWith(t, db, "x", "argscanary")
	job := durable.NewJob[note]("dies", durable.MaxAttempts(1))
	worker := durable.NewWorker(db, durable.WorkerConfig{Name: "web-2", PollInterval: 20 * time.Millisecond})
	durable.Register(worker, job, func(ctx context.Context, run *durable.Run[note]) error {
		run.Log().Info("textcanary")
		return errors.Join(run.Progress(ctx, 0.5, "textcanary"), errors.New("textcanary"))
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	receipt, err := job.Enqueue(t.Context(), durable.NewClient(db), note{"argscanary"})
	require.NoError(t, err)
	op := operate.New(db, operate.Config{Locks: db.Locks()})
	t.Cleanup(op.Close)
	_, _ = op.Wait(t.Context(), receipt.ID)
	stop()
	require.NoError(t, <-ended)
	_, err = op.As("ann").AcknowledgeAll(t.Context(), store.Filter{Error: "textcanary", Args: "argscanary"}, "", nil)
	require.NoError(t, err)

	open := newSiteOf(t, db, op)
	has(t, open.get("runs/"+receipt.ID.String()), "textcanary", "argscanary")
	has(t, open.get("audit"), "textcanary", "argscanary")
	open.role = access.Viewer
	has(t, open.get("runs/"+receipt.ID.String()), "textcanary")
	lacks(t, open.get("audit"), "argscanary")
	require.Equal(t, 403, open.do("GET", "runs?args=argscanary", nil).status)
	require.Equal(t, 403, open.do("GET", "runs/change?action=cancel&all=true&args=argscanary", nil).status)

	strict := newSiteWith(t, &site{t: t, db: db, op: op, log: &bytes.Buffer{}, role: access.Viewer, texts: access.Operator})
	pages := crawl(strict)
	require.Greater(t, len(pages), 15)
	for _, path := range []string{"runs/" + receipt.ID.String(), "runs/" + made.dead.String(), "audit.csv", "problems?acknowledged=true", "jobs?name=dies"} {
		pages[path] = strict.get(path)
	}
	for path, page := range pages {
		lacks(t, page, "canary")
		require.NotEmpty(t, page, path)
	}
	has(t, pages["runs/"+receipt.ID.String()], "•••")
	lacks(t, pages["runs"], `name="error"`, `name="args"`)
	require.Equal(t, 403, strict.do("GET", "runs?error=textcanary", nil).status)
}
