package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// readRounds reads, of gates, the first lines of each lane that wait in their rounds, with
// the first waiters of those; and in which rounds the gates' own lines wait.
func (a *admitting) readRounds(ctx context.Context, gates []admit.GateID) error {
	for _, gate := range gates {
		first, err := a.firstEntries(ctx, gate, admit.Entries(a.request.Limit, len(gates)))
		if err != nil {
			return err
		}
		for _, e := range first {
			if e.Line != e.Gate {
				e.Depth = admit.EntryDepth(a.request.Limit, len(gates), len(first), a.action(gate))
				if err := a.readLine(ctx, e.Line, e.Lane, e.Depth); err != nil {
					return err
				}
			}
			a.input.Rounds = append(a.input.Rounds, e)
		}
	}
	for _, gate := range gates {
		rows, err := a.ListEntriesOf(ctx, queries.ListEntriesOfParams{Line: int64(gate)})
		if err != nil {
			return err
		}
		for i := range rows {
			if err := a.addEntry(&rows[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// readEntries reads the first lines that wait in the round of another gate.
func (a *admitting) readEntries(ctx context.Context, gate admit.GateID) error {
	first, err := a.firstEntries(ctx, gate, a.request.Limit+1)
	for _, e := range first {
		if e.Line != e.Gate && !a.hasEntry(e.Line, e.Lane) {
			a.input.Rounds = append(a.input.Rounds, e)
		}
	}
	return err
}

func (a *admitting) addEntry(row *queries.Round) error {
	e, err := entryOf(row)
	if err == nil && !a.hasEntry(e.Line, e.Lane) {
		a.input.Rounds = append(a.input.Rounds, e)
	}
	return err
}

func (a *admitting) hasEntry(line admit.GateID, lane store.LaneID) bool {
	return slices.ContainsFunc(a.input.Rounds, func(e admit.Entry) bool { return e.Line == line && e.Lane == lane })
}

// elsewhere reports whether the runs of a lane in a gate's line wait in the round of
// another gate.
func (a *admitting) elsewhere(gate admit.GateID, lane store.LaneID) bool {
	return slices.ContainsFunc(a.input.Rounds, func(e admit.Entry) bool { return e.Line == gate && e.Lane == lane && e.Gate != gate })
}

// firstEntries are the first lines in the round of a gate, so many of each lane at most.
func (a *admitting) firstEntries(ctx context.Context, gate admit.GateID, most int) (first []admit.Entry, err error) {
	if gate == admit.AllPermits || admit.IsSet(gate) {
		return nil, nil // nothing waits there
	}
	lanes, err := a.lanesOf(ctx, gate)
	if err != nil {
		return nil, err
	}
	for _, lane := range lanes {
		rows, err := a.ListEntries(ctx, queries.ListEntriesParams{Gate: int64(gate), Lane: int64(lane), Most: int64(most)})
		if err != nil {
			return nil, err
		}
		for i := range rows {
			e, err := entryOf(&rows[i])
			if err != nil {
				return nil, err
			}
			first = append(first, e)
		}
	}
	return first, nil
}

func entryOf(row *queries.Round) (admit.Entry, error) {
	e := admit.Entry{
		Line: admit.GateID(row.Line), Lane: store.LaneID(row.Lane), Gate: admit.GateID(row.Gate), //nolint:gosec // stored by this package
		Home: admit.GateID(row.Home), Since: instant(row.Since),
	}
	if err := json.Unmarshal([]byte(row.Gates), &e.Gates); err != nil {
		return e, fmt.Errorf("line %d: %w", row.Line, err)
	}
	return e, nil
}

// keysInRound are the keys of a dynamic window that wait for what all of them share.
func (c *change) keysInRound(ctx context.Context, parent admit.GateID) (keys []admit.GateID, err error) {
	rows, err := c.ListKeysInRound(ctx, queries.ListKeysInRoundParams{Gate: int64(parent), Most: store.MaxLimitKeys + 1})
	if err != nil {
		return nil, err
	}
	seen := map[admit.GateID]bool{}
	for _, row := range rows {
		var gates []admit.GateID
		if err := json.Unmarshal([]byte(row), &gates); err != nil {
			return nil, fmt.Errorf("round of gate %d: %w", parent, err)
		}
		for _, key := range gates {
			if key != parent && admit.Parent(key) == parent && !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}

// writeRounds writes where lines wait now.
func (a *admitting) writeRounds(ctx context.Context, d *admit.Decision) error {
	for i := range d.Unpark {
		err := a.DeleteEntry(ctx, queries.DeleteEntryParams{Line: int64(d.Unpark[i].Line), Lane: int64(d.Unpark[i].Lane)})
		if err != nil {
			return err
		}
	}
	for _, served := range d.Served {
		err := a.ServeHome(ctx, queries.ServeHomeParams{Since: served.Since.UnixMicro(), Gate: int64(served.Gate), Home: int64(served.Home)})
		if err != nil {
			return err
		}
	}
	for i := range d.Park {
		e := &d.Park[i]
		gates, err := json.Marshal(e.Gates)
		if err != nil {
			return err
		}
		err = a.SaveEntry(ctx, queries.SaveEntryParams{Line: int64(e.Line), Lane: int64(e.Lane), Gate: int64(e.Gate), Home: int64(e.Home),
			Gates: string(gates), Since: e.Since.UnixMicro()})
		if err != nil {
			return err
		}
	}
	return nil
}

// announceLine says that a line may continue, at the gates for which its lanes wait: one of its
// runs has left it that may have been in the way of others.
func (c *change) announceLine(ctx context.Context, line admit.GateID, lane int64) error {
	rows, err := c.ListEntriesOf(ctx, queries.ListEntriesOfParams{Line: int64(line)})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Lane == lane {
			return c.announce(ctx, admit.GateID(row.Gate))
		}
	}
	return c.announce(ctx, line)
}
