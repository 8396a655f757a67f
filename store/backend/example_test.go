package backend_test

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/store/backend"
)

// The URL decides which engine is opened.
func ExampleOpen() {
	store, err := backend.Open(context.Background(), "memory:", backend.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	fmt.Println(backend.Postgres(store) == nil, backend.SQLite(store) == nil)
	// Output: true true
}

func ExampleRedact() {
	fmt.Println(backend.Redact("postgres://app:secret@db.example.com/app?sslmode=disable"))
	// Output: postgres://app@db.example.com:5432/app?sslmode=disable
}
