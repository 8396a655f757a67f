package postgres

import (
	"slices"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// addEnqueue adds the statement that stores a part of the runs of a call. With
// fresh it may fail because one of them is stored.
func addEnqueue(b *batch, part []store.NewRun, set laneSet, fresh bool, existing map[store.RunID]struct{}) {
	switch {
	case !alike(part):
		b.add(queries.EnqueueRuns, append(columnsOf(part, set).args(), traces(part))...).Query(scanInto(existing))
	case fresh:
		b.add(queries.EnqueueNew, alikeArgs(part, set)...)
	default:
		b.add(queries.EnqueueAlike, alikeArgs(part, set)...).Query(scanInto(existing))
	}
}

// alike tells whether the runs differ in nothing but their ids and args.
func alike(runs []store.NewRun) bool {
	first := &runs[0]
	for i := range runs {
		if run := &runs[i]; run.Trace != first.Trace || !sameLane(first, run) || !run.At.Equal(first.At) || run.Delay() != first.Delay() ||
			!run.ExpiresAt.Equal(first.ExpiresAt) || run.Timeout != first.Timeout || run.MaxAttempts != first.MaxAttempts ||
			run.OnCrash != first.OnCrash || !slices.Equal(run.Tags, first.Tags) {
			return false
		}
	}
	return true
}

func sameLane(a, b *store.NewRun) bool {
	return a.Job == b.Job && a.Queue == b.Queue && a.Priority == b.Priority
}

// alikeArgs are in the order of EnqueueAlikeParams.
func alikeArgs(runs []store.NewRun, set laneSet) []any {
	first := &runs[0]
	l := laneOf(first)
	ids, bodies := make(uuidArray, len(runs)), make([]string, len(runs))
	for i := range runs {
		ids[i], bodies[i] = runs[i].ID, string(runs[i].Args)
	}
	return []any{set[l], l.queue, l.job, l.priority, timeOrNull(first.At), micro(first.Delay()), timeOrNull(first.ExpiresAt), micro(first.Timeout),
		small(first.MaxAttempts), int16(first.OnCrash), textArray(first.Tags), ids, bodies, textOrNil(first.Trace)}
}
