package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestTheAPIGetsItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, rate(t.Context(), &out))
		require.Regexp(t, "^5[01] calls, at most 54 in any second: true\ncalls in the pause that the API asked for: 0\n$", out.String())
	})
}
