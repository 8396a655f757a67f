package dashboard

import (
	"context"
	"fmt"
	"strconv"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// queueList is the page of the queues.
type queueList struct {
	operate.QueueList

	Pager pager
}

func (d *dashboard) queues(ctx context.Context, r *request) (view, error) {
	list, err := d.operator.Queues(ctx, r.part())
	return view{page: "queues", title: "Queues", section: "queues", data: queueList{list, r.pagerOf("queues", list.Next)}}, err
}

func (d *dashboard) askQueue(_ context.Context, r *request) (view, error) {
	name := r.form.Get("name")
	switch action := store.QueueAction(r.form.Get("action")); action {
	case store.PauseQueue:
		return r.ask("queues", question{To: "queues/change", Title: "Pause queue " + clip(200, name) + "?", Verb: "Pause", Keep: "Keep working",
			Says: "Workers claim no more runs from it. What is executing continues, and enqueueing works. Its runs wait until it is resumed."},
			"name", name, "action", string(action)), nil
	case store.ResumeQueue:
		return r.ask("queues", question{To: "queues/change", Title: "Resume queue " + clip(200, name) + "?", Verb: "Resume", Keep: "Keep it paused",
			Says: "Workers claim its runs again, those that are due immediately."}, "name", name, "action", string(action)), nil
	default:
		return view{}, fmt.Errorf("%w: action %q: want pause or resume", store.ErrInvalid, clip(50, string(action)))
	}
}

func (d *dashboard) changeQueue(ctx context.Context, r *request) (view, error) {
	asked, err := d.askQueue(ctx, r)
	if err != nil {
		return view{}, err
	}
	action := r.form.Get("action")
	return r.answered(ctx, asked, action, "queues", func(ctx context.Context) (err error) {
		if action == string(store.PauseQueue) {
			_, err = r.do.PauseQueue(ctx, r.form.Get("name"))
		} else {
			_, err = r.do.ResumeQueue(ctx, r.form.Get("name"))
		}
		return err
	})
}

// wholeNumber reads a number of a form; zero where there is none.
func wholeNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
