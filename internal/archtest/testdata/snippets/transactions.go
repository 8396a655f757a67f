package transactions

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

type (
	ShipArgs struct{ Order int64 }
	PayArgs  struct{ Account, Amount int64 }
)

func _(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, ship func() durable.Job[ShipArgs], id int64, item string) error {
	//snippet
}

func _(pool *pgxpool.Pool, store *postgres.Store, worker *durable.Worker, pay durable.Job[PayArgs]) {
	//snippet
}

func _(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, run *durable.Run[PayArgs]) error {
	//snippet
}
