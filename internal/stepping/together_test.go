package stepping_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// slowStore takes a second for each call, and refuses those of a run that is lost.
type slowStore struct {
	stepping.Store // nil: nothing else is called

	lost store.RunID

	mu    sync.Mutex
	calls []int // how many runs have called, in each
	reads []int
	ends  []int // of how many runs the outcomes were read, in each call
}

func (s *slowStore) Call(_ context.Context, calls []store.Call) error {
	time.Sleep(time.Second) //nolint:forbidigo // virtual time of the bubble
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, len(calls))
	if slices.ContainsFunc(calls, func(c store.Call) bool { return c.Run == s.lost }) {
		return lease.ErrLost
	}
	return nil
}

func (s *slowStore) Steps(_ context.Context, ids []store.RunID) ([]store.RunSteps, error) {
	time.Sleep(time.Second) //nolint:forbidigo // virtual time of the bubble
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, len(ids))
	return make([]store.RunSteps, len(ids)), nil
}

func (s *slowStore) Outcomes(_ context.Context, ids []store.RunID) ([]store.RunOutcome, error) {
	time.Sleep(time.Second) //nolint:forbidigo // virtual time of the bubble
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, len(ids))
	return make([]store.RunOutcome, len(ids)), nil
}

// executing is one execution of a run.
type executing struct{ run store.RunID }

func (x executing) Holder() store.Holder { return store.Holder{Run: x.run} }
func (x executing) Gone() error          { return nil }
func (x executing) Insist(ctx context.Context, once func(context.Context) error) error {
	return once(ctx)
}
func (x executing) Seal(_ string, value []byte) ([]byte, error)   { return value, nil }
func (x executing) Unseal(step *store.StepRecord) ([]byte, error) { return step.Value, nil }

// TestCallsOfManyShareCalls: the first calls for itself, the others meanwhile wait and share the
// next, and one that is lost stops none of them.
func TestCallsOfManyShareCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 30
		db := &slowStore{lost: store.NewRunID()}
		recorder := stepping.NewRecorder(stepping.Host{Store: db, Elapsed: func() time.Duration { return 0 }, Timeout: func() time.Duration { return time.Minute }})
		began := time.Now()
		var all sync.WaitGroup
		for i := range many {
			x := executing{store.NewRunID()}
			if i == many/2 {
				x.run = db.lost
			}
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) //nolint:forbidigo // virtual time of the bubble
				book := stepping.NewBook(recorder, x)
				known, err := book.Begin(t.Context(), "a")
				require.NoError(t, err)
				require.Nil(t, known)
				time.Sleep(10*time.Second + time.Duration(i)*time.Millisecond - time.Since(began)) //nolint:forbidigo // virtual time of the bubble
				_, err = book.Call(t.Context(), "a", []store.NewRun{{}})
				if x.run == db.lost {
					require.ErrorIs(t, err, lease.ErrLost)
				} else {
					require.NoError(t, err)
				}
			})
		}
		all.Wait()
		require.Equal(t, []int{1, many - 1}, db.reads)
		require.Equal(t, []int{1, many - 1}, db.calls[:2])
		require.Len(t, db.calls[2:], many-1, "each of them alone, as together they were refused")
		require.Equal(t, 13*time.Second, time.Since(began).Truncate(time.Second), "alone, and without a pause")
	})
}

// TestManyReadTheEndOfOneRunTogether: dependents of one run ask for its result.
func TestManyReadTheEndOfOneRunTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 30
		db, source := &slowStore{}, store.NewRunID()
		recorder := stepping.NewRecorder(stepping.Host{Store: db, Elapsed: func() time.Duration { return 0 }, Timeout: func() time.Duration { return time.Minute }})
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) //nolint:forbidigo // virtual time of the bubble
				found, err := stepping.NewBook(recorder, executing{store.NewRunID()}).Outcomes(t.Context(), []store.RunID{source})
				require.NoError(t, err)
				require.Len(t, found, 1)
			})
		}
		all.Wait()
		require.Equal(t, []int{1, many - 1}, db.ends)
	})
}
