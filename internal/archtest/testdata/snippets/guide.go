package guide

import (
	"context"
	"database/sql"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

type WelcomeArgs struct{}

//snippet

type greeting struct{ Name string }

func _(ctx context.Context, store store.Store, greet durable.Job[greeting]) {
	//snippet
	_, _ = receipts, err
}

//snippet

type invoiceArgs struct{}

//snippet

type (
	orders struct {
		store *sqlite.Store
		db    *sql.DB
	}
	shipArgs struct{ Order int64 }
)

func _(ctx context.Context, o orders, tx *sql.Tx, ship func() durable.Job[shipArgs], id int64) (int64, error) {
	//snippet
	return id, nil
}

func _(ctx context.Context, o orders, run *durable.Run[shipArgs]) error {
	//snippet
}

func _(ctx context.Context, client *durable.Client, welcome durable.Job[string]) {
	//snippet
	_, _ = receipt, err
}

func _(ctx context.Context, client *durable.Client, receipt durable.Receipt) {
	//snippet
	_, _ = result, err
}

func _(w *durable.Worker, report func() durable.Job[string]) {
	//snippet
}
