package operate_test

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A change is made on behalf of someone, with a reason, and audited.
func ExampleNew() {
	ctx, store := context.Background(), memory.New(memory.Config{})
	receipt, err := durable.NewJob[string]("mail").Enqueue(ctx, durable.NewClient(store), "ann")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := operate.New(store, operate.Config{}).As("ann@example.com").Cancel(ctx, "sent by hand", receipt.ID); err != nil {
		fmt.Println(err)
		return
	}
	record, err := store.Run(ctx, receipt.ID)
	fmt.Println(record.State, *record.Error, err)
	// Output: cancelled sent by hand <nil>
}
