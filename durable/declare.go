package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/presence"
	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// AddSchedule makes a worker declare a schedule: a rule that enqueues a run of the job at
// each occurrence. It becomes a row of the store; any worker, not only those that declare it,
// materializes its occurrences, each exactly once or recorded as skipped. The options are
// those of a run, except At, After, ExpiresAt, LimitedBy and the unique keys, and those of a
// schedule: CatchUp, Overlap, MaxUnfinished, StartAt, EndAt, Blackout, Jitter, SpreadStart
// and Paused. Worker.Run reports what is wrong; once it has begun it is too late, as for
// Register.
func AddSchedule[A any](w *Worker, name string, job Job[A], args A, rule Rule, options ...Option) {
	run, p := job.make(onlySchedule, args, options)
	s, err := scheduleOf(name, rule, run, p)
	hashed := s
	if p.codec != nil && err == nil { // encoded twice, args may differ
		hashed.Args, err = plainArgs(args)
	}
	s.Hash = hashOf(&hashed)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuseLate(fmt.Sprintf("schedule %q: added", storable.Clip(name, 150))) {
		return
	}
	for _, other := range w.schedules {
		if other.Name == name {
			err = errors.Join(err, errors.New("declared twice"))
		}
	}
	if err != nil {
		w.faults = append(w.faults, fmt.Errorf("schedule %q: %w", storable.Clip(name, 150), err))
		return
	}
	w.schedules = append(w.schedules, s)
}

// hashOf identifies a declaration. It leaves out whether the schedule begins paused.
func hashOf(s *store.Schedule) string {
	text, _ := json.Marshal([]any{s.Rule, s.Plan, s.Job, s.Queue, s.Priority, string(s.Args), s.MaxAttempts, s.Timeout, s.OnCrash, s.Tags})
	if len(s.Limits) > 0 { // so that the hashes of others stay what they were
		limits, _ := json.Marshal(s.Limits)
		text = append(text, limits...)
	}
	if len(s.Metadata) > 0 { // likewise
		metadata, _ := json.Marshal(s.Metadata)
		text = append(text, metadata...)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// declareAgain is how soon a failed declaration is repeated. A schedule that has not been
// declared for long counts as an orphan.
const declareAgain = time.Minute

// declareLoop declares to the store hourly what this worker offers, somewhat
// earlier or later, so that workers that were started together do not all come
// at the same moment. Run has sent the first declaration.
func (w *Worker) declareLoop(ctx context.Context) {
	pause := w.declarePause()
	for w.sleepUnless(ctx, pause, w.replaced) {
		if err := w.declare(ctx); err != nil {
			w.warn(ctx, "worker.declaration_failed", "declaration failed, will be retried", err)
			pause = w.spread(declareAgain)
			continue
		}
		pause = w.declarePause()
	}
}

// declarePause returns the time until the next declaration. It is short if part of this one
// was refused.
func (w *Worker) declarePause() time.Duration {
	if again := w.health.declareAgain.Load(); again > 0 {
		return w.spread(time.Duration(again))
	}
	return w.spread(store.DeclareEvery)
}

// spread is a pause up to a tenth longer or shorter, whatever the poll's jitter.
func (w *Worker) spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*w.config.Random()))
}

// declare sends the worker's declarations to the store. If the store refuses some of them, it
// still accepts the others.
func (w *Worker) declare(ctx context.Context) error {
	declaration := store.Declaration{Worker: w.id, Schedules: w.schedules, DisableOrphans: time.Duration(w.config.Orphans)}
	for _, r := range w.jobs {
		declaration.Jobs = append(declaration.Jobs, w.infoOf(&r))
	}
	for _, limit := range w.limits {
		declaration.Limits = append(declaration.Limits, limit)
	}
	ctx, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	sent := w.config.Elapsed()
	err := w.store.Declare(ctx, declaration)
	var partly *store.SetAsideError
	again := time.Duration(0)
	if errors.As(err, &partly) {
		w.passedOver("declare", partly.SetAside)
		again, err = partly.Again(), nil
	} else if err == nil {
		w.asides.accepted("declare")
	}
	w.health.declareAgain.Store(int64(again))
	w.observeWrite(sent, 1, err)
	return err
}

// newReporter returns the Reporter of this worker.
func (w *Worker) newReporter() *presence.Reporter {
	serves, version := presence.Named(w.claimer.serves.Queues, w.claimer.serves.Jobs), presence.Version(w.config.Version)
	return presence.New(w.store, presence.Config{
		Worker: w.id, Tally: w.config.Tally, Timeout: w.callTimeout(), Random: w.config.Random,
		State: func() store.Presence {
			p := serves
			p.Version, p.Capacity, p.Draining = version, w.config.MaxConcurrentRuns, w.phase.Load() >= phaseDraining
			p.Executing, p.Stuck, p.BeatLag = w.inFlight.len(), int(w.stuck.Load()), store.Duration(w.keeper.Lag())
			p.Retention, p.RetentionDead = store.Duration(w.config.Retention), store.Duration(w.config.RetentionDead)
			p.Caps, p.Longest = capsOf(w.claimer.queues), w.inFlight.longest(w.config.Elapsed())
			p.ShortOfCPU = store.Duration(w.executors.short())
			if p.Resting = store.Duration(w.resting()); w.config.NoListen {
				p.Poll = store.Duration(w.config.PollInterval)
			}
			return p
		},
		Failed: func(ctx context.Context, err error) {
			w.warn(ctx, "worker.report_failed", "the store does not accept the worker's report, will be retried", err)
		},
		Reachable: func() bool {
			w.health.mu.Lock()
			defer w.health.mu.Unlock()
			return !w.health.silent
		},
	})
}
