package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestZonedTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, one := range []struct {
		at   time.Time
		text store.ZonedTime
	}{
		{time.Time{}, ""},
		{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), "2026-03-01T00:00:00Z"},
		{time.Date(2026, 3, 1, 0, 0, 0, 0, berlin), "2026-03-01T00:00:00+01:00[Europe/Berlin]"},
		{time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC).In(berlin), "2026-10-25T02:30:00+02:00[Europe/Berlin]"},
		{time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC).In(berlin), "2026-10-25T02:30:00+01:00[Europe/Berlin]"},
		{time.Date(2026, 3, 1, 0, 0, 0, 1000, time.UTC), "2026-03-01T00:00:00.000001Z"},
	} {
		require.Equal(t, one.text, store.ZonedTimeOf(one.at))
		read, ok := one.text.Time()
		require.Equal(t, !one.at.IsZero(), ok)
		require.True(t, read.Equal(one.at), one.text)
		require.Equal(t, one.at.Location().String(), read.Location().String())
		require.Equal(t, one.at.Format(time.RFC3339Nano), read.Format(time.RFC3339Nano))
		require.Equal(t, ok, one.text.Fixed() != nil)
		if ok {
			require.Equal(t, read.Format(time.RFC3339Nano), one.text.Fixed().Format(time.RFC3339Nano))
			require.Equal(t, read.Location().String(), one.text.Fixed().Location().String())
		}
	}
	in, ok := store.ZonedTime("2026-03-01T00:00:00+01:00[Europe/Berlin]").Time()
	require.True(t, ok)
	require.Equal(t, "2026-04-01T00:00:00+02:00", in.AddDate(0, 1, 0).Format(time.RFC3339), "it has the zone and not only the offset")

	for text, name := range map[store.ZonedTime]string{
		"2026-03-01T00:00:00+01:00[Mars/Utopia]":   "Mars/Utopia",
		"2026-03-01T00:00:00+05:00[Europe/Berlin]": "Europe/Berlin", // as a country would have it that has since thought better of it
	} {
		read, ok := text.Time()
		require.True(t, ok)
		require.Equal(t, "2026-03-01 00:00", read.Format("2006-01-02 15:04"), "the date is the same for everyone")
		require.Equal(t, name, read.Location().String())
	}
	for _, text := range []store.ZonedTime{"monday", "2026-03-01T00:00:00+01:00[", "2026-03-01T00:00:00+01:00[]", "2026-03-01T00:00:00", "[Europe/Berlin]"} {
		_, ok := text.Time()
		require.False(t, ok, text)
		require.Nil(t, text.Fixed(), text)
	}
}
