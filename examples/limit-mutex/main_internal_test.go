package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestPostingsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, accounts(t.Context(), &out))
		require.Equal(t, "ada [1 2 3 4 5]\nbob [1 2 3 4 5]\n", out.String())
	})
}
