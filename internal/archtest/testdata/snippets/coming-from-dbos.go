package comingfromdbos

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

type (
	OrderArgs struct{ ID int64 }
	ShipArgs  struct{ Order int64 }
)

func chargeCard(_ context.Context, key string, args OrderArgs) (string, error) { return key, nil }

func _(w *durable.Worker, order func() durable.Job[OrderArgs], ship func() durable.Job[ShipArgs], pool *pgxpool.Pool, store *postgres.Store) {
	//snippet
}
