package sqlitedb_test

import (
	"fmt"
	"io/fs"

	sqlitedb "github.com/durable-worker/durable-worker/db/sqlite"
)

func ExampleFiles() {
	names, err := fs.Glob(sqlitedb.Files, "migrations/*.sql")
	fmt.Println(len(names) > 0, err)
	// Output: true <nil>
}
