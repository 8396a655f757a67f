package secret_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/secret"
)

func TestScrub(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("dial ann:can/ary@h and can%%2Fary and abc: %w", io.EOF)
	clean := secret.Scrub(err, "ann@h", "can/ary", "", "abc")
	require.EqualError(t, clean, "dial ann:…@h and … and abc: EOF")
	require.ErrorIs(t, clean, io.EOF)
	require.NoError(t, secret.Scrub(nil, "", "canary"))
	public := errors.New("user durable")
	require.Equal(t, public, secret.Scrub(public, "postgres://durable@h", "durable"), "a mark would tell it")
}
