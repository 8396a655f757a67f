package schedules

import (
	"context"
	"errors"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

type (
	ReportArgs struct{}
	FetchArgs  struct{}
	BillArgs   struct{ Customer string }
)

func _(worker *durable.Worker, report func() durable.Job[ReportArgs], fetch func() durable.Job[FetchArgs]) {
	//snippet
}

func invoice(context.Context, string, string) error { return nil }

//snippet

var _ = bill
