package dashboard

import (
	"context"
	"strconv"

	"github.com/durable-worker/durable-worker/operate"
)

// wholeNumber reads a number of a form; zero where there is none.
func wholeNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func (d *dashboard) queues(ctx context.Context, _ *request) (view, error) {
	list, err := d.operator.Queues(ctx)
	if err != nil {
		return view{}, err
	}
	return view{page: "queues", title: "Queues", section: "queues", data: struct{ operate.QueueList }{list}}, nil
}
