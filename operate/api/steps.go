package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func stepRoutes() []route {
	return []route{
		{"GET /runs/{id}/steps", nil, listSteps},
		{"DELETE /runs/{id}/steps/{name}", nil, forgetStep},
		{"PUT /runs/{id}/inputs/{name}", nil, sendInput},
	}
}

func listSteps(c *call) (answer, error) {
	id, err := c.run()
	if err != nil {
		return answer{}, err
	}
	list, err := c.op.Steps(c.r.Context(), id)
	return ok(list), err
}

func forgetStep(c *call) (answer, error) {
	id, name, err := c.named()
	if err != nil {
		return answer{}, err
	}
	done, err := c.op.ForgetSteps(c.r.Context(), id, name)
	return ok(done), err
}

// sendInput sends the body to a run. The same value again is answered with 200, as nothing was
// stored.
func sendInput(c *call) (answer, error) {
	id, name, err := c.named()
	if err != nil {
		return answer{}, err
	}
	value, err := c.json()
	if err != nil {
		return answer{}, err
	}
	sent, err := c.op.Send(c.r.Context(), operate.InputOrder{Run: id, Name: name, Value: value})
	if err != nil || sent.Existing {
		return ok(sent), err
	}
	return answer{status: http.StatusCreated, body: sent}, nil
}

// named is the run, and the name of the step or of the input, that the path has.
func (c *call) named() (store.RunID, string, error) {
	id, err := c.run()
	if err != nil {
		return id, "", err
	}
	name := c.r.PathValue("name")
	if err := store.CheckStepName(name); err != nil {
		return id, name, wire.InQuery("name", "%v", err)
	}
	return id, name, nil
}

// json is a body that is any JSON.
func (c *call) json() ([]byte, error) {
	text, err := io.ReadAll(c.r.Body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the body cannot be read", store.ErrInvalid)
	}
	if err := store.CheckJSON(text); err != nil {
		return nil, fmt.Errorf("%w: the body%w", store.ErrInvalid, err)
	}
	return text, nil
}
