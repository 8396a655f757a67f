package sqlite_test

import (
	"testing"

	"github.com/durable-worker/durable-worker/store/sqlite"
	"github.com/durable-worker/durable-worker/store/storetest"
)

func TestKeysOfTwoStoresOnOneFile(t *testing.T) {
	first, path := openMigrated(t)
	storetest.TestKeyRaces(t, first, open(t, path, sqlite.Config{}))
	integrity(t, path)
}
