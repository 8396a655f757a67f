package durable_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// badLetter is a run whose args do not fit a letter.
func badLetter(job durable.Job[letter]) durable.NewRun {
	run := job.New(letter{})
	run.Args = []byte(`{"to": 5}`)
	return run
}

// kinds are the outcomes of the recorded executions of a run.
func kinds(r *durable.Record) (all []store.OutcomeKind) {
	for i := range r.Attempts {
		all = append(all, r.Attempts[i].Outcome)
	}
	return all
}

func TestArgsThatDoNotFitAreRetriedForATimeWhateverMaxAttemptsSays(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		job := durable.NewJob[letter]("mail", durable.MaxAttempts(1))
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		id := s.enqueue(badLetter(job))
		s.pass(14 * time.Minute)
		r := s.record(id)
		require.Equal(t, durable.Pending, r.State)
		require.Zero(t, r.Attempt, "no attempt is spent")
		require.Equal(t, `decode args: field "to" holds a number, want string`, *r.Error)
		tries := len(r.Attempts)
		require.Greater(t, tries, 20, "quickly at first")
		require.Less(t, tries, 60, "and not without a pause")
		s.pass(2 * time.Minute)
		r = s.record(id)
		require.Equal(t, durable.Dead, r.State)
		require.Equal(t, `decode args: field "to" holds a number, want string (retried for 15m0s)`, *r.Error)
		require.Equal(t, store.Death, r.Attempts[len(r.Attempts)-1].Outcome)
		require.Equal(t, []store.OutcomeKind{store.Misfit}, slices.Compact(kinds(&r)[:len(r.Attempts)-1]))
		require.NoError(t, stop())
	})
}

func TestArgsThatDoNotFitEndARunAsItsJobSays(t *testing.T) {
	cases := map[string]struct {
		options  []durable.Option
		attempts int
		least    time.Duration
		most     time.Duration
	}{
		"immediately":                {options: []durable.Option{durable.DeadOnMisfit()}, attempts: 1, most: time.Second},
		"after a time":               {options: []durable.Option{durable.RetryArgsFor(time.Hour)}, attempts: 1, least: time.Hour, most: time.Hour + time.Minute},
		"by attempts":                {options: []durable.Option{durable.DeadOnMisfit(), durable.RetryArgs()}, attempts: 3, least: 20 * time.Second, most: 21 * time.Second},
		"after a time, and attempts": {options: []durable.Option{durable.RetryArgsFor(time.Minute), durable.RetryArgs()}, attempts: 3, least: 80 * time.Second, most: 90 * time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				w := s.worker(durable.WorkerConfig{})
				job := durable.NewJob[letter]("mail", append(c.options, durable.Retry(durable.Fixed(10*time.Second)))...)
				durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
				stop := s.begin(w)
				id := s.enqueue(badLetter(job))
				s.pass(2 * time.Hour)
				r := s.record(id)
				require.Equal(t, durable.Dead, r.State)
				require.Equal(t, c.attempts, r.Attempt)
				require.Less(t, len(r.Attempts), 80)
				took := r.FinishedAt.Sub(r.CreatedAt)
				require.GreaterOrEqual(t, took, c.least)
				require.LessOrEqual(t, took, c.most)
				require.NoError(t, stop())
			})
		})
	}
}

func TestATimeForArgsThatIsNegativeIsRefused(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, durable.NewJob[letter]("mail", durable.RetryArgsFor(-1)), func(context.Context, *durable.Run[letter]) error { return nil })
		require.ErrorContains(t, w.Faults(), "args retried for -1ns: want 0 to")
	})
}

func TestARunThatAnOperatorRetriesHasTheWholeTimeForItsArgsAgain(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		job := durable.NewJob[letter]("mail", durable.RetryArgsFor(time.Minute))
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		id := s.enqueue(badLetter(job))
		s.pass(2 * time.Minute)
		require.Equal(t, durable.Dead, s.record(id).State)
		_, err := s.store.Operate(t.Context(), store.RunCommand{Action: store.RetryRuns, Runs: []durable.RunID{id}, By: "ada"})
		require.NoError(t, err)
		s.pass(50 * time.Second)
		require.Equal(t, durable.Pending, s.record(id).State)
		s.pass(time.Minute)
		require.Equal(t, durable.Dead, s.record(id).State)
		require.NoError(t, stop())
	})
}

func TestACodecThatCannotDecodeSpendsNoAttemptForATime(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		codec := newSealing()
		job := durable.NewJob[letter]("mail", durable.WithCodec(codec), durable.MaxAttempts(2), durable.Retry(durable.Fixed(time.Minute)))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		late := s.enqueue(job.New(letter{To: "ann"}))
		codec.have("k2", "k2")
		stop := s.begin(w)
		s.pass(10 * time.Minute)
		r := s.record(late)
		require.Equal(t, durable.Pending, r.State)
		require.Zero(t, r.Attempt)
		codec.have("k2", "k2", "k1")
		s.pass(time.Minute)
		require.Equal(t, durable.Succeeded, s.record(late).State)
		never := s.enqueue(job.New(letter{To: "eve"}))
		codec.have("k3", "k3")
		s.pass(20 * time.Minute)
		r = s.record(never)
		require.Equal(t, durable.Dead, r.State)
		require.Equal(t, 2, r.Attempt, "after the time its attempts count")
		require.Less(t, r.FinishedAt.Sub(r.CreatedAt), 17*time.Minute)
		require.NoError(t, stop())
	})
}

func TestMiddlewareAndHooksSeeAMisfit(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		var said, decided, settled store.OutcomeKind
		var why error
		w := s.worker(durable.WorkerConfig{
			Middleware: []durable.Middleware{func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
				err := next(ctx)
				said = durable.OutcomeOf(ctx, run, err)
				return err
			}},
			Hooks: observe.Hooks{
				Execute: func(context.Context, observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
					return nil, func(end observe.ExecuteEnd) { decided = end.Outcome.Kind }
				},
				RunSettled: func(v observe.RunVerdict) { settled, why = v.Outcome, v.Err },
				RunFailed:  func(context.Context, observe.RunFailure) { t.Error("nothing has failed yet") },
			},
		})
		job := durable.NewJob[letter]("mail")
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		s.enqueue(badLetter(job))
		s.pass(100 * time.Millisecond)
		require.Equal(t, []store.OutcomeKind{store.Misfit, store.Misfit, store.Misfit}, []store.OutcomeKind{said, decided, settled})
		require.ErrorContains(t, why, "decode args")
		require.Contains(t, s.log.String(), "run.misfit")
		require.NoError(t, stop())
	})
}

func TestAScheduleWhoseArgsFitNoMoreWaitsForAProgramThatTheyFit(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		var got sync.Map
		begin := func(register func(w *durable.Worker)) func() error {
			w := s.worker(durable.WorkerConfig{})
			register(w)
			return s.begin(w)
		}
		stopNew := begin(func(w *durable.Worker) {
			job := durable.NewJob[newCharge]("charge")
			durable.Register(w, job, func(_ context.Context, run *durable.Run[newCharge]) error {
				got.Store(run.Args.Customer, true)
				return nil
			})
			durable.AddSchedule(w, "monthly", job, newCharge{Customer: "ann"}, durable.Every(time.Minute))
		})
		s.pass(time.Second)
		require.NoError(t, stopNew())
		stopOld := begin(func(w *durable.Worker) {
			durable.Register(w, durable.NewJob[oldCharge]("charge"), func(context.Context, *durable.Run[oldCharge]) error { return nil })
		})
		s.pass(3 * time.Minute)
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(1), counts[durable.Pending].N, "the one that does not fit, and the schedule waits for it")
		require.Zero(t, counts[durable.Dead].N)
		stopNew = begin(func(w *durable.Worker) {
			durable.Register(w, durable.NewJob[newCharge]("charge"), func(_ context.Context, run *durable.Run[newCharge]) error {
				got.Store(run.Args.Customer, true)
				return nil
			})
		})
		s.pass(2 * time.Minute)
		_, done := got.Load("ann")
		require.True(t, done)
		require.NoError(t, stopNew())
		require.NoError(t, stopOld())
	})
}

// oldCharge and newCharge are the args of one job in two versions of a program.
type (
	oldCharge struct {
		Customer int `json:"customer"`
		N        int `json:"n"`
	}
	newCharge struct {
		Customer string `json:"customer"`
		N        int    `json:"n"`
	}
)

// fleet executes charges with workers of two versions, and notes the order of each customer.
type fleet struct {
	mu   sync.Mutex
	done map[string][]int
}

func (f *fleet) note(customer string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done[customer] = append(f.done[customer], n)
}

var perCustomer = durable.NewLimit("customer", durable.Mutex())

func inOrder() durable.Option {
	return durable.Limited(perCustomer, durable.KeyOf("{customer}"), durable.Until(store.UntilFinished))
}

func (f *fleet) old() durable.Job[oldCharge] { return durable.NewJob[oldCharge]("charge", inOrder()) }
func (f *fleet) new() durable.Job[newCharge] { return durable.NewJob[newCharge]("charge", inOrder()) }

func (f *fleet) registerOld(w *durable.Worker) {
	durable.Register(w, f.old(), func(_ context.Context, run *durable.Run[oldCharge]) error {
		f.note(strconv.Itoa(run.Args.Customer), run.Args.N)
		return nil
	})
}

func (f *fleet) registerNew(w *durable.Worker) {
	durable.Register(w, f.new(), func(_ context.Context, run *durable.Run[newCharge]) error {
		f.note(run.Args.Customer, run.Args.N)
		return nil
	})
}

func TestARollingDeployThatChangesATypeKillsNothingAndKeepsTheOrderOfEachKey(t *testing.T) {
	for _, rollback := range []string{"deploy", "roll back"} {
		t.Run(rollback, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				f := &fleet{done: map[string][]int{}}
				first, then := f.registerOld, f.registerNew
				if rollback == "roll back" {
					first, then = then, first
				}
				begin := func(register func(*durable.Worker)) func() error {
					w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 4})
					register(w)
					return s.begin(w)
				}
				ends := []func() error{begin(first), begin(first)}
				n := map[int]int{}
				enqueue := func(old bool) {
					customer := 1 + n[0]%5
					n[0]++
					n[customer]++
					if old {
						s.enqueue(f.old().New(oldCharge{Customer: customer, N: n[customer]}))
					} else {
						s.enqueue(f.new().New(newCharge{Customer: fmt.Sprint(customer), N: n[customer]}))
					}
				}
				for range 20 {
					enqueue(rollback == "deploy")
					s.pass(100 * time.Millisecond)
				}
				ends = append(ends, begin(then), begin(then)) // both versions work, and both enqueue
				for i := range 300 {
					enqueue(i%2 == 0)
					s.pass(200 * time.Millisecond)
				}
				for _, stop := range ends[:2] {
					require.NoError(t, stop())
				}
				for range 20 {
					enqueue(rollback != "deploy")
					s.pass(100 * time.Millisecond)
				}
				stay := begin(first) // what the version before has enqueued last
				s.pass(5 * time.Minute)
				counts, err := s.store.Counts(t.Context())
				require.NoError(t, err)
				require.Equal(t, int64(n[0]), counts[durable.Succeeded].N, "%v", counts)
				for customer, order := range f.done {
					require.True(t, slices.IsSorted(order), "customer %s: %v", customer, order)
				}
				require.Len(t, f.done, 5)
				require.Greater(t, strings.Count(s.log.String(), "run.misfit"), 50, "the versions met")
				for _, stop := range append(ends[2:], stay) {
					require.NoError(t, stop())
				}
			})
		})
	}
}
