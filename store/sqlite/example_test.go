package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// A store in one file needs no server.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "durable.db"), sqlite.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := durable.NewJob[string]("welcome").Enqueue(ctx, durable.NewClient(store), "ann")
	fmt.Println(receipt.Existing, err)
	// Output: false <nil>
}
