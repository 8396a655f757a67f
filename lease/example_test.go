package lease_test

import (
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// The heartbeat is a third of the duration unless you say otherwise.
func ExampleTerms() {
	terms := lease.Terms{Duration: time.Minute}.WithDefaults()
	fmt.Println(terms.Duration, terms.Heartbeat, terms.Validate())
	// Output: 1m0s 20s <nil>
}
