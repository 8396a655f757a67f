package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// enqueueLinked stores runs of which some depend on others or belong to batches, and looks at them,
// in a transaction of its own: a condition that is refused is no other caller's concern.
func (s *Store) enqueueLinked(ctx context.Context, runs []store.NewRun) ([]store.Receipt, error) {
	stored := call{runs: runs}
	fresh := newLanes()
	err := s.writeAround(ctx, enqueues, func(ctx context.Context, c *change) error {
		if err := s.store(ctx, c, fresh, &stored); err != nil {
			return err
		}
		_, err := s.releaseNoticed(ctx, c, ownNotices)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.lanes.add(fresh)
	s.hint()
	return stored.receipts, nil
}

// storeLinked is store for a call some of whose runs depend on others, or belong to batches.
func (s *Store) storeLinked(ctx context.Context, c *change, fresh *lanes, linked *call) error {
	for _, id := range rules.Sources(linked.runs) {
		_, err := c.FindState(ctx, queries.FindStateParams{ID: id[:]})
		if errors.Is(err, sql.ErrNoRows) {
			err = rules.UnknownSource(id)
		}
		if err != nil {
			return err
		}
	}
	held := call{runs: rules.Held(linked.runs), holder: linked.holder}
	if err := s.storeUnlinked(ctx, c, fresh, &held); err != nil {
		return err
	}
	linked.receipts = held.receipts
	if err := c.gather(ctx, &held); err != nil {
		return err
	}
	for i := range held.runs {
		run := &held.runs[i]
		if held.receipts[i].Existing || len(run.DependsOn) == 0 {
			continue
		}
		for _, edge := range rules.EdgesOf(run) {
			if err := c.insertEdge(ctx, &edge); err != nil {
				return err
			}
		}
		if err := c.InsertLook(ctx, queries.InsertLookParams{DueAt: c.now, RunID: run.ID[:]}); err != nil {
			return err
		}
	}
	return nil
}

// insertEdge stores what a run waits for, and has the end of the source noted.
func (c *change) insertEdge(ctx context.Context, edge *rules.Edge) error {
	err := c.InsertEdge(ctx, queries.InsertEdgeParams{
		Waiter: edge.Waiter[:], Source: edge.Source[:], Wants: int64(edge.Want), AnyOf: int64(edge.AnyOf), Name: edge.Name,
	})
	if err != nil || edge.Want.Batch() {
		return err
	}
	return c.AddLink(ctx, queries.AddLinkParams{Link: &linkAwaited, ID: edge.Source[:]})
}

var linkAwaited, linkParent, linkMember int64 = store.LinkAwaited, store.LinkParent, store.LinkMember //nolint:gochecknoglobals // constants with addresses

// Call stores children, and that their parents wait for them; see store.Caller.
func (s *Store) Call(ctx context.Context, calls []store.Call) error {
	if err := store.CheckCalls(calls); err != nil {
		return err
	}
	if err := s.checkLimits(ctx, store.ChildrenOf(calls)); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	fresh := newLanes()
	err := s.write(ctx, enqueues, func(ctx context.Context, c *change) error {
		for i := range calls {
			if err := s.call(ctx, c, fresh, &calls[i]); err != nil {
				return fmt.Errorf("call %q of run %s: %w", calls[i].Name, calls[i].Run, err)
			}
		}
		return nil
	})
	if err != nil {
		return heldByAnother(err)
	}
	s.lanes.add(fresh)
	s.hint()
	return nil
}

// call stores the children of one call, and that its run waits for them.
func (s *Store) call(ctx context.Context, c *change, fresh *lanes, made *store.Call) error {
	if err := c.guard(ctx, made.Holder); err != nil {
		return err
	}
	stored := &call{runs: made.Children, holder: made.Run}
	if err := s.store(ctx, c, fresh, stored); err != nil {
		return err
	}
	if err := c.adopt(ctx, made, stored.receipts); err != nil {
		return err
	}
	_, err := c.beginWait(ctx, &store.NewWait{Holder: made.Holder, Name: made.Name, Kind: store.StepChildren, Children: len(made.Children)})
	return err
}

// adopt makes runs that were just stored the children of the run that calls them.
func (c *change) adopt(ctx context.Context, made *store.Call, stored []store.Receipt) error {
	parent := made.Run
	for i := range stored {
		id := stored[i].ID
		if stored[i].Existing {
			known, err := c.HasChild(ctx, queries.HasChildParams{Waiter: parent[:], Name: made.Name, Source: id[:]})
			if err == nil && known == 0 {
				err = rules.NotItsChild(id)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := c.insertEdge(ctx, &rules.Edge{Waiter: parent, Source: id, Want: rules.WantOf(store.WantEnded, false), Name: made.Name}); err != nil {
			return err
		}
	}
	return c.AddLink(ctx, queries.AddLinkParams{Link: &linkParent, ID: parent[:]})
}

// outcome is what became of a notice.
type outcome struct {
	kept            bool // it is looked at again later
	released, ended int
}

// releaseEnded closes the batches of a run that has ended, and has the runs looked at that wait for
// it, or for a batch, each by a notice of its own, so that one which SQLite refuses to change is in
// no other's way. Where it has more of them than one release looks at, its notice stays, with a
// cursor.
func (c *change) releaseEnded(ctx context.Context, n *queries.DueNoticesRow) error {
	if err := c.CloseOwned(ctx, queries.CloseOwnedParams{Owner: n.RunID}); err != nil {
		return err
	}
	after := n.Cursor
	if after == nil {
		after = []byte{}
	}
	waiters, err := c.WaitersOf(ctx, queries.WaitersOfParams{Source: n.RunID, After: after, Most: rules.MostWaiters})
	if err != nil {
		return err
	}
	for _, waiter := range waiters {
		if err := c.InsertLook(ctx, queries.InsertLookParams{DueAt: c.now, RunID: waiter}); err != nil {
			return err
		}
	}
	if len(waiters) == rules.MostWaiters {
		return c.AdvanceNotice(ctx, queries.AdvanceNoticeParams{Cursor: waiters[len(waiters)-1], ID: n.ID})
	}
	return c.DeleteNotice(ctx, queries.DeleteNoticeParams{ID: n.ID})
}

// look makes a run due whose wait is over, and cancels a dependent whose conditions can never be
// met.
func (c *change) look(ctx context.Context, id []byte) (done outcome, err error) {
	row, err := c.FindWaiter(ctx, queries.FindWaiterParams{ID: id})
	if err != nil {
		return done, unlessNone(err)
	}
	switch state := store.State(row.State); { //nolint:gosec // 0 to 5
	case state == store.Running:
		return outcome{kept: true}, nil
	case state != store.Pending || row.DueAt <= c.now:
		return done, nil
	case row.Came != 0:
		return outcome{released: 1}, c.makeDue(ctx, id, row.Lane, row.DueAt, row.Limits)
	case row.StartedAt != nil:
		return done, nil
	}
	edges, err := c.judged(ctx, id)
	if err != nil || len(edges) == 0 {
		return done, err
	}
	switch judgement := rules.JudgeDependent(edges); {
	case judgement.Never != "":
		return outcome{ended: 1}, c.cancelPending(ctx, id, row.Lane, row.DueAt, row.Limits, judgement.Never)
	case judgement.Free:
		return outcome{released: 1}, c.makeDue(ctx, id, row.Lane, row.DueAt, row.Limits)
	}
	return done, nil
}

// judged reads what a dependent waits for, and keeps what is met.
func (c *change) judged(ctx context.Context, id []byte) ([]rules.Judged, error) {
	rows, err := c.EdgesOf(ctx, queries.EdgesOfParams{Waiter: id})
	if err != nil {
		return nil, err
	}
	edges := make([]rules.Judged, len(rows))
	for i := range rows {
		row, edge := &rows[i], &edges[i]
		edge.Waiter, edge.Source, edge.Want = store.RunID(id), store.RunID(row.Source), rules.EdgeWant(row.Wants) //nolint:gosec // 1 to 6
		edge.AnyOf, edge.Met = int(row.AnyOf), row.Met != 0
		edge.State, edge.Found = store.State(row.State), row.State >= 0 && !edge.Want.Batch() //nolint:gosec // -1 to 5
		if err := c.seeBatch(ctx, edge); err != nil {
			return nil, err
		}
		if edge.Judge(); edge.Fate == rules.Met && !edge.Met {
			err := c.MeetEdge(ctx, queries.MeetEdgeParams{Waiter: id, AnyOf: row.AnyOf, Source: row.Source, Wants: row.Wants})
			if err != nil {
				return nil, err
			}
		}
	}
	return edges, nil
}

// seeBatch sets what an edge to a batch sees of it.
func (c *change) seeBatch(ctx context.Context, edge *rules.Judged) error {
	if !edge.Want.Batch() {
		return nil
	}
	row, err := c.FindBatch(ctx, queries.FindBatchParams{ID: edge.Source[:]})
	if err != nil {
		return unlessNone(err)
	}
	b := batchOf(&row)
	edge.OfBatch(&b, rules.HappenedTo(&b))
	return nil
}

// cancelFor cancels a child whose parent was cancelled, or a member of a cancelled batch, and
// requests it of one that executes.
func (c *change) cancelFor(ctx context.Context, id []byte, reason string) (done outcome, err error) {
	row, err := c.FindWaiter(ctx, queries.FindWaiterParams{ID: id})
	if err != nil {
		return done, unlessNone(err)
	}
	switch state := store.State(row.State); { //nolint:gosec // 0 to 5
	case state.Terminal() || state == store.Running && row.Cancel != nil:
		return done, nil
	case state == store.Pending:
		return outcome{ended: 1}, c.cancelPending(ctx, id, row.Lane, row.DueAt, row.Limits, reason)
	}
	return outcome{ended: 1}, errors.Join(
		c.RequestCancel(ctx, queries.RequestCancelParams{Reason: &reason, ID: id}),
		c.InsertCancel(ctx, queries.InsertCancelParams{ClaimID: row.ClaimID, RunID: id}),
	)
}

// Outcomes returns how runs have ended; see store.Linker.
func (s *Store) Outcomes(ctx context.Context, ids []store.RunID) ([]store.RunOutcome, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("outcomes: %w", s.explain(err))
	}
	found := map[store.RunID]store.RunOutcome{}
	for _, id := range ids {
		row, err := reader.FindOutcome(ctx, queries.FindOutcomeParams{ID: id[:]})
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("outcomes: %w", s.explain(err))
		}
		outcome := store.RunOutcome{ID: id, Found: true, Job: row.Job, State: store.State(row.State), Result: row.Result, Reason: row.Reason} //nolint:gosec // 0 to 5
		if ended := instantOrNil(row.FinishedAt); ended != nil {
			outcome.FinishedAt = *ended
		}
		found[id] = outcome
	}
	return rules.OutcomesInOrder(ids, found), nil
}

// Links returns what a run waits for, and who waits for it; see store.Linker.
func (s *Store) Links(ctx context.Context, id store.RunID) (store.RunLinks, error) {
	var links store.RunLinks
	reader, err := s.read(ctx)
	if err != nil {
		return links, fmt.Errorf("links: %w", s.explain(err))
	}
	sources, err := reader.SourcesOf(ctx, queries.SourcesOfParams{ID: id[:], Most: store.MaxLinks})
	if err != nil {
		return links, fmt.Errorf("links: %w", s.explain(err))
	}
	for i := range sources {
		link := linkOf(&sources[i])
		if link.Batch = rules.EdgeWant(sources[i].Wants).Batch(); link.Batch { //nolint:gosec // 1 to 6
			row, err := reader.FindBatch(ctx, queries.FindBatchParams{ID: link.Run[:]})
			if unlessNone(err) != nil {
				return store.RunLinks{}, fmt.Errorf("links: %w", s.explain(err))
			}
			if err == nil {
				b := batchOf(&row)
				link.Found, link.Job, link.State = true, b.Name, rules.BatchAsRun(&b)
			}
		}
		links.WaitsFor = append(links.WaitsFor, link)
	}
	waiters, err := reader.WaitersFor(ctx, queries.WaitersForParams{ID: id[:], Most: store.MaxLinks})
	if err != nil {
		return links, fmt.Errorf("links: %w", s.explain(err))
	}
	for i := range waiters {
		links.WaitedFor = append(links.WaitedFor, linkOf((*queries.SourcesOfRow)(&waiters[i])))
	}
	n, err := reader.CountSources(ctx, queries.CountSourcesParams{ID: id[:], Most: store.MaxLinksCounted})
	if err != nil {
		return links, fmt.Errorf("links: %w", s.explain(err))
	}
	m, err := reader.CountWaiters(ctx, queries.CountWaitersParams{ID: id[:], Most: store.MaxLinksCounted})
	if err != nil {
		return links, fmt.Errorf("links: %w", s.explain(err))
	}
	batch, err := reader.FindMember(ctx, queries.FindMemberParams{RunID: id[:]})
	if unlessNone(err) != nil {
		return links, fmt.Errorf("links: %w", s.explain(err))
	}
	if err == nil {
		id := store.BatchID(batch)
		links.Batch = &id
	}
	links.Sources, links.Waiters = rules.LinksCounted(int(n)), rules.LinksCounted(int(m))
	return links, nil
}

// Waiters returns the runs that wait for a run; see store.Linker.
func (s *Store) Waiters(ctx context.Context, id, after store.RunID) ([]store.RunID, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("waiters: %w", s.explain(err))
	}
	rows, err := reader.WaitersOf(ctx, queries.WaitersOfParams{Source: id[:], After: after[:], Most: store.MaxSources})
	if err != nil {
		return nil, fmt.Errorf("waiters: %w", s.explain(err))
	}
	waiters := make([]store.RunID, len(rows))
	for i := range rows {
		waiters[i] = store.RunID(rows[i])
	}
	return waiters, nil
}

// Holds returns the dead runs that hold dependents; see store.Linker.
func (s *Store) Holds(ctx context.Context) ([]store.Hold, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("holds: %w", s.explain(err))
	}
	rows, err := reader.Holds(ctx, queries.HoldsParams{Wants: int64(store.WantSucceeded), Now: s.clock.now(), Examined: store.MaxHoldsExamined, Most: store.MaxHolds})
	if err != nil {
		return nil, fmt.Errorf("holds: %w", s.explain(err))
	}
	holds := make([]store.Hold, len(rows))
	for i, row := range rows {
		holds[i] = store.Hold{Run: store.RunID(row.RunID), Job: row.Job, DeadSince: instant(row.EndedAt),
			Dependents: store.Count{N: min(row.Dependents, store.MaxHeldCounted), AtLeast: row.Dependents >= store.MaxHeldCounted}}
	}
	return holds, nil
}

func linkOf(row *queries.SourcesOfRow) store.Link {
	link := store.Link{Run: store.RunID(row.ID), Job: row.Job, Want: rules.EdgeWant(row.Wants).Want(), AnyOf: int(row.AnyOf), Met: row.Met != 0, Name: row.Name} //nolint:gosec // 1 to 6
	if row.State >= 0 {
		link.Found, link.State = true, store.State(row.State) //nolint:gosec // 0 to 5
	}
	return link
}
