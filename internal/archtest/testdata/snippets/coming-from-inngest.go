package comingfrominngest

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

type (
	User     struct{ Name string }
	Approved struct{ By string }
)

func send(context.Context, string, string, string) error { return nil }

//snippet

func _(ctx context.Context, onboarding func() durable.Job[User], store *postgres.Store, tx pgx.Tx, user User) error {
	//snippet
	return err
}
