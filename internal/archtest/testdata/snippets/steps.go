package steps

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store/postgres"
)

type Order struct {
	ID    uuid.UUID
	Card  string
	Total int
}

type Charge struct{ ID string }

type Approval struct{ By string }

type Shipped struct{ Charge, By string }

type Trip struct{}

type Booked struct{ Flight, Hotel string }

type cardService struct{}

func (cardService) Charge(context.Context, string, int, string) (Charge, error) { return Charge{}, nil }

var cards cardService

func bookFlight(*durable.Run[Trip]) func(context.Context) (string, error) { return nil }
func bookHotel(*durable.Run[Trip]) func(context.Context) (string, error)  { return nil }
func cancelFlight(string) func(context.Context) (bool, error)             { return nil }

//snippet

func _(ctx context.Context, run *durable.Run[struct{ ID uuid.UUID }], store *postgres.Store, pool *pgxpool.Pool) error {
	//snippet
	_ = receipt
	return err
}

//snippet

func _(ctx context.Context, store *postgres.Store, tx pgx.Tx, onboard durable.Job[string], userID string) error {
	//snippet
	return err
}

func remind(*durable.Run[Order]) func(context.Context) (bool, error) { return nil }

//snippet

func _(t *testing.T, onboard durable.Job[string], user string, handler func(context.Context, *durable.Run[string]) error) {
	//snippet
}
