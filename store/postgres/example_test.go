package postgres_test

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

var welcome = durable.NewJob[string]("welcome")

// A service opens the store by the URL of its database.
func ExampleOpen() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, "postgres://app@localhost/app", postgres.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil { // or `migrate up` of your worker program
		fmt.Println(err)
		return
	}
	receipt, err := welcome.Enqueue(ctx, durable.NewClient(store), "ann")
	fmt.Println(receipt.ID, err)
}

// A service that has a pool gives it to the store.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() // the pool stays open
	receipt, err := welcome.Enqueue(ctx, durable.NewClient(store), "ann")
	fmt.Println(receipt.ID, err)
}

// A run is enqueued together with a row of the service's own.
func ExampleStore_WithTx() {
	signUp := func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, name string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO users (name) VALUES ($1)", name); err != nil {
				return err
			}
			_, err := welcome.Enqueue(ctx, store.WithTx(tx), name)
			return err
		})
	}
	_ = signUp
}

// What a role needs that only scales workers; `migrate grants` prints the same.
func ExampleGrants() {
	statements, err := postgres.Grants("durable", postgres.RoleScaler, "keda")
	fmt.Print(statements)
	fmt.Println(err)
	// Output:
	// BEGIN;
	// REVOKE ALL ON ALL TABLES IN SCHEMA "durable" FROM "keda";
	// REVOKE ALL ON ALL FUNCTIONS IN SCHEMA "durable" FROM "keda";
	// REVOKE ALL ON SCHEMA "durable" FROM "keda";
	// GRANT USAGE ON SCHEMA "durable" TO "keda";
	// GRANT SELECT ON "durable".jobs, "durable".lanes, "durable".ready, "durable".leases TO "keda";
	// COMMIT;
	// <nil>
}

// The password is a token that is valid for minutes: each connection asks for one.
func ExampleConfig_connect() {
	token := func(context.Context) (string, error) { return rand.Text(), nil } // IAM, Vault
	store, err := postgres.Open(context.Background(), "postgres://app@db.internal/app", postgres.Config{
		Connect: func(ctx context.Context, config *pgx.ConnConfig) (err error) {
			config.Password, err = token(ctx)
			return err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
}
