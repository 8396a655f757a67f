package durable_test

import (
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// ReportArgs are the args of the examples of limits.
type ReportArgs struct {
	Customer string `json:"customer"`
	Region   string `json:"region,omitempty"`
}

// limitsOf are the limits with which a run would be stored.
func limitsOf(run store.NewRun) {
	for _, use := range run.Limits {
		fmt.Println(use.String())
	}
	if err := run.Fault(); err != nil {
		fmt.Println(err)
	}
}

// Ten reports of each customer execute concurrently, over all workers.
func ExampleLimited() {
	customer := durable.NewLimit("customer", durable.Semaphore(10))
	report := durable.NewJob[ReportArgs]("report",
		durable.Limited(customer, durable.KeyFrom(func(a ReportArgs) string { return a.Customer })))
	limitsOf(report.New(ReportArgs{Customer: "acme"}))
	// Output: customer=acme
}

// A run gives the key of a limit itself.
func ExampleLimitedBy() {
	customer := durable.NewLimit("customer", durable.Semaphore(10))
	report := durable.NewJob[ReportArgs]("report")
	limitsOf(report.New(ReportArgs{}, durable.LimitedBy(customer, "acme", durable.Weight(2))))
	// Output: customer*2=acme
}

// A template computes the key from the args as they are stored, so that the command
// line can do it too.
func ExampleKeyOf() {
	region := durable.NewLimit("region", durable.FixedWindow(1000, time.Hour))
	report := durable.NewJob[ReportArgs]("report", durable.Limited(region, durable.KeyOf("{customer}:{region?}")))
	limitsOf(report.New(ReportArgs{Customer: "acme", Region: "eu"}))
	limitsOf(report.New(ReportArgs{Customer: "acme"}))
	// Output:
	// region=acme:eu
	// region=acme:
}

// At most three reports execute concurrently, over all workers.
func ExampleMaxConcurrent() {
	limitsOf(durable.NewJob[ReportArgs]("report", durable.MaxConcurrent(3)).New(ReportArgs{}))
	// Output: job:report
}

// A report that finds its customer busy is cancelled: there will be another tomorrow.
func ExampleWhenFull() {
	customer := durable.NewLimit("customer", durable.Mutex(), durable.WhenFull(store.FullDrop, 0))
	report := durable.NewJob[ReportArgs]("report", durable.Limited(customer, durable.KeyOf("{customer}")))
	limitsOf(report.New(ReportArgs{Customer: "acme"}))
	limitsOf(report.New(ReportArgs{Customer: "acme"}, durable.LimitedBy(customer, "acme", durable.WhenFull(store.FullWait, 0))))
	// Output:
	// customer=acme
	// customer!wait=acme
}

// A batch has its place from its first run to its last.
func ExampleAcquireFor() {
	feed := durable.NewLimit("feed", durable.Mutex())
	begin := durable.NewJob[ReportArgs]("begin")
	end := durable.NewJob[ReportArgs]("end")
	limitsOf(begin.New(ReportArgs{}, durable.LimitedBy(feed, "acme", durable.AcquireFor("batch 7", 24*time.Hour))))
	limitsOf(end.New(ReportArgs{}, durable.LimitedBy(feed, "acme", durable.ReleaseFor("batch 7"))))
	// Output:
	// feed!acquire:24h0m0s:batch+7=acme
	// feed!release:batch+7=acme
}
