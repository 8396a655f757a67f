package durable_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// lossy is a store whose answers about schedules are lost at first.
type lossy struct {
	durable.Store
	lost int
}

func (l *lossy) PutSchedule(ctx context.Context, s store.Schedule) error {
	if err := l.Store.PutSchedule(ctx, s); err != nil || l.lost == 0 {
		return err
	}
	l.lost--
	return errors.New("the answer was lost")
}

func TestAProgramsScheduleFiresAndIsReplacedAndDeleted(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		var mu sync.Mutex
		seen := map[string]int{}
		job := durable.NewJob[letter]("invoice", durable.WithCodec(newSealing()), durable.MaxAttempts(2))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			mu.Lock()
			defer mu.Unlock()
			seen[run.Args.To]++
			return nil
		})
		defer func(stop func() error) { require.NoError(t, stop()) }(s.begin(w))
		s.store.Store = &lossy{Store: s.store.Store, lost: 2}
		put := func(to string, rule durable.Rule) {
			require.NoError(t, job.Schedule(t.Context(), s.client, "invoice/7", letter{To: to}, rule))
		}
		fired := func(to string) int {
			mu.Lock()
			defer mu.Unlock()
			return seen[to]
		}
		put("ann", durable.Every(time.Minute))
		s.pass(5*time.Minute + time.Second)
		require.Equal(t, 5, fired("ann"))
		put("bob", durable.Every(time.Hour))
		s.pass(3*time.Hour + time.Second)
		require.Equal(t, []int{5, 3}, []int{fired("ann"), fired("bob")})
		require.NoError(t, s.client.ChangeSchedule(t.Context(), "invoice/7", store.DeleteSchedule, "billing"))
		s.pass(3 * time.Hour)
		require.Equal(t, 3, fired("bob"))
		require.ErrorIs(t, s.client.ChangeSchedule(t.Context(), "invoice/7", store.DeleteSchedule, "billing"), durable.ErrNotFound)
	})
}

func TestAProgramsScheduleIsRefusedWithWhatIsWrong(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("invoice")
		put := func(name string, rule durable.Rule, options ...durable.Option) error {
			return job.Schedule(t.Context(), s.client, name, letter{}, rule, options...)
		}
		for wrong, err := range map[string]error{
			"Europe/Berlln":        put("invoice/7", durable.Cron("0 6 1 * *", "Europe/Berlln")),
			"After is for one":     put("invoice/7", durable.Every(time.Hour), durable.After(time.Second)),
			`schedule ""`:          put("", durable.Every(time.Hour)),
			"want 1s to 100 years": put("invoice/7", durable.Every(time.Millisecond)),
		} {
			require.ErrorIs(t, err, durable.ErrInvalid)
			require.ErrorContains(t, err, wrong)
		}
		all, err := s.store.ListSchedules(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

func TestAProgramsScheduleIsThereWhenItsTransactionCommits(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("invoice")
		tx := s.transaction()
		require.NoError(t, job.Schedule(t.Context(), tx, "invoice/7", letter{To: "ann"}, durable.Every(time.Hour)))
		all, err := s.store.ListSchedules(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
		require.NoError(t, tx.Commit())
		all, err = s.store.ListSchedules(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.False(t, all[0].Edited)
		require.JSONEq(t, `{"to":"ann"}`, string(all[0].Args))
	})
}
