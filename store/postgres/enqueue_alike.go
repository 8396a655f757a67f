package postgres

import (
	"maps"
	"slices"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// alike reports whether the runs differ in nothing but their ids and args.
func alike(runs []store.NewRun) bool {
	first := &runs[0]
	for i := range runs {
		if run := &runs[i]; run.Trace != first.Trace || !sameLane(first, run) || !run.At.Equal(first.At) || run.Delay() != first.Delay() ||
			!run.ExpiresAt.Equal(first.ExpiresAt) || run.Timeout != first.Timeout || run.MaxAttempts != first.MaxAttempts ||
			run.OnCrash != first.OnCrash || !slices.Equal(run.Tags, first.Tags) || !maps.Equal(run.Metadata, first.Metadata) {
			return false
		}
	}
	return true
}

func sameLane(a, b *store.NewRun) bool {
	return a.Job == b.Job && a.Queue == b.Queue && a.Priority == b.Priority
}

// alikeRuns are the parameters of runs that are alike.
type alikeRuns struct {
	lane   []any // id, queue, job, priority
	shared []any // what the runs have in common, from at to trace
	ids    uuidArray
	args   []string
}

// alikeOf returns lane and shared in the order of EnqueueNewParams.
func alikeOf(runs []store.NewRun, set places) alikeRuns {
	first := &runs[0]
	l := laneOf(first)
	a := alikeRuns{ids: make(uuidArray, len(runs)), args: make([]string, len(runs))}
	for i := range runs {
		a.ids[i], a.args[i] = runs[i].ID, string(runs[i].Args)
	}
	a.lane = []any{set.lanes[l], l.queue, l.job, l.priority}
	a.shared = []any{timeOrNull(first.At), micro(first.Delay()), timeOrNull(first.ExpiresAt), micro(first.Timeout),
		small(first.MaxAttempts), int16(first.OnCrash), textArray(first.Tags), first.Metadata.Text(), rules.TextOrNil(first.Trace)}
	return a
}
