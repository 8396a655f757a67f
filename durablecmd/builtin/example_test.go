package builtin_test

import (
	"fmt"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd/builtin"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A worker of your own gets the job http, which may post to one origin.
func ExampleNew() {
	origins, err := builtin.ParseOrigins("https://api.example.com")
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs := builtin.New(builtin.Config{HTTPAllow: origins, Names: []string{builtin.NameHTTP}})
	defer jobs.Close()
	worker := durable.NewWorker(memory.New(memory.Config{}), durable.WorkerConfig{})
	jobs.Register(worker)
	fmt.Println(worker.Faults())
	// Output: <nil>
}
