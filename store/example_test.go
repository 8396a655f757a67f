package store_test

import (
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// Every engine makes the same checks before it reads anything.
func ExampleCheckRuns() {
	err := store.CheckRuns([]store.NewRun{{Job: "welcome mail", Args: []byte(`{"to":"ada@example.com"}`)}})
	fmt.Println(err != nil)
	// Output: true
}

// A page of the runs that are dead, newest first.
func ExampleFilter() {
	filter := store.Filter{States: []store.State{store.Dead}, Queues: []string{"mail"}, Limit: 20}
	_, _, limit, err := filter.Range()
	fmt.Println(limit, err)
	// Output: 20 <nil>
}
