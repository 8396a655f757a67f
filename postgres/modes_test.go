package postgres_test

import "testing"

// A transaction pooler keeps no prepared statements between transactions. The
// mode that prepares nothing sends every parameter as text, so each type has
// to find its own way.
func TestStoreWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	testContract(t, "&default_query_exec_mode=exec")
}
