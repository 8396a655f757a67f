package results

import (
	"context"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

type (
	ImportArgs struct{ Pages int }
	Summary    struct{ Pages int }
)

func _(w *durable.Worker, importJob func() durable.Job[ImportArgs], importPage func(ctx context.Context, page int) error) {
	//snippet
}

func _(ctx context.Context, store store.Store, receipt durable.Receipt) {
	//snippet
	_, _ = summary, err
}

type (
	ResizeArgs struct {
		Image string
		Width int
	}
	Size struct{ Width, Height int }
)

func scale(_ context.Context, image string, width int) (Size, error) { return Size{}, nil }

//snippet

func _(ctx context.Context, w *durable.Worker, client *durable.Client, receipt durable.Receipt) {
	//snippet
	_, _, _ = size, ended, err
}
