package durable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// deathJob is the job of which a run is stored for each death of a run of a registered job; nil:
// there is none. It does not change once Run has begun.
func (w *Worker) deathJob(name string) *Job[Death] {
	job := w.jobs[name].onDead
	if general := &w.config.OnDead; job == nil && general.name != "" {
		job = general
	}
	if job == nil || job.name == name {
		return nil
	}
	return job
}

// deathFaults reports what is wrong with the jobs for deaths. w.mu is held.
func (w *Worker) deathFaults() (faults []error) {
	if w.config.OnDead.fault != nil {
		faults = append(faults, fmt.Errorf("OnDead: %w", w.config.OnDead.fault))
	}
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		if own := w.jobs[name].onDead; own != nil && (own.fault != nil || own.name == "" || own.name == name) {
			faults = append(faults, fmt.Errorf("job %q: OnDead: want another job, created with durable.NewJob: %w", name, errors.Join(own.fault)))
			continue
		}
		path := []string{name}
		for next := w.deathJob(name); next != nil && len(path) <= len(w.jobs); next = w.deathJob(next.name) {
			path = append(path, next.name)
			if next.name == name {
				faults = append(faults, fmt.Errorf("job %q: OnDead: the jobs are each for the deaths of another: %v", name, path))
				break
			}
		}
	}
	return faults
}

// infoOf describes a registered job as this worker declares it.
func (w *Worker) infoOf(r *registration) JobInfo {
	info := r.info
	info.Code.OnDead = ""
	if job := w.deathJob(info.Name); job != nil {
		info.Code.OnDead = job.name
	}
	return info
}

// deathLoop stores runs for deaths of runs of this worker's jobs until ctx ends: when an outcome of
// this worker is a death, and as often as expired leases are looked for.
func (w *Worker) deathLoop(ctx context.Context) {
	var jobs []string
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		if w.deathJob(name) != nil {
			jobs = append(jobs, name)
		}
	}
	if len(jobs) == 0 {
		return
	}
	every := min(w.config.PollInterval, w.config.Terms.Duration/4)
	for pause := time.Duration(0); w.sleepUnless(ctx, pause, w.deaths); {
		if pause = w.jittered(every); w.unreachable() {
			continue
		}
		full, err := w.followDeaths(ctx, jobs)
		switch {
		case err != nil:
			w.warn(ctx, "death.failed", "storing runs for dead ones failed, will be retried", err)
		case full:
			pause = 0
		}
	}
}

// followDeaths stores runs for deaths, and reports whether there may be more of them.
func (w *Worker) followDeaths(ctx context.Context, jobs []string) (more bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	deaths, err := w.store.Deaths(bounded, jobs, store.MaxDeaths)
	if err != nil || len(deaths) == 0 {
		w.observeCall(err)
		return false, err
	}
	var runs []store.DeathRun
	for i := range deaths {
		run, err := w.deathRun(&deaths[i])
		if err != nil {
			w.warn(ctx, "death.set_aside", "a run cannot be stored for a dead one, will be retried", fmt.Errorf("run %s: %w", deaths[i].Run, err))
			continue
		}
		runs = append(runs, store.DeathRun{Death: deaths[i].ID, Run: run})
	}
	if len(runs) == 0 {
		return false, nil
	}
	stored, err := w.store.EnqueueForDeaths(bounded, runs)
	w.observeCall(err)
	if stored > 0 {
		w.config.Logger.Info("runs stored for dead ones", "event", "death.followed", "runs", stored)
		w.wake()
	}
	return err == nil && stored > 0 && len(deaths) == store.MaxDeaths, err
}

// deathRun makes the run for a death. Its ID follows from the dead run and the death.
func (w *Worker) deathRun(death *store.DeathRecord) (NewRun, error) {
	r, job := w.jobs[death.Job], w.deathJob(death.Job)
	args, err := unseal(r.codec, CodecInfo{Job: death.RanAs, Part: ArgsPart, Run: death.Run}, death.Args)
	if err != nil && death.Age < DefaultArgsWithin {
		return NewRun{}, err // the key may come with the next deploy
	}
	of := Death{Run: death.Run, Job: death.RanAs, DiedAt: death.At, Reason: death.Reason}
	if err == nil {
		of.Args = args
	}
	id := withID(IDFrom(death.Run, "\x00death", int(death.ID))) // no step has such a name
	run := job.New(of, id)
	if fault := store.CheckRuns([]NewRun{run}); fault != nil && of.Args != nil {
		of.Args = nil
		run = job.New(of, id)
	}
	return run, store.CheckRuns([]NewRun{run})
}
