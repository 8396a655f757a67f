package sqlite

import (
	"database/sql"

	"github.com/durable-worker/durable-worker/store"
)

// Completing ends runs of the store together with their effects, in transactions on the
// store's own file: open db with DSN. See WithTx for what such a transaction holds up.
func Completing(s *Store, db *sql.DB) store.Completing[*sql.Tx] {
	return store.CompletingSQL(db, func(tx *sql.Tx) store.Tx { return s.WithTx(tx) })
}
