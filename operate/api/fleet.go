package api

import (
	"net/http"
	"slices"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

func fleetRoutes() []route {
	return []route{
		{"GET /queues", []string{"name", "cursor", "limit"}, listQueues},
		{"POST /queues/pause", nil, pauseQueue},
		{"POST /queues/resume", nil, resumeQueue},
		{"POST /queues/set", nil, setQueue},
		{"GET /jobs", []string{"name", "cursor", "limit"}, listJobs},
		{"GET /workers", []string{"name", "cursor", "limit"}, listWorkers},
		{"GET /audit", []string{"kind", "subject", "by", "action", "since", "cursor", "limit"}, listChanges},
		{"GET /findings", nil, findings},
	}
}

// part is the part of a list that a request asks for.
func (c *call) part() operate.Part {
	return operate.Part{Names: c.Texts("name"), After: c.Text("cursor"), Limit: int(c.Number("limit", 1, store.LargestPage, store.LargestPage))}
}

func listQueues(c *call) (answer, error) {
	part := c.part()
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Queues(c.r.Context(), part)
	return ok(list), err
}

// queueChange is the body of a change of a queue.
type queueChange struct {
	Name   string `json:"name"`
	Unused bool   `json:"unused"` // also one that is not known
}

func pauseQueue(c *call) (answer, error) {
	var given queueChange
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	pause := c.op.PauseQueue
	if given.Unused {
		pause = c.op.PauseUnusedQueue
	}
	state, err := pause(c.r.Context(), given.Name)
	return ok(state), err
}

func resumeQueue(c *call) (answer, error) {
	var given struct {
		Name string `json:"name"`
	}
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	state, err := c.op.ResumeQueue(c.r.Context(), given.Name)
	return ok(state), err
}

// setQueue caps a queue, or lifts its cap.
func setQueue(c *call) (answer, error) {
	var given struct {
		Name          string `json:"name"`
		MaxConcurrent *int   `json:"max_concurrent"` // 0: lift it
		Unused        bool   `json:"unused"`
	}
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	if given.MaxConcurrent == nil {
		return answer{}, wire.InBody("/max_concurrent", "want a number, 0 to lift the cap")
	}
	set := c.op.CapQueue
	switch {
	case *given.MaxConcurrent == 0:
		state, err := c.op.UncapQueue(c.r.Context(), given.Name)
		return ok(state), err
	case given.Unused:
		set = c.op.CapUnusedQueue
	}
	state, err := set(c.r.Context(), given.Name, *given.MaxConcurrent)
	return ok(state), err
}

func listJobs(c *call) (answer, error) {
	part := c.part()
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Jobs(c.r.Context(), part)
	return ok(list), err
}

func listWorkers(c *call) (answer, error) {
	part := c.part()
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Workers(c.r.Context(), part)
	return ok(list), err
}

func listChanges(c *call) (answer, error) {
	filter := store.ChangeFilter{Kind: c.Text("kind"), Subject: c.Text("subject"), By: c.Text("by"), Action: c.Text("action"),
		Since: c.Instant("since"), Before: c.Number("cursor", 1, 1<<62, 0), Limit: int(c.Number("limit", 1, store.LargestPage, 0))}
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Changes(c.r.Context(), filter)
	return ok(list), err
}

// findings is what the command doctor finds in the store. Findings may have the texts
// of errors of the database, so they are for operators.
func findings(c *call) (answer, error) {
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	if c.who.Role < access.Operator {
		p := wire.NewProblem(http.StatusForbidden, "forbidden", "This needs the role operator.")
		p.Role = access.Operator.String()
		p.Write(c.w)
		return answer{}, nil
	}
	ctx := c.r.Context()
	found, err := c.op.Examine(ctx)
	if err != nil {
		return answer{}, err
	}
	found = slices.Concat(found, c.op.ExamineServing(ctx), c.op.ExamineSchedules(ctx), c.op.ExamineAttention(ctx), c.op.ExamineLimits(ctx))
	return ok(operate.Diagnose(found)), nil
}
