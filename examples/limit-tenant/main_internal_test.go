package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestEachTenantHasTwoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, tenants(t.Context(), &out))
		require.Regexp(t, "^acme: at most 2 imports at a time\nbolt: import [123] of all to end, not the last\n$", out.String())
	})
}
