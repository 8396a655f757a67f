package dashboard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func TestARunIsShownWithWhatItWaitsForAndWhatWaitsForIt(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		op := operate.New(db, operate.Config{})
		t.Cleanup(op.Close)
		s := newSiteOf(t, db, op)
		job := durable.NewJob[note]("order")
		source := job.New(note{"x"}, durable.After(time.Hour))
		middle := job.New(note{"x"}, durable.DependsOn(durable.OnSuccess(source.ID)))
		runs := []store.NewRun{source, middle}
		for range 60 {
			runs = append(runs, job.New(note{"x"}, durable.DependsOn(durable.OnFailure(source.ID, middle.ID), durable.OnEnd(middle.ID))))
		}
		_, err := durable.NewClient(db).Enqueue(t.Context(), runs...)
		require.NoError(t, err)

		page := s.get("runs/" + middle.ID.String())
		has(t, page, "Depends on", "on success: not met", "runs/"+source.ID.String(), "Dependents", "on end: not met", "on failure of any: not met",
			"and 70 more", "runs?waiting_on="+middle.ID.String(), "s-pending")
		lacks(t, page, "Child of", "Children")
		has(t, s.get("runs/"+source.ID.String()), "Dependents", "and 11 more")
		lacks(t, s.get("runs/"+source.ID.String()), "Depends on")

		list := s.get("runs?waiting_on=" + source.ID.String())
		has(t, list, runs[61].ID.String(), `name="waiting_on" value="`+source.ID.String()+`"`)
		lacks(t, list, `id="r-`+source.ID.String())
		has(t, s.get("runs?parent="+source.ID.String()), "No run matches")
		require.Equal(t, 400, s.do("GET", "runs?parent=00000000-0000-0000-0000-000000000000", nil).status)

		job = durable.NewJob[note]("alone")
		alone := job.New(note{"x"})
		_, err = durable.NewClient(db).Enqueue(t.Context(), alone)
		require.NoError(t, err)
		lacks(t, s.get("runs/"+alone.ID.String()), `id="links"`)
	})
}

func TestAChildIsShownWithItsParent(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		op := operate.New(db, operate.Config{})
		t.Cleanup(op.Close)
		s := newSiteOf(t, db, op)
		parent, child := calls(t, db)
		page := s.get("runs/" + parent.String())
		has(t, page, "Children", "in sum", "runs/"+child.String(), "runs?parent="+parent.String())
		has(t, s.get("runs/"+child.String()), "Child of", "runs/"+parent.String(), "in its step sum")
		has(t, s.get("runs?parent="+parent.String()), child.String())
	})
}

// calls leaves a run whose handler has called another one that no worker takes.
func calls(t *testing.T, db engine) (parent, child store.RunID) {
	t.Helper()
	job, part := durable.NewJob[note]("whole"), durable.Returning[int](durable.NewJob[note]("part"))
	worker := durable.NewWorker(db, durable.WorkerConfig{PollInterval: 20 * time.Millisecond})
	durable.Register(worker, job, func(ctx context.Context, run *durable.Run[note]) error {
		_, err := part.Call(ctx, run, "sum", note{"x"})
		return err
	})
	receipt, err := job.Enqueue(t.Context(), durable.NewClient(db), note{"x"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	require.Eventually(t, func() bool {
		links, err := db.Links(t.Context(), receipt.ID)
		record, fault := db.Run(t.Context(), receipt.ID)
		return err == nil && fault == nil && len(links.WaitsFor) == 1 && record.State == store.Pending
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	return receipt.ID, durable.IDFrom(receipt.ID, "sum")
}
