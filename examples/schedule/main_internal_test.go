package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWeekOfANightlyReport(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, schedule(t.Context(), &out))
	require.Equal(t, `next Sat 30 Mar 02:30 CET
next Sun 31 Mar 03:00 CEST
next Mon 1 Apr 02:30 CEST
report on sales of the night of 3 Apr
report on sales as requested
skipped 30 Mar to 2 Apr: missed
`, out.String())
}
