// Package examine looks for what would hurt a store on PostgreSQL later: settings of the
// server, privileges that are missing, clocks that differ, indexes that are incomplete, runs
// that no worker executes. Each finding says what an operator can do about it.
package examine

import (
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
)

// Examiner examines a database.
type Examiner struct {
	db     *conn.DB
	schema *schema.Schema
}

// New returns the examiner of a database.
func New(db *conn.DB, schema *schema.Schema) *Examiner { return &Examiner{db, schema} }
