package postgres_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// The connections on which workers listen break, one after the other, as behind a pooler that
// restarts. The others soon do without those sessions, though no one reads the list of members.
func TestFleet_ABrokenConnectionTakesNoTurns(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, breaks, runs = 6, 8, 60
	executed := make(chan durable.RunID, runs)
	for range workers {
		member(t, place, "mail", executed)
	}
	listening(t, place, workers)
	conn := connect(t, place.url)
	for range breaks {
		var gone int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid, 5000)) FROM (SELECT pid "+listeners+" ORDER BY pid LIMIT 1) oldest").Scan(&gone))
		require.Equal(t, 1, gone)
		listening(t, place, workers)
	}
	<-time.After(time.Second) // for the claims of those that listen again
	mail := durable.NewJob[struct{}]("mail")
	for i := range runs { // too far apart for a watch
		_, err := place.Enqueue(t.Context(), mail.New(struct{}{}))
		require.NoError(t, err)
		select {
		case <-executed:
		case <-time.After(5 * time.Second):
			t.Fatalf("run %d was not found", i)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Two members are killed, and cannot say so. In a crew in which not every turn has a stand-in,
// the others miss them within seconds.
func TestFleet_AKilledMemberIsMissed(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, runs = 6, 60
	executed := make(chan durable.RunID, 1000)
	for range workers {
		member(t, place, "mail", executed)
	}
	listening(t, place, workers)
	for range 2 {
		killed := connect(t, place.url)
		joinCrew(t, place, killed)
		require.NoError(t, killed.Close(t.Context()))
	}
	mail := durable.NewJob[struct{}]("mail")
	missed, began := 0, time.Now()
	for found := 0; found < runs; {
		require.Less(t, time.Since(began), 20*time.Second, "%d turns missed", missed)
		receipts, err := place.Enqueue(t.Context(), mail.New(struct{}{}))
		require.NoError(t, err)
		if found++; !executedSoon(executed, receipts[0].ID) {
			found, missed = 0, missed+1
		}
		<-time.After(20 * time.Millisecond) // too far apart for a watch
	}
	t.Logf("%d turns missed; none since %v", missed, time.Since(began))
}

// joinCrew makes a connection a member of the crew that listens there.
func joinCrew(t *testing.T, place opened, conn *pgx.Conn) {
	t.Helper()
	var class, crew int64
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT classid::bigint, objid::bigint "+listeners+" LIMIT 1").Scan(&class, &crew))
	_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock_shared($1, $2)", int32(class), int32(crew)) //nolint:gosec // all its bits
	require.NoError(t, err)
	joins := "ANOTHER j" + strconv.FormatInt(crew, 36) + "," + strconv.FormatInt(int64(conn.PgConn().PID()), 36)
	_, err = conn.Exec(t.Context(), "SELECT pg_notify($1, $2)", place.schema+"_wake", joins)
	require.NoError(t, err)
}

// executedSoon reports whether a run is executed within half a second.
func executedSoon(executed <-chan durable.RunID, id durable.RunID) bool {
	late := time.After(500 * time.Millisecond)
	for {
		select {
		case one := <-executed:
			if one == id {
				return true
			}
		case <-late:
			return false
		}
	}
}
