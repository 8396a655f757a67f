package testing_

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	signup "github.com/durable-worker/durable-worker/examples/testing"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

type outbox struct {
	signup.Mailer
	sent map[string]int
}

//snippet

func _(kit *durabletest.Kit, register func(*durable.Worker)) {
	//snippet
}

func _(t *testing.T, kit *durabletest.Kit) {
	//snippet
	_, _ = all, record
}

func _(ctx context.Context, t *testing.T, pool *pgxpool.Pool, store *postgres.Store) {
	//snippet
}

func _(t *testing.T, mail *outbox) {
	//snippet
}

type BillArgs struct{ Customer string }

func _(
	t *testing.T, berlin *time.Location, bill func() durable.Job[BillArgs], sendBill func(context.Context, *durable.Run[BillArgs]) error,
) {
	//snippet
	_ = got
}

type (
	Order  struct{ ID int64 }
	Charge struct{ ID string }
)

type (
	User     struct{ Name string }
	Approval struct{ Yes bool }

	letterbox struct{ kit *durabletest.Kit }
	drip      struct{ mail letterbox }
)

func (drip) handle(context.Context, *durable.Run[User]) error { return nil }

func onboard() durable.Job[User] { return durable.NewJob[User]("onboard") }

func order() durable.Job[Order] { return durable.NewJob[Order]("order") }

func _(
	t *testing.T, kit *durabletest.Kit, enqueued func(*testing.T, *durabletest.Kit) durable.RunID,
	fulfil func(context.Context, *durable.Run[Order]) error,
) {
	//snippet
	_ = wait
}

//snippet

var ship = durable.NewJob[int64]("ship")

//snippet

func _(t *testing.T) {
	//snippet
}

func _(t *testing.T, kit *durabletest.Kit, register func(*durable.Worker), Export durable.Job[string], args string) {
	//snippet
}

func _(t *testing.T, kit *durabletest.Kit, register func(*durable.Worker)) {
	//snippet
}

//snippet
