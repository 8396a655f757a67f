package examine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestWhatAnExaminationSaysOfLostClients(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keepalive, idle time.Duration
		want            store.Level
	}{
		{0, 0, store.Fine}, // a Unix socket
		{2*time.Hour + 11*time.Minute + 15*time.Second, 0, store.Warning}, // as Linux has it
		{2 * time.Hour, time.Hour, store.Warning},
		{2 * time.Hour, 5 * time.Minute, store.Fine},
		{2 * time.Minute, 0, store.Fine},
	} {
		var f store.Findings
		judgeLost(c.keepalive, c.idle, &f)
		require.Len(t, f, 1)
		require.Equal(t, c.want, f[0].Level, "%+v", c)
	}
}
