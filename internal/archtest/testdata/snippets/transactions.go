package transactions

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

type (
	ShipArgs   struct{ Order int64 }
	ChargeArgs struct{ Account, Amount int64 }
)

func _(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, ship func() durable.Job[ShipArgs], id int64, item string) error {
	//snippet
}

func _(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, run *durable.Run[ChargeArgs]) error {
	//snippet
}
