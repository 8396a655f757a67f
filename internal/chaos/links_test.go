package chaos_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

type (
	shipmentArgs struct{ N int }
	parcelArgs   struct{ N int }
	reportArgs   struct{ Of durable.RunID }
)

var (
	shipment = durable.NewJob[shipmentArgs]("shipment", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond)))
	parcel   = durable.Returning[int](durable.NewJob[parcelArgs]("parcel", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond))))
	report   = durable.NewJob[reportArgs]("report", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond)))
)

// registerShipment registers a handler that calls others, and what follows it.
func registerShipment(app *durablecmd.App) {
	durable.Register(app.Worker, shipment, func(ctx context.Context, run *durable.Run[shipmentArgs]) error {
		first, err := parcel.Call(ctx, run, "first", parcelArgs{run.Args.N})
		if err != nil {
			return err
		}
		rest, err := parcel.CallAll(ctx, run, "rest", []parcelArgs{{first + 1}, {first + 2}})
		if err != nil {
			return err
		}
		if rest[0] != 4*run.Args.N+2 || rest[1] != 4*run.Args.N+4 {
			return durable.Permanent(fmt.Errorf("of %d came %d and %v", run.Args.N, first, rest))
		}
		return nil
	})
	durable.RegisterReturning(app.Worker, parcel, func(_ context.Context, run *durable.Run[parcelArgs]) (int, error) {
		return 2 * run.Args.N, nil
	})
	durable.Register(app.Worker, report, func(context.Context, *durable.Run[reportArgs]) error { return nil })
}

func TestRunsFollowRunsUnderKills_PostgreSQL(t *testing.T) { followed(t, pgtest.Database(t)) }

func TestRunsFollowRunsUnderKills_SQLite(t *testing.T) { followed(t, sqliteDSN(t)) }

// followed lets workers be killed while runs call others, and others wait for them.
func followed(t *testing.T, dsn string) {
	t.Helper()
	const shipments = 60
	db := openStore(t, dsn)
	client := durable.NewClient(db)
	fleet := []*worker{startWorker(t, dsn, "w0"), startWorker(t, dsn, "w1"), startWorker(t, dsn, "w2")}
	after := map[durable.RunID]durable.RunID{}
	for n := range shipments {
		source := shipment.New(shipmentArgs{n})
		then := report.New(reportArgs{source.ID}, durable.DependsOn(durable.OnSuccess(source.ID)))
		never := report.New(reportArgs{source.ID}, durable.DependsOn(durable.OnFailure(source.ID, then.ID)))
		_, err := client.Enqueue(t.Context(), source, then, never)
		require.NoError(t, err)
		after[then.ID] = source.ID
		if n%10 == 9 {
			fleet[n/10%len(fleet)].signal(syscall.SIGKILL)
			fleet[n/10%len(fleet)] = startWorker(t, dsn, fmt.Sprint("w", n))
		}
		<-time.After(40 * time.Millisecond)
	}
	until(t, db, 2*time.Minute, "every shipment, its three parcels and its report succeed, and what waited for a failure is cancelled",
		func(c map[durable.State]store.Count) bool {
			return c[durable.Succeeded].N == 5*shipments && c[durable.Cancelled].N == shipments && c[durable.Pending].N+c[durable.Running].N+c[durable.Dead].N == 0
		})
	for then, source := range after {
		first, err := db.Run(t.Context(), source)
		require.NoError(t, err)
		second, err := db.Run(t.Context(), then)
		require.NoError(t, err)
		require.False(t, second.StartedAt.Before(*first.FinishedAt), "%s began before %s had ended", then, source)
	}
	require.Eventually(t, func() bool {
		left, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 100})
		return err == nil && left.Next < 0
	}, 10*time.Second, 50*time.Millisecond, "no notice is left, but those put back for a moment")
}
