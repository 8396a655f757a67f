package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// TestTogether calls every method of a store many times concurrently, each on
// names that the store has not seen. TestStore does that too; this is for
// stores that have as few connections as they can be given: a call that needs
// a second connection while it holds one never returns there.
func TestTogether(t *testing.T, backend Backend) {
	run(t, backend, map[string]map[string]func(*testing.T, *fixture){"together": togetherTests()})
}

func togetherTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){"every method returns beside all others": everyMethodReturns}
}

// togetherCalls is how many calls of each method are under way concurrently:
// more than a store has connections.
const togetherCalls = 12

// call is one call of a method, with names that belong to it alone.
type call struct {
	*fixture
	ctx  context.Context
	name string
}

func everyMethodReturns(t *testing.T, f *fixture) {
	calls := methodCalls()
	methods := reflect.TypeFor[store.Store]()
	for i := range methods.NumMethod() {
		if name := methods.Method(i).Name; calls[name] == nil {
			t.Errorf("%s is not called: add it to methodCalls", name)
		}
	}
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	var running sync.WaitGroup
	for method, do := range calls {
		for i := range togetherCalls {
			running.Go(func() {
				c := &call{fixture: f, ctx: ctx, name: fmt.Sprintf("%s-%d", method, i)}
				if err := do(c); err != nil && !sentinel(err) {
					t.Errorf("%s: %v", method, err)
				}
			})
		}
	}
	running.Wait()
}

// sentinel reports whether the store has answered, if not as the caller would wish.
func sentinel(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) || errors.Is(err, lease.ErrLost)
}

// newRun makes a run in a lane of its own.
func (c *call) newRun() store.NewRun {
	return newRun(func(r *store.NewRun) { r.Queue, r.Job = c.name, "job-"+c.name })
}

func (c *call) newKeyed() store.NewRun {
	run := c.newRun()
	run.Key = store.Key{Text: c.name}
	return run
}

// newSchedule makes a schedule whose runs have a lane of their own.
func (c *call) newSchedule() store.Schedule {
	s := own(c.name)
	s.Queue, s.Job = c.name, "job-"+c.name
	return s
}

// holder enqueues a run and claims it.
func (c *call) holder() (store.Holder, store.WorkerID, error) {
	run, worker := c.newRun(), newWorker(c.name)
	if _, err := c.store.Enqueue(c.ctx, run); err != nil {
		return store.Holder{}, worker, err
	}
	request, err := c.request(worker)
	if err == nil {
		_, err = c.store.Claim(c.ctx, request)
	}
	return store.Holder{Run: run.ID, Claim: request.Claim}, worker, err
}

func (c *call) request(worker store.WorkerID) (store.ClaimRequest, error) {
	heads, err := c.store.Heads(c.ctx, store.Serves{Queues: []string{c.name}, Jobs: []string{"job-" + c.name}})
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: worker, Duration: time.Minute, Limit: 1}
	for _, head := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: 1})
	}
	return request, err
}

// methodCalls are the methods of a store, by name.
func methodCalls() map[string]func(*call) error {
	calls := claimCalls()
	for _, more := range []map[string]func(*call) error{loopCalls(), stepCalls(), batchCalls(), operatorCalls(), scheduleCalls(), limitCalls(), presenceCalls()} {
		maps.Copy(calls, more)
	}
	return calls
}

func claimCalls() map[string]func(*call) error {
	return map[string]func(*call) error{
		"Enqueue": func(c *call) error {
			_, err := c.store.Enqueue(c.ctx, c.newRun(), c.newKeyed())
			return err
		},
		"EnqueueUnder": func(c *call) error {
			holder, _, err := c.holder()
			if err == nil {
				run := c.newKeyed()
				run.Queue += "-under"
				_, err = c.store.EnqueueUnder(c.ctx, holder, run)
			}
			return err
		},
		"Heads": func(c *call) error { _, err := c.request(newWorker(c.name)); return err },
		"Claim": func(c *call) error { _, _, err := c.holder(); return err },
		"HandBack": func(c *call) error {
			request, err := c.request(newWorker(c.name))
			if err == nil {
				_, err = c.store.HandBack(c.ctx, request)
			}
			return err
		},
		"StillHeld": func(c *call) error {
			holder, _, err := c.holder()
			if err == nil {
				_, err = c.store.StillHeld(c.ctx, []store.Holder{holder})
			}
			return err
		},
		"Settle": func(c *call) error {
			holder, worker, err := c.holder()
			if err == nil {
				_, err = c.store.Settle(c.ctx, []store.Settlement{one(holder.Claim, worker, holder.Run, success())})
			}
			return err
		},
		"Renew": func(c *call) error {
			holder, _, err := c.holder()
			if err == nil {
				_, err = c.store.Renew(c.ctx, []lease.ClaimID{holder.Claim}, time.Minute)
			}
			return err
		},
		"Reclaim": func(c *call) error {
			_, err := c.store.Reclaim(c.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
			return err
		},
		"Report": func(c *call) error {
			holder, _, err := c.holder()
			if err == nil {
				err = c.store.Report(c.ctx, holder, store.Report{Checkpoint: []byte(`1`)})
			}
			return err
		},
	}
}

// stepCalls are of what handlers record, and of what runs are sent.
func stepCalls() map[string]func(*call) error {
	held := func(do func(*call, store.Holder) error) func(*call) error {
		return func(c *call) error {
			holder, _, err := c.holder()
			if err == nil {
				err = do(c, holder)
			}
			return err
		}
	}
	return map[string]func(*call) error{
		"Links": func(c *call) error {
			_, err := c.store.Links(c.ctx, store.NewRunID())
			return err
		},
		"Deaths": func(c *call) error {
			_, err := c.store.Deaths(c.ctx, []string{"job-" + c.name}, 10)
			return err
		},
		"EnqueueForDeaths": func(c *call) error {
			_, err := c.store.EnqueueForDeaths(c.ctx, []store.DeathRun{{Death: 1 << 40, Run: c.newRun()}})
			return err
		},
		"Waiters":  func(c *call) error { _, err := c.store.Waiters(c.ctx, store.NewRunID(), store.RunID{}); return err },
		"Holds":    func(c *call) error { _, err := c.store.Holds(c.ctx); return err },
		"Outcomes": func(c *call) error { _, err := c.store.Outcomes(c.ctx, []store.RunID{store.NewRunID()}); return err },
		"Steps":    func(c *call) error { _, err := store.StepsOf(c.ctx, c.store, store.NewRunID()); return err },
		"RecordSteps": held(func(c *call, holder store.Holder) error {
			_, err := c.store.RecordSteps(c.ctx, []store.NewStep{newStep(holder, "a", `1`)})
			return err
		}),
		"Call": held(func(c *call, holder store.Holder) error {
			child := c.newRun()
			child.Queue += "-called"
			return c.store.Call(c.ctx, []store.Call{{Holder: holder, Name: "a", Children: []store.NewRun{child}}})
		}),
		"BeginWait": held(func(c *call, holder store.Holder) error {
			_, err := c.store.BeginWait(c.ctx, store.NewWait{Holder: holder, Name: "a", Kind: store.StepInput})
			return err
		}),
		"GiveUp": held(func(c *call, holder store.Holder) error {
			_, err := c.store.GiveUp(c.ctx, holder, "a")
			return err
		}),
		"Send": held(func(c *call, holder store.Holder) error {
			_, err := c.store.Send(c.ctx, approval(holder.Run, `1`))
			return err
		}),
		"ForgetSteps": func(c *call) error {
			_, err := c.store.ForgetSteps(c.ctx, store.NewRunID(), []string{"a"}, c.name)
			return err
		},
		"Release": func(c *call) error {
			_, err := c.store.Release(c.ctx, store.ReleaseRequest{Limit: 10, Look: []store.Look{{Run: store.NewRunID(), Name: "a"}}})
			return err
		},
	}
}

// batchCalls are of batches.
func batchCalls() map[string]func(*call) error {
	return map[string]func(*call) error{
		"Batch":   func(c *call) error { _, err := c.store.Batch(c.ctx, store.NewRunID()); return err },
		"Batches": func(c *call) error { _, err := c.store.Batches(c.ctx, store.BatchFilter{}); return err },
		"Members": func(c *call) error {
			_, err := c.store.Members(c.ctx, store.NewRunID(), store.RunID{}, 10)
			return err
		},
		"CloseBatch":  func(c *call) error { return c.store.CloseBatch(c.ctx, store.BatchClose{ID: store.NewRunID()}) },
		"CancelBatch": func(c *call) error { return c.store.CancelBatch(c.ctx, store.BatchCancel{ID: store.NewRunID()}) },
		"AwaitBatch": func(c *call) error {
			holder, _, err := c.holder()
			if err == nil {
				_, err = c.store.AwaitBatch(c.ctx, holder, store.NewRunID(), "a")
			}
			return err
		},
	}
}

func loopCalls() map[string]func(*call) error {
	return map[string]func(*call) error{
		"Checkpoint": func(c *call) error { _, err := c.store.Checkpoint(c.ctx, store.NewRunID()); return err },
		"Touch":      func(c *call) error { return c.store.Touch(c.ctx, newWorker(c.name)) },
		"CancelRequests": func(c *call) error {
			_, err := c.store.CancelRequests(c.ctx, []lease.ClaimID{lease.NewClaimID()})
			return err
		},
		"Declare": func(c *call) error {
			one := c.newSchedule()
			one.Hash = c.name
			return c.store.Declare(c.ctx, store.Declaration{Worker: newWorker(c.name), Schedules: []store.Schedule{one}})
		},
		"Materialize": func(c *call) error {
			_, err := c.store.Materialize(c.ctx, 10, func(now time.Time, _ store.Schedule) store.Decision {
				run := c.newRun()
				return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: now.String(), Run: run}}}
			})
			return err
		},
		"ReevaluateNow": func(c *call) error { return c.store.ReevaluateNow(c.ctx, c.name) },
		"Sweep": func(c *call) error {
			_, err := c.store.Sweep(c.ctx, store.SweepRequest{By: newWorker(c.name).Instance, Retention: time.Hour, Limit: 100})
			return err
		},
		"Publish": func(c *call) error { return c.store.Publish(c.ctx, store.Signal{Kind: store.RunsDue}) },
		"Listen": func(c *call) error {
			ctx, cancel := context.WithCancel(c.ctx)
			defer cancel()
			return c.store.Listen(ctx, func(store.Signal) { cancel() })
		},
		"ListenFor": func(c *call) error {
			ctx, cancel := context.WithCancel(c.ctx)
			defer cancel()
			return c.store.ListenFor(ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"job"}}, func(store.Signal) { cancel() })
		},
	}
}

func operatorCalls() map[string]func(*call) error {
	return map[string]func(*call) error{
		"Run":    func(c *call) error { _, err := c.store.Run(c.ctx, store.NewRunID()); return err },
		"Runs":   func(c *call) error { _, err := c.store.Runs(c.ctx, store.Filter{Limit: 10}); return err },
		"Counts": func(c *call) error { _, err := c.store.Counts(c.ctx); return err },
		"CountMatching": func(c *call) error {
			_, err := c.store.CountMatching(c.ctx, store.Filter{Queues: []string{c.name}})
			return err
		},
		"Queues": func(c *call) error { _, err := c.store.Queues(c.ctx); return err },
		"Jobs":   func(c *call) error { _, err := c.store.Jobs(c.ctx); return err },
		"Changes": func(c *call) error {
			_, err := c.store.Changes(c.ctx, store.ChangeFilter{Limit: 10})
			return err
		},
		"Operate": func(c *call) error {
			run := c.newKeyed()
			_, err := c.store.Enqueue(c.ctx, run)
			for _, action := range []store.RunAction{store.CancelRuns, store.RetryRuns, store.DeleteRuns} {
				if err == nil {
					_, err = c.store.Operate(c.ctx, store.RunCommand{Action: action, Runs: []store.RunID{run.ID}, By: "ann"})
				}
			}
			return err
		},
		"Rerun": func(c *call) error {
			_, err := c.store.Rerun(c.ctx, store.NewRunID(), c.newKeyed(), "ann")
			return err
		},
		"Reveal": func(c *call) error {
			run := c.newKeyed()
			receipts, err := c.store.Enqueue(c.ctx, run)
			if err == nil {
				err = c.store.Reveal(c.ctx, receipts[0].ID, "", "ann")
			}
			return err
		},
		"EndSession": func(c *call) error { return c.store.EndSession(c.ctx, c.name, "ann") },
		"SetQueue":   func(c *call) error { return c.store.SetQueue(c.ctx, c.name, store.PauseQueue, "ann") },
	}
}

func scheduleCalls() map[string]func(*call) error {
	return map[string]func(*call) error{
		"ListSchedules":   func(c *call) error { _, err := c.store.ListSchedules(c.ctx); return err },
		"ScheduleHistory": func(c *call) error { _, err := c.store.ScheduleHistory(c.ctx, c.name, 10); return err },
		"SaveSchedule":    func(c *call) error { return c.store.SaveSchedule(c.ctx, c.newSchedule(), "ann") },
		"PutSchedule":     func(c *call) error { return c.store.PutSchedule(c.ctx, c.newSchedule()) },
		"ChangeSchedule": func(c *call) error {
			err := c.store.SaveSchedule(c.ctx, c.newSchedule(), "ann")
			if err == nil {
				err = c.store.ChangeSchedule(c.ctx, c.name, store.PauseSchedule, "ann")
			}
			return err
		},
		"RunSchedule": func(c *call) error {
			err := c.store.SaveSchedule(c.ctx, c.newSchedule(), "ann")
			if err == nil {
				err = c.store.RunSchedule(c.ctx, c.name, store.NewRunID(), store.OverlapAllow, "ann")
			}
			return err
		},
	}
}

func limitCalls() map[string]func(*call) error {
	set := func(c *call) error {
		change := store.LimitChange{Command: store.SetLimit, Limit: semaphore(c.name, 2), By: "ann"}
		return c.store.ChangeLimit(c.ctx, change)
	}
	return map[string]func(*call) error{
		"ListLimits":  func(c *call) error { _, err := c.store.ListLimits(c.ctx, store.LimitFilter{}); return err },
		"ChangeLimit": set,
		"Gate": func(c *call) error {
			err := set(c)
			if err == nil {
				_, err = c.store.Gate(c.ctx, c.name, "key")
			}
			return err
		},
		"LimitKeys": func(c *call) error {
			err := set(c)
			if err == nil {
				_, err = c.store.LimitKeys(c.ctx, c.name, 20)
			}
			return err
		},
		"CheckLimits": func(c *call) error { _, err := c.store.CheckLimits(c.ctx); return err },
		"UseLimit": func(c *call) error {
			err := set(c)
			for _, usage := range []store.LimitUsage{store.UsageAcquire, store.UsageGive} {
				request := store.LimitRequest{Usage: usage, Limit: c.name, Key: "key", Owner: "ann"}
				if usage == store.UsageAcquire {
					request.For = time.Minute
				}
				if err == nil {
					_, err = c.store.UseLimit(c.ctx, request)
				}
			}
			return err
		},
	}
}
