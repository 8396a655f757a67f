// Command limit-tenant lets each customer have two imports at a time, over all workers:
// the one who uploads six does not hold up the one who uploads one.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/memory"
)

// Tenant allows each customer two imports at a time, over all workers and jobs that use it.
var Tenant = durable.NewLimit("tenant", durable.Semaphore(2))

// ImportArgs are stored with each run as JSON.
type ImportArgs struct {
	Tenant string `json:"tenant"`
	File   int    `json:"file"`
}

var importFile = durable.NewJob[ImportArgs]("import",
	durable.Limited(Tenant, durable.KeyFrom(func(a ImportArgs) string { return a.Tenant })))

func main() {
	if err := tenants(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func tenants(ctx context.Context, out io.Writer) error {
	db := memory.New(memory.Config{})
	var imports journal
	imports.all.Add(7)
	worker := durable.NewWorker(db, durable.WorkerConfig{MaxConcurrentRuns: 10})
	durable.Register(worker, importFile, func(_ context.Context, run *durable.Run[ImportArgs]) error {
		imports.begin(run.Args.Tenant)
		defer imports.end(run.Args.Tenant)
		time.Sleep(50 * time.Millisecond) // the work
		return nil
	})
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(working) })
	defer running.Wait()
	defer stop()
	for !worker.Status().Ready { // it has declared the limit
		time.Sleep(time.Millisecond)
	}

	var runs []durable.NewRun
	for file := range 6 {
		runs = append(runs, importFile.New(ImportArgs{Tenant: "acme", File: file}))
	}
	runs = append(runs, importFile.New(ImportArgs{Tenant: "bolt"}))
	if _, err := durable.NewClient(db).Enqueue(ctx, runs...); err != nil {
		return err
	}
	imports.all.Wait()
	fmt.Fprintf(out, "acme: at most %d imports at a time\n", imports.most["acme"])
	fmt.Fprintf(out, "bolt: import %d of all to end, not the last\n", imports.boltWas)
	return nil
}

// journal notes how many imports of a customer execute concurrently.
type journal struct {
	all sync.WaitGroup

	mu        sync.Mutex
	executing map[string]int
	most      map[string]int
	ended     int
	boltWas   int
}

func (j *journal) begin(tenant string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.executing == nil {
		j.executing, j.most = map[string]int{}, map[string]int{}
	}
	j.executing[tenant]++
	j.most[tenant] = max(j.most[tenant], j.executing[tenant])
}

func (j *journal) end(tenant string) {
	defer j.all.Done()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.executing[tenant]--
	if j.ended++; tenant == "bolt" {
		j.boltWas = j.ended
	}
}
