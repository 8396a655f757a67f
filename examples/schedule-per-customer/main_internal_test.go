package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachCustomerHasASchedule(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, customers(t.Context(), t.TempDir(), &out))
	require.Equal(t, `dan is not stored: there is no such zone
invoice/ann 0 6 28 * * Europe/Berlin
invoice/bob 0 6 15 * * America/New_York
2 customers, 2 schedules
`, out.String())
}
