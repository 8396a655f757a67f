package keys

import (
	"context"

	"github.com/durable-worker/durable-worker/durable"
)

func _(ctx context.Context, client *durable.Client, welcome func() durable.Job[string], args string) error {
	//snippet
	return nil
}
