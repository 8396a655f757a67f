package backend

import (
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// Postgres returns the store on PostgreSQL that Open has opened, for what only
// that engine can do, such as WithTx. It is nil for any other store.
func Postgres(store store.Store) *postgres.Store {
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
func SQLite(store store.Store) *sqlite.Store {
	s, _ := store.(*sqlite.Store)
	return s
}
