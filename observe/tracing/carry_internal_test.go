package tracing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
)

// Attempts whose outcomes are never stored are forgotten.
func TestWhatIsNeverSettledIsForgotten(t *testing.T) {
	t.Parallel()
	var s settling
	for i := range 3 * mostSettling {
		s.add(attempt{fence: lease.Fence(i)}, returned{})
		require.LessOrEqual(t, len(s.young)+len(s.older), mostSettling)
	}
	_, ok := s.take(attempt{fence: lease.Fence(3*mostSettling - 1)})
	require.True(t, ok)
	_, ok = s.take(attempt{fence: 0})
	require.False(t, ok)
}
