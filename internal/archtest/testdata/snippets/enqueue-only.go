package enqueueonly

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"

	"example.com/shop/orders"
)

type auth struct{}

func (auth) Token(context.Context) (string, error) { return "", nil }

var iam auth

func _(ctx context.Context, url string) error {
	//snippet
	_ = receipt
	return err
}

func _(ctx context.Context, pool *pgxpool.Pool) error {
	//snippet
	return nil
}

func _(ctx context.Context, url string) error {
	//snippet
	_ = store
	return err
}
