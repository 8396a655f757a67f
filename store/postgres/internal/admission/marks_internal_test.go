package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// TestLineMarks_AreForgottenOneByOne keeps the marks of lines in use.
func TestLineMarks_AreForgottenOneByOne(t *testing.T) {
	t.Parallel()
	var m lineMarks
	lanes := []store.LaneID{1}
	line := func(gate int64) lineAt { return lineAt{gate, 1} }
	read := func(gate int64, took time.Duration) {
		m.learn(map[int64]bool{gate: true}, lanes, map[lineAt]*lineRead{line(gate): {read: markFrom, left: markFrom, deep: true}}, &markArgs{}, took)
	}
	for gate := range int64(2 * markMost) {
		read(gate, time.Second+time.Duration(gate)*time.Millisecond)
	}
	used := m.of(lanes)
	require.Len(t, used.gates, markMost)
	require.NotContains(t, used.gates, int64(0), "those that end first have gone")
	require.Contains(t, used.gates, int64(2*markMost-1))

	m.learn(map[int64]bool{2*markMost - 1: true}, lanes, nil, &used, 0)
	used = m.of(lanes)
	require.NotContains(t, used.gates, int64(2*markMost-1), "an empty line has no mark")
	require.Len(t, used.gates, markMost-1)
}
