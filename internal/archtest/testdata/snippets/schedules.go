package schedules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
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

type InvoiceArgs struct{ Customer string }

func invoices() durable.Job[InvoiceArgs] { return durable.NewJob[InvoiceArgs]("invoice") }

//snippet

var _, _ = subscribe, leave
