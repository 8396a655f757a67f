package schedules

import (
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

type (
	ReportArgs struct{}
	FetchArgs  struct{}
)

func _(worker *durable.Worker, report func() durable.Job[ReportArgs], fetch func() durable.Job[FetchArgs]) {
	//snippet
}
