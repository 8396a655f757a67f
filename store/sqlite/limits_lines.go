package sqlite

import (
	"context"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// linesMost bounds the lines of a limit, and of a gate's round, that are read to show who
// waits for the gate.
const linesMost = 1000

// waitersOf are the first runs that wait for a gate, in the order in which it admits them,
// and how many there are: those in its line, in its round, and those of sets that count for
// its key, wherever they wait.
func waitersOf(ctx context.Context, q *queries.Queries, limit *store.Limit, gate admit.GateID) ([]store.Waiter, store.Count, error) {
	known, err := readLimits(ctx, q)
	if err != nil {
		return nil, store.Count{}, err
	}
	l := lines{Queries: q, gate: gate, known: known, seen: map[int64]bool{}}
	err = l.read(ctx, limit.ID)
	waiters := admit.InTurn(l.shown)
	l.all.AtLeast = l.all.AtLeast || l.all.N > waitingMost
	l.all.N = min(l.all.N, waitingMost)
	return waiters[:min(len(waiters), shown)], l.all, err
}

// lines are those whose runs wait for a gate.
type lines struct {
	*queries.Queries

	gate  admit.GateID
	known *knownLimits
	lanes []int64        // of the limit
	seen  map[int64]bool // of the round
	shown []admit.ShownLine
	all   store.Count
}

func (l *lines) read(ctx context.Context, limit store.LimitID) error {
	rows, err := l.ListLimitLanes(ctx, queries.ListLimitLanesParams{LimitID: int64(limit)})
	if err != nil {
		return err
	}
	for _, row := range rows {
		l.lanes = append(l.lanes, row.Lane)
	}
	if err := l.readRound(ctx); err != nil {
		return err
	}
	for _, lane := range l.lanes {
		if err := l.add(ctx, int64(l.gate), lane, admit.ShownLine{Home: l.gate}); err != nil {
			return err
		}
	}
	return l.readSets(ctx, limit)
}

// readRound reads the lines that wait in the round of the gate.
func (l *lines) readRound(ctx context.Context) error {
	for _, lane := range l.lanes {
		entries, err := l.ListEntries(ctx, queries.ListEntriesParams{Gate: int64(l.gate), Lane: lane, Most: linesMost})
		if err != nil {
			return err
		}
		l.all.AtLeast = l.all.AtLeast || len(entries) == linesMost
		for _, e := range entries {
			if e.Line == e.Gate {
				continue
			}
			l.seen[e.Line] = true
			if err := l.add(ctx, e.Line, lane, admit.ShownLine{Home: admit.GateID(e.Home), Since: instant(e.Since)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// readSets reads the lines of sets that count for the gate's key, and wait elsewhere.
func (l *lines) readSets(ctx context.Context, limit store.LimitID) error {
	first, last := admit.GateRange(limit)
	from := -int64(last)
	for range linesMost {
		set, err := l.NextWaitingGate(ctx, queries.NextWaitingGateParams{First: from, Last: -int64(first)})
		if err != nil || set == 0 {
			return err
		}
		from = set + 1
		if l.seen[set] {
			continue
		}
		if err := l.readSet(ctx, set); err != nil {
			return err
		}
	}
	l.all.AtLeast = true
	return nil
}

func (l *lines) readSet(ctx context.Context, set int64) error {
	for _, lane := range l.lanes {
		heads, err := l.ListWaiters(ctx, queries.ListWaitersParams{Gate: set, Lane: lane, Most: 1})
		if err != nil {
			return err
		}
		if len(heads) == 0 {
			continue
		}
		row, err := l.FindLimitsOf(ctx, queries.FindLimitsOfParams{ID: heads[0].RunID})
		if err != nil {
			return unlessNone(err)
		}
		limits, _ := limitsOf(row.Limits) // what cannot be read counts for no key
		if admit.HomeOf(admit.GateID(set), admit.StoredUses(limits, l.known.find)) != l.gate {
			return nil
		}
		if err := l.add(ctx, set, lane, admit.ShownLine{Home: l.gate}); err != nil {
			return err
		}
	}
	return nil
}

// add counts the runs of a line and reads the first ones.
func (l *lines) add(ctx context.Context, line, lane int64, one admit.ShownLine) error {
	counted, err := l.CountLine(ctx, queries.CountLineParams{Gate: line, Lane: lane, Most: waitingMost + 1})
	if err != nil || counted.Waiting == 0 {
		return err
	}
	l.all.N += counted.Waiting
	rows, err := l.ListWaiters(ctx, queries.ListWaitersParams{Gate: line, Lane: lane, Most: shown})
	for _, row := range rows {
		one.Waiters = append(one.Waiters, store.Waiter{Run: store.RunID(row.RunID), Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), DueAt: instant(row.DueAt)})
	}
	l.shown = append(l.shown, one)
	return err
}
