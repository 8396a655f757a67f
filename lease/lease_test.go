package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
)

func TestTerms_DefaultsAreAThird(t *testing.T) {
	terms := lease.Terms{}.WithDefaults()
	require.Equal(t, lease.Terms{Duration: 30 * time.Second, Heartbeat: 10 * time.Second}, terms)
	require.NoError(t, terms.Validate())
	require.Equal(t, 2*time.Second, lease.Terms{Duration: 6 * time.Second}.WithDefaults().Heartbeat)
}

func TestTerms_EveryViolationIsNamed(t *testing.T) {
	err := lease.Terms{Duration: 900 * time.Millisecond, Heartbeat: 800 * time.Millisecond}.Validate()
	require.ErrorContains(t, err, "below 1s")
	require.ErrorContains(t, err, "above half")
	require.ErrorContains(t, lease.Terms{Duration: time.Second, Heartbeat: -1}.Validate(), "not positive")
}

func TestTerms_MarginAndDeadline(t *testing.T) {
	for duration, margin := range map[time.Duration]time.Duration{
		30 * time.Second: 3 * time.Second, 6 * time.Second: time.Second, time.Second: time.Second / 6, time.Hour: 6 * time.Minute,
	} {
		terms := lease.Terms{Duration: duration}.WithDefaults()
		require.Equal(t, margin, terms.Margin())
		deadline := terms.Deadline(time.Minute)
		require.Less(t, deadline, time.Minute+duration, "before the store's expiry")
		require.GreaterOrEqual(t, deadline, time.Minute+terms.Heartbeat*2, "two tries fit before it")
	}
}

func TestElapsed_Rises(t *testing.T) {
	last := lease.Elapsed()
	for range 1000 {
		now := lease.Elapsed()
		require.GreaterOrEqual(t, now, last)
		last = now
	}
}

func TestClaimID_IsAVersion4UUIDAndItsShortFormIsShort(t *testing.T) {
	seen := map[lease.ClaimID]bool{}
	for range 1000 {
		id := lease.NewClaimID()
		require.False(t, seen[id])
		seen[id] = true
		require.Equal(t, byte(4), id[6]>>4)
		require.Equal(t, byte(2), id[8]>>6)
		require.Len(t, id.Short(), 8)
	}
}
