package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestTheExportsAreSharedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, share(t.Context(), &out))
		require.Equal(t, `hour 1: ada had 20 exports
hour 2: ada had 5 exports
hour 2: bob had 5 exports
hour 2: cyd had 5 exports
hour 2: dan had 5 exports
`, out.String())
	})
}
