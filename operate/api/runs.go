package api

import (
	"encoding/json"
	"net/http"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func runRoutes() []route {
	return []route{
		{"GET /runs", wire.FilterParams(), listRuns},
		{"POST /runs", nil, enqueue},
		{"GET /runs/{id}", nil, getRun},
		{"DELETE /runs/{id}", []string{"reason"}, deleteRun},
		{"GET /runs/{id}/wait", []string{"timeout"}, waitForRun},
		{"POST /runs/{id}/cancel", nil, cancelRun},
		{"POST /runs/{id}/retry", nil, retryRun},
		{"POST /runs/{id}/release", nil, releaseRun},
		{"POST /runs/{id}/acknowledge", nil, acknowledgeRun},
		{"POST /runs/{id}/rerun", nil, rerunRun},
		{"POST /runs/{id}/reveal", nil, revealRun},
		{"GET /runs/{id}/explain", nil, explainRun},
		{"GET /counts", wire.FilterParams(), countRuns},
	}
}

func listRuns(c *call) (answer, error) {
	filter := c.Runs()
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Runs(c.r.Context(), filter)
	return ok(list), err
}

func countRuns(c *call) (answer, error) {
	filter := c.Runs()
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	counts, err := c.op.CountMatching(c.r.Context(), filter)
	return ok(counts), err
}

func getRun(c *call) (answer, error) {
	id, err := c.run()
	if err != nil {
		return answer{}, err
	}
	run, err := c.op.RunWithLinks(c.r.Context(), id)
	return ok(run), err
}

// reasoned is the body of a change.
type reasoned struct {
	Reason string `json:"reason"`
}

// change changes one run.
func (c *call) change(action store.RunAction) (answer, error) {
	id, err := c.run()
	if err != nil {
		return answer{}, err
	}
	var given reasoned
	if action == store.DeleteRuns {
		given.Reason = c.Text("reason")
		err = c.Err()
	} else {
		err = c.body(&given)
	}
	if err != nil {
		return answer{}, err
	}
	return c.changeFor(action, id, given.Reason)
}

// changeFor changes one run for a reason.
func (c *call) changeFor(action store.RunAction, id store.RunID, reason string) (answer, error) {
	changed, err := c.op.Change(c.r.Context(), store.RunCommand{Action: action, Reason: reason, Runs: []store.RunID{id}})
	if err == nil {
		err = changed.Refused(action)
	}
	if err != nil {
		return answer{}, err
	}
	if changed.Runs[0].Result == store.CancelRequested {
		return answer{status: http.StatusAccepted, body: changed.Runs[0]}, nil
	}
	return ok(changed.Runs[0]), nil
}

func cancelRun(c *call) (answer, error) { return c.change(store.CancelRuns) }

// retrying is the body of a retry.
type retrying struct {
	reasoned

	WithDependents bool `json:"with_dependents"`
}

func retryRun(c *call) (answer, error) {
	id, err := c.run()
	if err != nil {
		return answer{}, err
	}
	var given retrying
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	if !given.WithDependents {
		return c.changeFor(store.RetryRuns, id, given.Reason)
	}
	retried, err := c.op.RetryWithDependents(c.r.Context(), given.Reason, id)
	return ok(retried), err
}

func releaseRun(c *call) (answer, error) { return c.change(store.ReleaseRuns) }

func acknowledgeRun(c *call) (answer, error) { return c.change(store.AcknowledgeRuns) }

func deleteRun(c *call) (answer, error) { return c.change(store.DeleteRuns) }

func rerunRun(c *call) (answer, error) {
	id, err := c.run()
	if err != nil {
		return answer{}, err
	}
	var given struct {
		Args json.RawMessage `json:"args"`
	}
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	made, err := c.op.Rerun(c.r.Context(), id, given.Args)
	return answer{status: http.StatusCreated, body: made}, err
}

// revealed is a run with its steps and inputs, and with nothing hidden.
type revealed struct {
	store.Record

	Steps  []operate.Step  `json:"steps"`
	Inputs []operate.Input `json:"inputs"`
}

func revealRun(c *call) (answer, error) {
	id, err := c.run()
	if err != nil {
		return answer{}, err
	}
	var given reasoned
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	record, steps, err := c.op.RevealSteps(c.r.Context(), id, given.Reason)
	return ok(revealed{record, steps.Steps, steps.Inputs}), err
}

// explainRun answers also for a run that is not there.
func explainRun(c *call) (answer, error) {
	id, err := c.run()
	if err != nil {
		return answer{}, err
	}
	explained, err := c.op.Explain(c.r.Context(), id)
	return ok(explained), err
}
