package backend

import (
	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/postgres"
	"github.com/durable-worker/durable-worker/sqlite"
)

// Postgres returns the store on PostgreSQL that Open has opened, for what only
// that engine can do, such as WithTx. It is nil for any other store.
func Postgres(store durable.Store) *postgres.Store {
	switch s := store.(type) {
	case postgresStore:
		return s.Store
	case *postgres.Store:
		return s
	}
	return nil
}

// SQLite returns the store on a SQLite file that Open has opened, for what only
// that engine can do, such as WithTx. It is nil for any other store.
func SQLite(store durable.Store) *sqlite.Store {
	s, _ := store.(*sqlite.Store)
	return s
}
