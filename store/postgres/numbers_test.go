package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// The numbers of lanes, schedules and workers are ints. Workers declare the same
// things at every start and every hour, which must not use numbers up.
func TestDeclaringAgainUsesUpNoNumbers(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	_, err := conn.Exec(t.Context(), "select setval('"+db.schema+".schedules_id_seq', 2147483647 - 10, false)") // the last ten
	require.NoError(t, err)
	declaration := store.Declaration{Worker: worker("w"), Jobs: []store.JobInfo{job.Info()}}
	for i := range 10 {
		schedule, err := durable.ScheduleOf(job.Info(), fmt.Sprintf("s%d", i), []byte(`{}`), store.Every(time.Hour))
		require.NoError(t, err)
		schedule.Hash = "1"
		declaration.Schedules = append(declaration.Schedules, schedule)
	}
	last := func() (numbers [3]int64) {
		for i, table := range []string{"schedules", "lanes", "workers"} {
			require.NoError(t, conn.QueryRow(t.Context(), "select last_value from "+db.schema+"."+table+"_id_seq").Scan(&numbers[i]))
		}
		return numbers
	}
	require.NoError(t, db.Declare(t.Context(), declaration))
	first := last()
	for _, hash := range []string{"1", "2", "2"} {
		for i := range declaration.Schedules {
			declaration.Schedules[i].Hash = hash
		}
		require.NoError(t, db.Declare(t.Context(), declaration))
		_, err := db.Enqueue(t.Context(), newRuns(3)...)
		require.NoError(t, err)
	}
	after := last()
	first[1] = after[1] // the enqueue's lane is new
	require.Equal(t, first, after)

	var lanes int64
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from "+db.schema+".lanes").Scan(&lanes))
	require.Equal(t, lanes, after[1])
}
