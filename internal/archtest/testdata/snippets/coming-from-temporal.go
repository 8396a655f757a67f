package comingfromtemporal

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

type Order struct{ ID int64 }

var (
	store *postgres.Store
	pool  *pgxpool.Pool
)

func chargeCard(_ context.Context, key string, _ Order) (string, error) { return key, nil }
func refund(context.Context, string) error                              { return nil }

//snippet
