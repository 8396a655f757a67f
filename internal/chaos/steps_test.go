package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

type journeyArgs struct {
	Ledger string `json:"ledger"`
}

var journey = durable.NewJob[journeyArgs]("journey", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond)))

// registerJourney registers a handler of steps, a sleep and a wait. Each call of a step, and what
// the step has returned, is a line of a file that all processes append to, so the order of the
// lines is that in which they were written.
func registerJourney(app *durablecmd.App) {
	durable.Register(app.Worker, journey, func(ctx context.Context, run *durable.Run[journeyArgs]) error {
		ledger, err := os.OpenFile(run.Args.Ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = ledger.Close() }()
		step := func(name string) error {
			value, err := durable.Step(ctx, run, name, func(context.Context) (int, error) {
				_, err := fmt.Fprintf(ledger, "called %s %s 0\n", run.ID, name)
				if rand.IntN(5) == 0 {
					return 0, fmt.Errorf("no luck: %w", err)
				}
				return rand.Int(), err
			}, durable.StepAttempts(1000, durable.Fixed(20*time.Millisecond)))
			if err == nil {
				_, err = fmt.Fprintf(ledger, "stored %s %s %d\n", run.ID, name, value)
			}
			return err
		}
		if err := step("first"); err != nil {
			return err
		}
		if err := run.Sleep(ctx, "a while", time.Duration(rand.IntN(2000))*time.Millisecond); err != nil {
			return err
		}
		if _, err := durable.Receive[string](ctx, run, "go", 0); err != nil {
			return err
		}
		return durable.Parallel(ctx, run, func(context.Context) error { return step("left") }, func(context.Context) error { return step("right") })
	})
}

func TestStepsAreExecutedOnceUnderKills_PostgreSQL(t *testing.T) { journeys(t, pgtest.Database(t)) }

func TestStepsAreExecutedOnceUnderKills_SQLite(t *testing.T) { journeys(t, sqliteDSN(t)) }

// journeys lets workers be killed, and stopped for longer than their leases, while runs take steps,
// sleep, and are sent what they wait for.
func journeys(t *testing.T, dsn string) {
	t.Helper()
	const runs = 80
	db, path := openStore(t, dsn), filepath.Join(t.TempDir(), "ledger")
	client := durable.NewClient(db)
	var ids []durable.RunID
	for range runs {
		receipt, err := journey.Enqueue(t.Context(), client, journeyArgs{Ledger: path})
		require.NoError(t, err)
		ids = append(ids, receipt.ID)
	}
	var sending sync.WaitGroup
	for _, id := range ids {
		sending.Go(func() {
			<-time.After(time.Duration(rand.IntN(6000)) * time.Millisecond)
			for range 2 {
				_, err := journey.Send(t.Context(), client, id, "go", "on")
				require.NoError(t, err)
			}
		})
	}
	fleet := []*worker{startWorker(t, dsn, "w0"), startWorker(t, dsn, "w1"), startWorker(t, dsn, "w2")}
	for n := range 6 {
		<-time.After(600 * time.Millisecond)
		one := fleet[n%len(fleet)]
		if n == 3 && !strings.HasPrefix(dsn, "sqlite") { // there it may have the lock of the file
			one.signal(syscall.SIGSTOP)
			<-time.After(leaseDuration + time.Second)
			one.signal(syscall.SIGCONT)
			continue
		}
		one.signal(syscall.SIGKILL)
		fleet[n%len(fleet)] = startWorker(t, dsn, fmt.Sprint("w", 3+n))
	}
	sending.Wait()
	until(t, db, 2*time.Minute, "every run succeeds", succeeded(runs))

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	stored := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		f := strings.Fields(line)
		require.Len(t, f, 4, line)
		at := f[1] + " " + f[2]
		value, known := stored[at]
		if f[0] == "called" {
			require.False(t, known, "%s was called after its result was stored", at)
		} else if known {
			require.Equal(t, value, f[3], "%s has two values", at)
		} else {
			stored[at] = f[3]
		}
	}
	require.Len(t, stored, 3*runs)
	for _, id := range ids {
		found, err := store.StepsOf(t.Context(), db, id)
		require.NoError(t, err)
		for _, step := range found.Steps {
			if step.Kind == store.StepDone {
				require.Equal(t, stored[id.String()+" "+step.Name], string(step.Value))
			}
		}
	}
	require.Eventually(t, func() bool {
		left, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 100})
		return err == nil && left.Next < 0
	}, 10*time.Second, 50*time.Millisecond, "no notice is left, but those put back for a second")
}
