package postgres_test

import (
	"testing"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// pooled is a server behind a transaction pooler that keeps no prepared
// statements between transactions. The mode that prepares nothing sends every
// parameter as text, so each type has to find its own way.
func pooled(t *testing.T) string {
	return pgtest.Pooler(t) + "&default_query_exec_mode=exec"
}

func TestStoreBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	testContract(t, pooled(t), true)
}

func TestLocksBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	testLocks(t, pooled(t), true)
}

// A role may have another isolation by default; ours is read committed.
func TestStoreWhereTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	testContract(t, pgtest.Server(t)+"&default_transaction_isolation=serializable", false)
}

func TestLocksWhereTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	testLocks(t, pgtest.Server(t)+"&default_transaction_isolation=serializable", false)
}
