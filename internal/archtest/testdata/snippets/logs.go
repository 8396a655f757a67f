package logs

import (
	"log/slog"
	"os"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe/logs"
	"github.com/durable-worker/durable-worker/store"
)

func _(store store.Store) {
	//snippet
	_ = worker
}
