package durable_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// endOfTime is the last instant that a run may be due at: further ahead than a duration can say.
var endOfTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// callCounts counts the calls of a store. A worker that calls without a pause keeps virtual
// time from passing: from callsMost on, each call takes a second.
type callCounts struct {
	mu     sync.Mutex
	counts map[string]int
}

const callsMost = 10_000

func (c *callCounts) hooks() observe.Hooks {
	return observe.Hooks{StoreCalled: func(call observe.StoreCall) {
		c.mu.Lock()
		c.counts[call.Verb]++
		many := c.counts[call.Verb] > callsMost
		c.mu.Unlock()
		if many {
			<-time.After(time.Second)
		}
	}}
}

// reset returns the counts and begins again.
func (c *callCounts) reset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := c.counts
	c.counts = map[string]int{}
	return counted
}

// What is due at the end of time, or in the longest time that there is, costs a worker no
// more calls than what is not there.
func TestWhatIsDueAtTheEndOfTimeCostsNothing(t *testing.T) {
	type door struct {
		name  string
		limit bool
		do    func(t *testing.T, s *scene, w *durable.Worker, job durable.Job[letter])
	}
	enqueued := func(options ...durable.Option) func(*testing.T, *scene, *durable.Worker, durable.Job[letter]) {
		return func(_ *testing.T, s *scene, _ *durable.Worker, job durable.Job[letter]) {
			s.enqueue(job.New(letter{}, options...))
		}
	}
	ends := func(text string) func(*testing.T, *scene, *durable.Worker, durable.Job[letter]) {
		return func(_ *testing.T, s *scene, _ *durable.Worker, job durable.Job[letter]) {
			s.enqueue(job.New(letter{To: text}))
		}
	}
	longest := time.Duration(math.MaxInt64)
	for _, one := range []door{
		{name: "At", do: enqueued(durable.At(endOfTime))},
		{name: "After", do: enqueued(durable.After(store.MaxDelay))},
		{name: "Debounce", do: enqueued(durable.Debounce("k", store.MaxDelay, store.MaxDelay))},
		{name: "UniqueFor", do: enqueued(durable.UniqueFor("k", store.MaxDelay), durable.At(endOfTime))},
		{name: "Timeout", do: enqueued(durable.Timeout(store.MaxDelay), durable.At(endOfTime))},
		{name: "ExpiresAt", do: enqueued(durable.ExpiresAt(endOfTime))},
		{name: "Snooze", do: ends("snooze")},
		{name: "RetryAfter", do: ends("retry")},
		{name: "the retry policy", do: ends("policy")},
		{name: "a limited run", limit: true, do: enqueued(durable.At(endOfTime))},
		{name: "a penalized limit", limit: true, do: func(t *testing.T, s *scene, _ *durable.Worker, job durable.Job[letter]) {
			_, err := s.store.UseLimit(t.Context(), store.LimitRequest{Usage: store.UsagePenalize, Limit: "narrow", For: store.MaxDelay})
			require.NoError(t, err)
			s.enqueue(job.New(letter{}))
		}},
		{name: "a wake-up", do: func(t *testing.T, s *scene, _ *durable.Worker, job durable.Job[letter]) {
			s.enqueue(job.New(letter{}, durable.At(endOfTime)))
			for _, due := range []store.Due{{Lane: 1, In: longest, Runs: 1}, {Lane: 1, In: longest}, {Lane: 1, In: longest, After: longest},
				{Lane: 1, After: longest}} {
				require.NoError(t, s.store.Publish(t.Context(), store.Signal{Kind: store.RunsDue, Due: due}))
			}
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				counts := &callCounts{counts: map[string]int{}}
				var options []durable.Option
				if one.limit {
					options = append(options, durable.Limited(durable.NewLimit("narrow", durable.TokenBucket(1, time.Second, 1))))
				}
				options = append(options, durable.Retry(durable.Backoff{Base: longest, Max: longest, Factor: math.MaxFloat64, Jitter: 1}))
				job := durable.NewJob[letter]("mail", options...)
				w := s.worker(durable.WorkerConfig{Hooks: counts.hooks()})
				durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
					switch run.Args.To {
					case "snooze":
						return durable.Snooze(longest)
					case "retry":
						return durable.RetryAfter(longest, errBoom)
					case "policy":
						return errBoom
					}
					return nil
				})
				stop := s.begin(w)
				s.pass(time.Minute)
				counts.reset()
				s.pass(time.Hour)
				idle := counts.reset()
				one.do(t, s, w, job)
				s.pass(time.Second)
				counts.reset()
				s.pass(time.Hour)
				busy := counts.reset()
				require.NoError(t, stop())
				for verb, n := range busy {
					require.LessOrEqual(t, n, idle[verb]+idle[verb]/5+5, "%s: %v, idle %v", verb, busy, idle)
				}
			})
		})
	}
}
