package dependents

import (
	"context"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/durable"
)

type Order struct {
	ID    uuid.UUID
	Email string
}

type Parcel struct{ Number string }

type ShipArgs struct {
	Order  uuid.UUID
	Charge string
}

type ReceiptArgs struct{ To, Number string }

var receipt = durable.NewJob[ReceiptArgs]("receipt")

func charge(*durable.Run[Order]) func(context.Context) (string, error) { return nil }

//snippet

type ExtractArgs struct{ Day string }

type TransformArgs struct{ From durable.RunID }

type AlarmArgs struct{ Day string }

func _(ctx context.Context, client *durable.Client, day string, extractJob durable.Job[ExtractArgs], transformJob durable.Job[TransformArgs], alarmJob durable.Job[AlarmArgs]) error {
	//snippet
	return err
}

type ChargeArgs struct{ Cents int }

//snippet

var _ = chargeJob
