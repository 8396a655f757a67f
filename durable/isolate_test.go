package durable_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// crash claims what is due in a lane as a worker that then dies, and lets the
// lease run out.
func (s *scene) crash(lane store.LaneID, limit int, alone bool) {
	s.t.Helper()
	_, err := s.store.Store.Claim(s.t.Context(), store.ClaimRequest{
		Claim: lease.NewClaimID(), Worker: store.WorkerID{Name: "doomed", Instance: uuid.New()}, Duration: time.Second,
		Steps: []store.Step{{Lane: lane, Take: limit}}, Limit: limit, Alone: alone,
	})
	require.NoError(s.t, err)
	s.pass(2 * time.Second)
	_, err = s.store.Store.Reclaim(s.t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.NoError(s.t, err)
}

// lane returns the number of the one lane in use.
func (s *scene) lane(job string) store.LaneID {
	s.t.Helper()
	heads, err := s.store.Store.Heads(s.t.Context(), store.Serves{Queues: []string{"default"}, Jobs: []string{job}})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, heads)
	return max(heads[0].Lane, -heads[0].Lane)
}

func TestIsolation_SuspectsExecuteAlone(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		var suspects []durable.RunID
		for range 5 {
			suspects = append(suspects, s.enqueue(job.New(letter{To: "suspect"})))
		}
		for range 2 {
			s.crash(s.lane("mail"), 5, false)
		}
		for range 30 {
			s.enqueue(job.New(letter{To: "plain"}))
		}
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 10})
		var executing, most atomic.Int32
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			n := executing.Add(1)
			defer executing.Add(-1)
			most.Store(max(most.Load(), n))
			if run.Args.To == "suspect" {
				require.Equal(t, int32(1), n, "something else executes beside a suspect")
				require.Equal(t, 2, run.CrashCount)
			}
			err := sleeper(ctx, 500*time.Millisecond)
			if run.Args.To == "suspect" {
				require.Equal(t, int32(1), executing.Load(), "something else began beside a suspect")
			}
			return err
		})
		stop := s.begin(w)
		s.pass(2 * time.Minute)
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(35), counts[durable.Succeeded].N)
		require.Equal(t, int32(10), most.Load(), "the others share the slots")
		for _, id := range suspects {
			require.True(t, s.record(id).Isolated)
		}
		require.NoError(t, stop())
	})
}

func TestIsolation_BusyWorkerMakesRoom(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		suspect := s.enqueue(job.New(letter{To: "suspect"}))
		for range 2 {
			s.crash(s.lane("mail"), 1, false)
		}
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 4})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, time.Second) })
		for range 2000 {
			s.enqueue(job.New(letter{To: "plain"}))
		}
		stop := s.begin(w)
		s.pass(20 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(suspect).State, "a stream of other work does not starve a suspect")
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.Greater(t, counts[durable.Succeeded].N, int64(40), "and the stream goes on")
		require.NoError(t, stop())
	})
}

func TestIsolation_HungSuspectDoesNotBlockItsWorker(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		s.enqueue(job.New(letter{To: "suspect"}))
		for range 2 {
			s.crash(s.lane("mail"), 1, false)
		}
		w := s.worker(durable.WorkerConfig{})
		release := make(chan struct{})
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			if run.Args.To == "suspect" {
				<-release
			}
			return nil
		})
		stop := s.begin(w)
		s.pass(time.Second)
		plain := s.enqueue(job.New(letter{To: "plain"}))
		s.pass(10 * time.Second)
		require.Equal(t, durable.Pending, s.record(plain).State, "nothing starts beside a suspect")
		s.store.cutBefore("Renew", -1)
		s.pass(40 * time.Second)
		s.store.cutBefore("Renew", 0)
		s.pass(10 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(plain).State, "a lost suspect no longer holds its worker")
		close(release)
		s.pass(time.Second)
		require.NoError(t, stop())
	})
}

// A worker cannot know that a handler hangs. It names what keeps it, once.
func TestIsolation_WhatKeepsAWorkerIsNamedOnce(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		s.enqueue(job.New(letter{To: "suspect"}))
		s.enqueue(job.New(letter{To: "suspect"}))
		for range 2 {
			s.crash(s.lane("mail"), 2, false)
		}
		w := s.worker(durable.WorkerConfig{})
		release := make(chan struct{})
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			if run.Args.To == "hangs" {
				<-release
				return nil
			}
			return sleeper(ctx, 15*time.Second) // then other work goes first
		})
		stuck := s.enqueue(job.New(letter{To: "hangs"})) // comes between the two suspects
		stop := s.begin(w)
		s.pass(2 * time.Hour)
		succeeded := func() int64 {
			counts, err := s.store.Counts(t.Context())
			require.NoError(t, err)
			return counts[durable.Succeeded].N
		}
		require.EqualValues(t, 1, succeeded())
		require.Equal(t, 1, strings.Count(s.log.String(), "this worker cannot take it until"), "once, however long it goes on")
		require.Contains(t, s.log.String(), stuck.String()+" (mail, for ")
		close(release)
		s.pass(time.Minute)
		require.EqualValues(t, 3, succeeded())
		require.NotContains(t, s.log.String(), "isolated run still running")
		require.NoError(t, stop())
	})
}

func TestIsolation_ASuspectThatContinuesIsLogged(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		id := s.enqueue(job.New(letter{To: "suspect"}))
		for range 2 {
			s.crash(s.lane("mail"), 1, false)
		}
		w := s.worker(durable.WorkerConfig{})
		release := make(chan struct{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { <-release; return nil })
		stop := s.begin(w)
		s.pass(59 * time.Second)
		require.NotContains(t, s.log.String(), "isolated run still running")
		s.pass(10 * time.Minute)
		require.Equal(t, 1, strings.Count(s.log.String(), "isolated run still running; this worker executes nothing else"))
		require.Contains(t, s.log.String(), id.String())
		close(release)
		s.pass(time.Second)
		require.NoError(t, stop())
	})
}
