package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// dearHeads is a store in which a look below the marks takes long, as in a
// database in which an old snapshot is held. It shows nothing below a mark.
type dearHeads struct {
	durable.Store
	takes atomic.Int64 // nanoseconds
	low   atomic.Int32
}

func (s *dearHeads) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	heads, err := s.Store.Heads(ctx, serves)
	if len(serves.From) == 0 {
		s.low.Add(1)
		select {
		case <-time.After(time.Duration(s.takes.Load())):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for i := range heads {
		if h := &heads[i]; h.Waiting && h.DueAt.Before(serves.From[h.Lane]) {
			h.Waiting = false
		}
	}
	return heads, err
}

func TestHeads_AreSeldomReadBelowTheMarksWhereThatIsExpensive(t *testing.T) {
	for _, takes := range []time.Duration{1800 * time.Millisecond, time.Minute} { // the second: never answered
		t.Run(takes.String(), func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				dear := &dearHeads{Store: s.store.Store}
				s.store.Store = dear
				job := durable.NewJob[letter]("mail")
				w := s.worker(durable.WorkerConfig{NoListen: true})
				durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
				stop := s.begin(w)
				s.enqueue(job.New(letter{}))
				s.pass(10 * time.Second)
				dear.takes.Store(int64(takes))
				dear.low.Store(0)
				var last durable.RunID
				for range 600 {
					last = s.enqueue(job.New(letter{}))
					s.pass(500 * time.Millisecond)
				}
				require.LessOrEqual(t, dear.low.Load(), int32(12), "in five minutes")
				s.pass(15 * time.Second) // a read that is not answered, and a poll with its jitter
				require.Equal(t, durable.Succeeded, s.record(last).State, "what comes above the marks does not wait")
				old := s.enqueue(job.New(letter{}, durable.At(time.Now().Add(-time.Hour))))
				if takes < time.Minute {
					s.pass(40 * time.Second)
					require.Equal(t, durable.Succeeded, s.record(old).State, "what comes below is found")
				}
				dear.takes.Store(0)
				s.pass(time.Minute)
				require.Equal(t, durable.Succeeded, s.record(old).State)
				dear.low.Store(0)
				s.pass(time.Minute)
				require.Greater(t, dear.low.Load(), int32(9), "where it is cheap every look goes below")
				require.NoError(t, stop())
			})
		})
	}
}
