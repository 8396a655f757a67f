package db_test

import (
	"fmt"
	"io/fs"

	"github.com/durable-worker/durable-worker/db"
)

// A tool of your own may apply the migrations; `migrate sql` prints them for a schema
// of your choice.
func ExampleMigrations() {
	names, err := fs.Glob(db.Migrations, "migrations/*.sql")
	fmt.Println(names[0], err)
	// Output: migrations/0001_engine.sql <nil>
}
