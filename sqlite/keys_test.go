package sqlite_test

import (
	"testing"

	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/sqlite"
)

func TestKeysOfTwoStoresOnOneFile(t *testing.T) {
	first, path := openMigrated(t)
	durabletest.TestKeyRaces(t, first, open(t, path, sqlite.Config{}))
	integrity(t, path)
}
