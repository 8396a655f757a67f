package postgres_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// TestSettle_OneByOneWakesOthersForItsPlaces: a settlement whose data is refused settles run by
// run, and notifies the workers of other processes of the places that it frees, as any does.
func TestSettle_OneByOneWakesOthersForItsPlaces(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	ids := l.enqueue(limitedRun(use("doc", "a")), limitedRun(use("doc", "a")))
	r, runs := l.admit(1)
	require.Equal(t, ids[:1], idsOf(runs))
	l.exec("alter table attempts add constraint refused check (error <> 'refused')")
	line := strconv.FormatInt(int64(admit.LimitLine(store.LimitID(l.count("select id from limits")))), 36) //nolint:gosec // few limits
	other := l.conn()
	_, err := other.Exec(t.Context(), "listen "+l.schema+"_wake")
	require.NoError(t, err)
	require.Equal(t, []store.Verdict{store.Applied}, l.settle(r, runs, store.Outcome{Kind: store.Death, Error: "refused"}))
	require.Eventually(t, func() bool {
		notification, err := other.WaitForNotification(t.Context())
		require.NoError(t, err)
		return strings.Contains(notification.Payload, ";"+line+",")
	}, 10*time.Second, time.Millisecond)
	_, runs = l.admit(1)
	require.Equal(t, ids[1:], idsOf(runs))
}
