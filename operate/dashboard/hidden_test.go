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

// TestARevealIsAskedForAndAudited: the page of a run offers it to operators where a rule
// hides something.
func TestARevealIsAskedForAndAudited(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		rule, err := operate.NewRedaction("text")
		require.NoError(t, err)
		op := operate.New(db, operate.Config{Redact: rule})
		t.Cleanup(op.Close)
		run := durable.NewJob[note]("mail").New(note{"argscanary"})
		_, err = op.Enqueue(t.Context(), run)
		require.NoError(t, err)
		plain := durable.NewJob[map[string]int]("plain").New(map[string]int{"n": 1})
		_, err = op.Enqueue(t.Context(), plain)
		require.NoError(t, err)
		s := newSiteOf(t, db, op)
		path := "runs/" + run.ID.String()
		page := s.get(path)
		has(t, page, "Reveal…", "•••")
		lacks(t, page, "argscanary")
		lacks(t, s.get("runs/"+plain.ID.String()), "Reveal…")
		asked := s.get(path + "/reveal")
		has(t, asked, "Reveal what is hidden of this run of mail?", "Reason, for the audit")
		lacks(t, asked, "argscanary")
		a := s.do("POST", path+"/reveal", form("reason", "ticket 4711"))
		require.Equal(t, 200, a.status)
		has(t, a.body, "argscanary")
		s.audited("run", run.ID.String(), "reveal")
		has(t, s.get(path), "ticket 4711")
		lacks(t, s.get(path), "argscanary")

		s.role = access.Viewer
		lacks(t, s.get(path), "Reveal…")
		require.Equal(t, 403, s.do("POST", path+"/reveal", form("reason", "curious")).status)
	})
}
