package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrailingHintsEndWithTheStore(t *testing.T) {
	t.Parallel()
	s := &Store{}
	s.hints.init()
	require.False(t, s.txHints.end(), "none is armed")
	s = &Store{}
	s.hints.init()
	s.trail(nil)
	require.True(t, s.txHints.end())
	for i := range s.txHints.rungs {
		require.False(t, s.txHints.rungs[i].timer.Stop(), "a timer goes on")
	}
	s = &Store{}
	s.hints.init()
	s.txHints.end()
	s.trail(nil)
	require.Equal(t, rung{}, s.txHints.rungs[0], "armed after the end")
}
