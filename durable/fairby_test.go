package durable_test

import (
	"fmt"

	"github.com/durable-worker/durable-worker/durable"
)

type ImportArgs struct {
	Tenant string `json:"tenant"`
}

var Report = durable.NewJob[ImportArgs]("report",
	durable.MaxConcurrent(4), durable.FairBy(durable.KeyOf("{tenant}")))

// Below the cap of the job, one run of each tenant starts before a second of any.
func ExampleFairBy() {
	fmt.Println(Report.Name())
	// Output: report
}
