package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestTheQueueIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, reports(t.Context(), &out))
		require.Equal(t, "20 reports of two jobs on two workers, at most 3 at a time\n", out.String())
	})
}
