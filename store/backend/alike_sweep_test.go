package backend_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// sweep deletes the runs whose time is over, once in a history: the next full pass begins
// half a minute later at the earliest.
func (h *history) sweep() {
	if h.swept || len(h.known) < 20 {
		return
	}
	h.swept = true
	request := store.SweepRequest{By: uuid.New(), Retention: one(h, store.KeepForever, time.Millisecond, time.Millisecond), RetentionDead: one(h, store.KeepForever, time.Millisecond),
		RetentionAudit: one(h, store.KeepForever, time.Millisecond), Limit: 1 + h.random.IntN(50)}
	<-time.After(3 * time.Millisecond) // the millisecond is over on every clock
	h.each(fmt.Sprintf("sweep %+v", request), func(s backend.Store) any {
		deleted, mended, returned := 0, 0, []string{}
		for {
			done, err := s.Sweep(h.t.Context(), request)
			require.NoError(h.t, err)
			require.False(h.t, done.Busy)
			require.Zero(h.t, done.Repaired, "%s\n%s", h.nameOf(s), h.last())
			require.Empty(h.t, done.SetAside, "%s\n%s", h.nameOf(s), h.last())
			deleted, mended = deleted+done.Deleted, mended+done.Mended
			for _, run := range done.Returned {
				returned = append(returned, run.ID.String())
			}
			if done.Done {
				slices.Sort(returned)
				return []any{deleted, mended, returned}
			}
		}
	})
}
