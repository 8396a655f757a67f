package durable_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// tick is a job whose runs take some time.
func tick(w *durable.Worker, takes time.Duration, fired *atomic.Int32, most *atomic.Int32) durable.Job[letter] {
	job := durable.NewJob[letter]("tick")
	var executing atomic.Int32
	durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error {
		fired.Add(1)
		if n := executing.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer executing.Add(-1)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(takes):
			return nil
		}
	})
	return job
}

func TestSchedule_OverlapPolicies(t *testing.T) {
	for _, one := range []struct {
		overlap     store.OverlapPolicy
		fires, most int32
	}{
		{durable.OverlapSkip, 6, 1},
		{durable.OverlapWait, 10, 1},
		{durable.OverlapAllow, 12, 3},
	} {
		t.Run(string(one.overlap), func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				w := s.worker(durable.WorkerConfig{})
				var fired, most atomic.Int32
				takes := 15 * time.Second
				if one.overlap == durable.OverlapWait {
					takes = 11 * time.Second
				}
				if one.overlap == durable.OverlapAllow {
					takes = 25 * time.Second
				}
				job := tick(w, takes, &fired, &most)
				durable.AddSchedule(w, "tick", job, letter{}, durable.Every(10*time.Second), durable.Overlap(one.overlap))
				stop := s.begin(w)
				s.pass(2*time.Minute + time.Second)
				require.InDelta(t, one.fires, fired.Load(), 1)
				require.Equal(t, one.most, most.Load())
				past, err := s.store.ScheduleHistory(t.Context(), "tick", 100)
				require.NoError(t, err)
				skipped := 0
				for _, line := range past {
					if line.Kind == store.HistorySkip {
						require.Equal(t, string(store.SkipOverlap), *line.Reason)
						skipped++
					}
				}
				if one.overlap == durable.OverlapSkip {
					require.InDelta(t, 6, skipped, 1)
				} else {
					require.Zero(t, skipped)
				}
				require.NoError(t, stop())
			})
		})
	}
}

func TestSchedule_TwoWeeksOfOutage(t *testing.T) {
	for _, one := range []struct {
		says    string
		options []durable.Option
		want    int32
	}{
		{"skip", nil, 1},
		{"latest", []durable.Option{durable.CatchUp(durable.CatchUpLatest, 0, 0)}, 1},
		{"all within an hour", []durable.Option{durable.CatchUp(durable.CatchUpAll, time.Hour, 0)}, 60},
		{"the latest 100", []durable.Option{durable.CatchUp(durable.CatchUpAll, 0, 100), durable.Overlap(durable.OverlapAllow)}, 101},
	} { // the last occurrence is less than a minute old, so it is on time and not missed
		t.Run(one.says, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				var before, after, most atomic.Int32
				work := func(fired *atomic.Int32) func() error {
					w := s.worker(durable.WorkerConfig{})
					job := tick(w, 0, fired, &most)
					durable.AddSchedule(w, "tick", job, letter{}, durable.Every(time.Minute), one.options...)
					return s.begin(w)
				}
				stop := work(&before)
				s.pass(5 * time.Minute)
				require.NoError(t, stop())
				require.InDelta(t, 5, before.Load(), 1)
				s.pass(14*24*time.Hour - time.Duration(time.Now().Second()-20)*time.Second)
				stop = work(&after)
				s.pass(30 * time.Second)
				require.Equal(t, one.want, after.Load())
				require.NoError(t, stop())
			})
		})
	}
}

func TestSchedule_DueOccurrenceDoesNotWaitForThePoll(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{PollInterval: time.Hour})
		job := durable.NewJob[letter]("tick")
		var fired atomic.Int32
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			require.Less(t, time.Since(run.DueAt), 100*time.Millisecond)
			fired.Add(1)
			return nil
		})
		durable.AddSchedule(w, "tick", job, letter{}, durable.Cron("*/7 * * * * *", "Asia/Kathmandu"))
		stop := s.begin(w)
		s.pass(10 * time.Minute)
		require.InDelta(t, 90, fired.Load(), 1)
		require.NoError(t, stop())
	})
}

func TestSchedule_RollingDeployBackAndForth(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		program := func(every time.Duration, extra bool) *durable.Worker {
			w := s.worker(durable.WorkerConfig{Orphans: store.DisableOrphans(24 * time.Hour), PollInterval: time.Minute})
			job := durable.NewJob[letter]("tick")
			durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
			durable.AddSchedule(w, "changed", job, letter{}, durable.Every(every))
			durable.AddSchedule(w, "edited", job, letter{}, durable.Every(time.Hour))
			if extra {
				durable.AddSchedule(w, "removed", job, letter{}, durable.Every(time.Hour))
			}
			return w
		}
		record := func(name string) store.ScheduleRecord {
			records, err := s.store.ListSchedules(t.Context(), name)
			require.NoError(t, err)
			require.Len(t, records, 1)
			return records[0]
		}
		stopOld := s.begin(program(10*time.Minute, true))
		s.pass(time.Minute)
		edited := record("edited")
		one := edited.Schedule()
		one.Rule = durable.Every(7 * time.Hour)
		require.NoError(t, s.store.SaveSchedule(t.Context(), one, "ann"))
		stopNew := s.begin(program(20*time.Minute, false))
		s.pass(3 * time.Hour) // both programs declare hourly
		require.Equal(t, durable.Every(20*time.Minute), record("changed").Rule, "the old program does not undo the new one's schedule")
		require.False(t, record("removed").Orphaned)
		require.NoError(t, stopOld())
		s.pass(3 * time.Hour)
		require.True(t, record("removed").Orphaned, "flagged")
		require.False(t, record("removed").Paused)
		s.pass(24 * time.Hour)
		require.True(t, record("removed").Paused, "disabled by the stated policy")
		require.Equal(t, "orphan", *record("removed").PausedBy)
		stopOld = s.begin(program(10*time.Minute, true)) // rolled back
		require.NoError(t, stopNew())
		s.pass(3 * time.Hour)
		require.Equal(t, durable.Every(10*time.Minute), record("changed").Rule, "the program that was started last counts")
		require.False(t, record("removed").Paused, "it is declared again")
		require.Equal(t, durable.Every(7*time.Hour), record("edited").Rule, "what an operator edited stays")
		require.True(t, record("edited").Edited)
		require.NoError(t, stopOld())
	})
}

func TestSchedule_OldProgramThatRestartsIsOverruledLater(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		program := func(every time.Duration) *durable.Worker {
			w := s.worker(durable.WorkerConfig{})
			job := durable.NewJob[letter]("tick")
			durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
			durable.AddSchedule(w, "changed", job, letter{}, durable.Every(every))
			return w
		}
		stopNew := s.begin(program(20 * time.Minute))
		s.pass(time.Minute)
		stopOld := s.begin(program(10 * time.Minute)) // an old one that crashed and came back
		s.pass(time.Minute)
		require.NoError(t, stopOld())
		s.pass(3 * time.Hour)
		records, err := s.store.ListSchedules(t.Context())
		require.NoError(t, err)
		require.Equal(t, durable.Every(20*time.Minute), records[0].Rule)
		require.NoError(t, stopNew())
	})
}

// TestSchedule_WorkersComeAndGo: what each of many schedules became, runs and
// recorded skips together, is its calendar, and nothing is there twice.
func TestSchedule_WorkersComeAndGo(t *testing.T) {
	const schedules, length = 50, 2 * time.Minute
	play(t, func(t *testing.T, s *scene) {
		random := rand.New(rand.NewPCG(1, 2))
		name := func(i int) string { return fmt.Sprintf("schedule-%d", i) }
		begin := func() func() error {
			w := s.worker(durable.WorkerConfig{DrainTimeout: -1})
			job := durable.NewJob[letter]("tick")
			durable.Register(w, job, func(context.Context, *durable.Run[letter]) error {
				<-time.After(5 * time.Millisecond)
				return nil
			})
			for i := range schedules {
				overlap := []store.OverlapPolicy{durable.OverlapSkip, durable.OverlapWait, durable.OverlapAllow}[i%3]
				durable.AddSchedule(w, name(i), job, letter{}, durable.Every(time.Second), durable.Overlap(overlap))
			}
			return s.begin(w)
		}
		var stops []func() error
		for range 8 {
			stops = append(stops, begin())
		}
		for began := time.Now(); time.Since(began) < length; {
			s.pass(time.Duration(random.IntN(3000)) * time.Millisecond)
			victim := random.IntN(len(stops))
			require.NoError(t, stops[victim]())
			stops[victim] = begin()
			edited, err := s.store.ListSchedules(t.Context(), name(0))
			require.NoError(t, err)
			edit := edited[0].Schedule()
			edit.Rule = durable.Every(time.Duration(1+random.IntN(3)) * time.Second)
			require.NoError(t, s.store.SaveSchedule(t.Context(), edit, "ann"))
			require.NoError(t, s.store.ChangeSchedule(t.Context(), name(1), store.DeleteSchedule, "ann"))
		}
		for _, stop := range stops {
			require.NoError(t, stop())
		}
		for i := 2; i < schedules; i++ {
			past, err := s.store.ScheduleHistory(t.Context(), name(i), 1000)
			require.NoError(t, err)
			seen := map[int64]int{}
			for _, line := range past {
				switch line.Kind {
				case store.HistoryRun:
					at, err := time.Parse(time.RFC3339, *line.Occurrence)
					require.NoError(t, err)
					seen[at.Unix()]++
				case store.HistorySkip:
					for at := line.First.Unix(); at <= line.At.Unix(); at++ {
						seen[at]++
					}
				}
			}
			first, last := int64(math.MaxInt64), int64(0)
			for at, n := range seen {
				require.Equal(t, 1, n, "%s at %d", name(i), at)
				first, last = min(first, at), max(last, at)
			}
			require.Len(t, seen, int(last-first)+1, "an occurrence of %s is missing", name(i))
			require.InDelta(t, length.Seconds(), len(seen), 5)
		}
	})
}

func TestSchedule_MaxUnfinishedCapsOverAllHosts(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("timer")
		var executing, most, fired atomic.Int32
		var stops []func() error
		for range 8 {
			w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 3})
			durable.Register(w, job, func(context.Context, *durable.Run[letter]) error {
				defer executing.Add(-1)
				if n := executing.Add(1); n > most.Load() {
					most.Store(n)
				}
				fired.Add(1)
				<-time.After(9 * time.Second)
				return nil
			})
			durable.AddSchedule(w, "timer", job, letter{}, durable.Every(2*time.Second), durable.MaxUnfinished(3))
			stops = append(stops, s.begin(w))
		}
		s.pass(10 * time.Minute)
		require.EqualValues(t, 3, most.Load(), "the cap is reached and never passed")
		require.Greater(t, fired.Load(), int32(150), "and used: 3 of every 5 ticks")
		for _, stop := range stops {
			require.NoError(t, stop())
		}
	})
}
