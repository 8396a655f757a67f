package locks

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/postgres"
)

func _(ctx context.Context, store *postgres.Store, logger *slog.Logger, report func(ctx context.Context, fence lease.Fence) error) error {
	//snippet
	return err
}
