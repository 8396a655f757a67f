package api

import (
	"context"
	_ "embed" // the description
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

// The bounds of answers that last.
const (
	maxWaits   = 200 // of one handler
	maxWait    = time.Minute
	waitMargin = 10 * time.Second // to write the answer
)

//go:embed openapi.json
var description []byte

func lastingRoutes() []route {
	return []route{
		{"GET /bulk", nil, listBulk},
		{"POST /bulk", nil, startBulk},
		{"GET /bulk/{n}", nil, getBulk},
		{"DELETE /bulk/{n}", nil, stopBulk},
		{"GET /events", nil, events},
		{"GET /openapi.json", nil, func(c *call) (answer, error) { return ok(json.RawMessage(description)), c.Err() }},
	}
}

// waitForRun waits until a run has ended, and answers with the run; with 202 where it
// has not.
func waitForRun(c *call) (answer, error) {
	timeout := c.Duration("timeout", 0, maxWait, maxWait/2)
	id, err := c.run()
	if err != nil {
		return answer{}, err
	}
	select {
	case c.waits <- struct{}{}:
		defer func() { <-c.waits }()
	default:
		return answer{}, fmt.Errorf("%w: %d requests wait already", operate.ErrBusy, maxWaits)
	}
	access.Release(c.r.Context())
	if err := c.extend(timeout + waitMargin); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(c.lasting, timeout)
	defer cancel()
	record, err := c.op.Wait(ctx, id)
	switch {
	case err == nil:
		return ok(record), nil
	case c.lasting.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		last, cancel := context.WithTimeout(c.lasting, eventWithin)
		defer cancel()
		record, err = c.op.Run(last, id)
		return answer{status: http.StatusAccepted, body: record}, err
	default:
		return answer{}, err
	}
}

// extend gives the answer more time than the server gives answers. A server of tests,
// or behind other middleware, may know no deadlines.
func (c *call) extend(d time.Duration) error {
	err := http.NewResponseController(c.w).SetWriteDeadline(c.operator.Now().Add(d))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// bulkView is a bulk change with its filter in the words of the API.
type bulkView struct {
	operate.BulkStatus

	Filter wire.Filter `json:"filter"`
}

func bulkOf(status operate.BulkStatus) bulkView {
	return bulkView{BulkStatus: status, Filter: wire.FilterOf(status.Filter)}
}

// bulkList lists bulk changes.
type bulkList struct {
	Bulk []bulkView `json:"bulk"`
	Next *string    `json:"next"` // always nil
}

func listBulk(c *call) (answer, error) {
	list := bulkList{Bulk: []bulkView{}}
	for _, status := range c.op.BulkList() {
		list.Bulk = append(list.Bulk, bulkOf(status))
	}
	return ok(list), c.Err()
}

func startBulk(c *call) (answer, error) {
	var given struct {
		Action store.RunAction `json:"action"`
		Filter wire.Filter     `json:"filter"`
		All    bool            `json:"all"` // wanted where the filter is empty
		Cursor *store.RunID    `json:"cursor"`
		Reason string          `json:"reason"`
	}
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	filter := given.Filter.Filter()
	if len(filter.States) == 0 && !filter.Narrow() && !given.All {
		return answer{}, wire.InBody("/filter", "it is empty: all runs are meant only together with all: true")
	}
	set(&filter.Before, given.Cursor)
	status, err := c.op.StartBulk(operate.BulkOrder{Action: given.Action, Filter: filter, Reason: given.Reason})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusAccepted, header: map[string]string{"Location": "bulk/" + strconv.FormatInt(status.N, 10)}, body: bulkOf(status)}, nil
}

// number is the number of a bulk change that the path names.
func (c *call) number() (int64, error) {
	n, err := strconv.ParseInt(c.r.PathValue("n"), 10, 64)
	if err != nil || n < 1 || c.r.PathValue("n")[0] == '+' {
		return 0, wire.InQuery("n", "the path must have the number of a bulk change")
	}
	return n, c.Err()
}

func getBulk(c *call) (answer, error) {
	n, err := c.number()
	if err != nil {
		return answer{}, err
	}
	status, err := c.op.Bulk(n)
	return ok(bulkOf(status)), err
}

func stopBulk(c *call) (answer, error) {
	n, err := c.number()
	if err != nil {
		return answer{}, err
	}
	status, err := c.op.StopBulk(n)
	return answer{status: http.StatusAccepted, body: bulkOf(status)}, err
}

// The times of a stream of events.
const (
	eventWithin  = 5 * time.Second  // to write one
	commentEvery = 15 * time.Second // so that proxies keep the connection
)

// events streams hints as server-sent events, until the client goes or its session
// ends.
func events(c *call) (answer, error) {
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	stream, err := c.operator.Stream()
	if err != nil {
		return answer{}, err
	}
	defer stream.Close()
	access.Release(c.r.Context())
	ctx := c.lasting
	if !c.who.Until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.who.Until)
		defer cancel()
	}
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.WriteHeader(http.StatusOK)
	text := []byte("retry: 5000\n\n")
	for c.write(text) == nil && ctx.Err() == nil && !access.Ended(ctx) {
		text = next(ctx, stream)
	}
	return answer{}, nil
}

// next is the text of the next hint, or a comment when there is none for a while.
func next(ctx context.Context, stream *operate.Stream) []byte {
	ctx, cancel := context.WithTimeout(ctx, commentEvery)
	defer cancel()
	hint, err := stream.Next(ctx)
	if err != nil {
		return []byte(": alive\n\n")
	}
	var text []byte
	if hint.Survey != nil {
		figures, _ := json.Marshal(hint.Survey) // it cannot fail
		text = fmt.Appendf(text, "event: survey\ndata: %s\n\n", figures)
	}
	if len(hint.Changed) > 0 {
		what, _ := json.Marshal(hint.Changed) // texts always can be
		text = fmt.Appendf(text, "event: changed\ndata: {\"what\":%s}\n\n", what)
	}
	return text
}

// write sends a part of a stream. A client that does not read loses it.
func (c *call) write(text []byte) error {
	if err := c.extend(eventWithin); err != nil {
		return err
	}
	if _, err := c.w.Write(text); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}
