package api

import (
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func figureRoutes() []route {
	return []route{
		{"GET /survey", nil, survey},
		{"GET /attention", nil, attention},
		{"GET /series", []string{"range", "queue", "job"}, series},
		{"GET /problems", []string{"acknowledged", "job", "queue"}, listProblems},
		{"POST /problems/retry", nil, func(c *call) (answer, error) { return c.changeProblem(store.RetryRuns) }},
		{"POST /problems/acknowledge", nil, func(c *call) (answer, error) { return c.changeProblem(store.AcknowledgeRuns) }},
		{"POST /problems/delete", nil, func(c *call) (answer, error) { return c.changeProblem(store.DeleteRuns) }},
	}
}

func survey(c *call) (answer, error) {
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	figures, err := c.op.Survey(c.r.Context())
	return ok(figures), err
}

func attention(c *call) (answer, error) {
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Attention(c.r.Context())
	return ok(list), err
}

func series(c *call) (answer, error) {
	request := operate.SeriesRequest{Range: operate.SeriesRange(c.Text("range")), Queue: c.Text("queue"), Job: c.Text("job")}
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	steps, err := c.op.Series(c.r.Context(), request)
	return ok(steps), err
}

func listProblems(c *call) (answer, error) {
	filter := operate.ProblemFilter{Acknowledged: c.Switch("acknowledged"), Jobs: c.Texts("job"), Queues: c.Texts("queue")}
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Problems(c.r.Context(), filter)
	return ok(list), err
}

// changeProblem changes the dead runs of one group.
func (c *call) changeProblem(action store.RunAction) (answer, error) {
	var given struct {
		ID     string `json:"id"` // of the group
		Reason string `json:"reason"`
	}
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	done, err := c.op.ChangeProblem(c.r.Context(), action, given.ID, given.Reason, nil)
	return ok(done), err
}
