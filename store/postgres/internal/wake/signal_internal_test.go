package wake

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestPayloads(t *testing.T) {
	due := store.Signal{Kind: store.RunsDue}
	t.Run("runs that are due are announced as they always were", func(t *testing.T) {
		require.Equal(t, []string{"SELF"}, payloads("SELF", []store.Signal{due}))
		require.Equal(t, []store.Signal{due}, signals("SELF", "OTHER"))
	})
	t.Run("one's own are not heard", func(t *testing.T) {
		require.Empty(t, signals("SELF", "SELF"))
		require.Empty(t, signals("SELF", payloads("SELF", []store.Signal{{Kind: store.RunEnded}})[0]))
	})
	t.Run("a thousand signals come back from few short payloads", func(t *testing.T) {
		sent := []store.Signal{due}
		for range 333 {
			sent = append(sent, store.Signal{Kind: store.CancelsRequested, Run: store.NewRunID()},
				store.Signal{Kind: store.RunAwaited, Run: store.NewRunID()}, store.Signal{Kind: store.RunEnded, Run: store.NewRunID()})
		}
		var read []store.Signal
		texts := payloads("SELF", sent)
		require.Len(t, texts, 6)
		for _, text := range texts {
			require.Less(t, len(text), 8000)
			read = append(read, signals("OTHER", text)...)
		}
		require.Equal(t, sent, read)
	})
	t.Run("what is not known means that runs may be due", func(t *testing.T) {
		for _, text := range []string{"", " ", "OTHER ", "OTHER x", "OTHER e" + strings.Repeat("g", 32), "OTHER z" + strings.Repeat("0", 32), "OTHER e0 more"} {
			require.Equal(t, []store.Signal{due}, signals("SELF", text), text)
		}
	})
}
