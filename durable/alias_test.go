package durable_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

func TestAlias_RunsOfOldNamesAreExecuted(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		before, older := durable.NewJob[letter]("send-mail", durable.OnQueue("default")), durable.NewJob[letter]("mail.v0")
		now := durable.NewJob[letter]("mail", durable.Alias("send-mail"), durable.Alias("mail.v0"))
		var ids []durable.RunID
		for _, job := range []durable.Job[letter]{before, older, now} {
			ids = append(ids, s.enqueue(job.New(letter{To: job.Name()})))
		}
		foreign := s.enqueue(durable.NewJob[letter]("foreign").New(letter{}))
		w := s.worker(durable.WorkerConfig{})
		var mu sync.Mutex
		var names []string
		durable.Register(w, now, func(_ context.Context, run *durable.Run[letter]) error {
			require.Equal(t, run.Args.To, run.Job, "a run keeps the name under which it was stored")
			mu.Lock()
			defer mu.Unlock()
			names = append(names, run.Job)
			return nil
		})
		stop := s.begin(w)
		ids = append(ids, s.enqueue(before.New(letter{To: "send-mail"}))) // of a program that is not yet deployed again
		s.pass(time.Minute)
		for _, id := range ids {
			require.Equal(t, durable.Succeeded, s.record(id).State)
		}
		slices.Sort(names)
		require.Equal(t, []string{"mail", "mail.v0", "send-mail", "send-mail"}, names)
		require.Equal(t, durable.Pending, s.record(foreign).State)
		jobs, err := s.store.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 1, "an old name is not declared")
		require.NoError(t, stop())
	})
}

func TestAlias_ClashesAreReported(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		ok := func(context.Context, *durable.Run[letter]) error { return nil }
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, durable.NewJob[letter]("a", durable.Alias("b")), ok)
		durable.Register(w, durable.NewJob[letter]("b"), ok)
		durable.Register(w, durable.NewJob[letter]("c", durable.Alias("old")), ok)
		durable.Register(w, durable.NewJob[letter]("d", durable.Alias("old")), ok)
		durable.Register(w, durable.NewJob[letter]("e", durable.Alias("e", "not a name", "x", "x")), ok)
		err := w.Run(t.Context())
		require.ErrorIs(t, err, durable.ErrInvalid)
		for _, part := range []string{`job "a": alias "b" is the name of another registered job`, `job "d": alias "old" is also an alias of job "c"`,
			`alias "e" is the job's own name`, `alias name "not a name"`, `alias "x" is given twice`} {
			require.ErrorContains(t, err, part)
		}
		_, err = durable.NewJob[letter]("ok").Enqueue(t.Context(), s.client, letter{}, durable.Alias("older"))
		require.ErrorContains(t, err, "Alias is for a job")
	})
}
