package enqueue

import (
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// anyLimited reports whether a run has limits.
func anyLimited(runs []store.NewRun) bool {
	return slices.ContainsFunc(runs, func(run store.NewRun) bool { return len(run.Limits) > 0 })
}

// apart divides runs into those that are not limited and those that are.
func apart(runs []store.NewRun) (plain, limited []store.NewRun) {
	if !anyLimited(runs) {
		return runs, nil
	}
	for i := range runs {
		if len(runs[i].Limits) == 0 {
			plain = append(plain, runs[i])
		} else {
			limited = append(limited, runs[i])
		}
	}
	return plain, limited
}

// standing is what the row of a run holds about its limits, as arrays in text.
type standing struct {
	gates, limits, weights, strict, gives *string
}

// standingOf returns that of a run; for one that is not limited all of it is null.
func standingOf(run *store.NewRun, set numbers.LimitSet) (row standing) {
	if len(run.Limits) == 0 {
		return row
	}
	var gates, weights, strict, gives []string
	heavy := false
	uses := admit.StoredUses(run.Limits, func(name string) *store.Limit { return &set[name].Limit })
	if line := admit.SetOf(uses); line != 0 { // its line comes first
		gates, weights = append(gates, strconv.FormatInt(int64(line), 10)), append(weights, "1")
	}
	for _, use := range uses {
		gate := strconv.FormatInt(int64(use.Gate), 10)
		if use.Mode == store.LimitRelease {
			gives = append(gives, gate+":"+use.Owner.String())
			continue
		}
		gates, weights = append(gates, gate), append(weights, strconv.Itoa(use.Weight))
		heavy = heavy || use.Weight != 1
		if use.Until == store.UntilFinished || use.Until == store.UntilFinishedOrRevived {
			strict = append(strict, gate)
		}
	}
	list := "{" + strings.Join(gates, ",") + "}"
	row.gates, row.limits, row.strict, row.gives = &list, conn.TextArray(store.LimitTexts(run.Limits)), conn.TextArray(strict), conn.TextArray(gives)
	if heavy {
		row.weights = conn.TextArray(weights)
	}
	return row
}

// Occurrence identifies the schedule and the instant that a run was created for; zero: none.
type Occurrence struct {
	Schedule   int32
	Generation int64
	Key        *string
	At, Name   *string
}

// AddLimited adds the inserts of limited runs. of may be nil.
func AddLimited(b *conn.Batch, runs []store.NewRun, set numbers.Places, of func(i int) Occurrence, each func(pgx.Rows) error) {
	ids, names, secrets := set.Limits.Learnt()
	lines := numbers.LimitLaneColumns(numbers.LimitLanesOf(set, runs))
	at := 0
	for _, part := range parts(runs) {
		n := len(part)
		schedules, generations, keys, ats, called := make([]int32, n), make([]int64, n), make([]*string, n), make([]*string, n), make([]*string, n)
		gates, limits, weights, strict, gives := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
		for i := range part {
			if of != nil {
				o := of(at + i)
				schedules[i], generations[i], keys[i], ats[i], called[i] = o.Schedule, o.Generation, o.Key, o.At, o.Name
			}
			row := standingOf(&part[i], set.Limits)
			gates[i], limits[i], weights[i], strict[i], gives[i] = row.gates, row.limits, row.weights, row.strict, row.gives
		}
		at += n
		c := ColumnsOf(part, set)
		args := append(c.served(), ids, names, secrets, lines.Limits, lines.Lanes, c.ids)
		args = append(append(args, c.each()...), keyTexts(part), traces(part), schedules, generations, keys, ats, called, gates, limits, weights, strict, gives)
		b.Add(queries.EnqueueLimited, args...).Query(each)
	}
}
