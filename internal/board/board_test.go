package board_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/board"
	"github.com/durable-worker/durable-worker/store"
)

func TestBoard(t *testing.T) {
	due := store.Signal{Kind: store.RunsDue}
	ended := store.Signal{Kind: store.RunEnded, Run: store.NewRunID()}
	t.Run("every box gets every signal once, in order", func(t *testing.T) {
		var b board.Board
		one, two := b.Join(), b.Join()
		b.Give(due, ended, due)
		b.Give(due)
		<-one.Given()
		require.Equal(t, []store.Signal{due, ended}, one.Take())
		require.Empty(t, one.Take())
		require.Equal(t, []store.Signal{due, ended}, two.Take())
	})
	t.Run("a signal may come again when it was taken", func(t *testing.T) {
		box := board.NewBox()
		box.Put(due)
		box.Take()
		box.Put(due)
		require.Equal(t, []store.Signal{due}, box.Take())
	})
	t.Run("a box that has left gets nothing", func(t *testing.T) {
		var b board.Board
		box := b.Join()
		b.Part(box)
		b.Give(due)
		require.Empty(t, box.Take())
	})
	t.Run("what is too much is reported as some run", func(t *testing.T) {
		box := board.NewBox()
		for range 10_100 {
			box.Put(store.Signal{Kind: store.RunEnded, Run: store.NewRunID()})
		}
		taken := box.Take()
		require.Len(t, taken, 10_001)
		require.Equal(t, store.Signal{Kind: store.RunEnded}, taken[10_000])
	})
	t.Run("the end closes boxes, also those that join later", func(t *testing.T) {
		var b board.Board
		box := b.Join()
		b.End()
		b.End()
		_, open := <-box.Given()
		require.False(t, open)
		_, open = <-b.Join().Given()
		require.False(t, open)
		box.Put(due)
	})
}
