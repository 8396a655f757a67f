package tracing

import (
	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe/tracing"
	"github.com/durable-worker/durable-worker/store"
)

func _(store store.Store) {
	//snippet
	_, _ = client, w
}
