package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

func TestNobodyIsGreetedWithoutAnAccount(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, accounts(t.Context(), pgtest.Database(t), &out))
	require.Equal(t, `ada@example.com signed up: true
bob@example.com signed up: true
bob@example.com signed up: false
2 greeted, 0 waiting
`, out.String())
}
