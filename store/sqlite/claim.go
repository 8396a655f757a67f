package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// idSize is the length of an id in a list of ids.
const idSize = 16

// Claim takes due runs by the request's steps and leases them together.
func (s *Store) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	var runs []store.ClaimedRun
	var seqs []int64
	var dropped []store.RunID
	var undealt int64
	var decision admit.Decision
	s.adoptRuns(ctx, s.capped.Among(request.Steps))
	err := s.write(ctx, claims, func(ctx context.Context, c *change) error {
		ids, err := c.FindLease(ctx, queries.FindLeaseParams{ClaimID: request.Claim[:]})
		switch {
		case err == nil:
			runs, err = c.claimedBefore(ctx, request.Claim, ids)
		case errors.Is(err, sql.ErrNoRows) && len(request.Admissions) > 0:
			runs, seqs, decision, err = c.admission(ctx, &request)
		case errors.Is(err, sql.ErrNoRows):
			runs, seqs, err = c.claim(ctx, &request)
			if err == nil && len(runs) == 0 {
				dropped, err = c.drop(ctx, &request)
			}
		}
		undealt = c.undealt + int64(len(dropped))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim runs: %w", err)
	}
	s.tally.Decided(&decision)
	if undealt > 0 {
		s.logger.Warn("rows of ready or waiting named runs that are not pending: dropped", "event", "claim.waiting_rows_dropped", "rows", undealt, "runs", dropped[:min(len(dropped), droppedLogged)])
	}
	s.seqs.learn(runs, seqs)
	return runs, nil
}

// droppedLogged bounds the runs that one message names.
const droppedLogged = 10

// drop deletes what a claim that got nothing found in its way: rows of ready
// whose run is not pending.
func (c *change) drop(ctx context.Context, request *store.ClaimRequest) (dropped []store.RunID, err error) {
	for _, step := range request.Steps {
		if err := c.dropStep(ctx, step, min(step.Take, request.Limit), &dropped); err != nil {
			return nil, err
		}
	}
	return dropped, nil
}

func (c *change) dropStep(ctx context.Context, step store.Step, take int, dropped *[]store.RunID) error {
	rows, err := c.dropUnready.QueryContext(ctx, c.now, step.Lane, sinceOf(step), take, max(step.Skip, 0))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports
	for rows.Next() {
		var id sql.RawBytes
		if err := rows.Scan(&id); err != nil {
			return err
		}
		*dropped = append(*dropped, store.RunID(id))
	}
	return rows.Err()
}

// sinceOf is a step's lower bound as it is compared.
func sinceOf(step store.Step) int64 {
	if step.From.IsZero() {
		return 0
	}
	return step.From.UnixMicro()
}

// span is a stretch of neighbours in one line.
type span struct {
	lane        store.LaneID
	first, last place
}

// place is where a run is in its line.
type place struct {
	due int64
	id  []byte
}

// claim takes the runs of all steps before it takes any out of its line:
// steps count the line as it stood before the first one. seqs are the numbers of
// the runs.
func (c *change) claim(ctx context.Context, request *store.ClaimRequest) (runs []store.ClaimedRun, seqs []int64, err error) {
	var spans []span
	for _, step := range request.Steps {
		take := min(step.Take, request.Limit-len(runs))
		if take <= 0 {
			continue
		}
		taken, numbered, err := c.step(ctx, request, step, take)
		if err != nil {
			return nil, nil, err
		}
		if len(taken) == 0 {
			continue
		}
		first, last := &taken[0], &taken[len(taken)-1]
		spans = append(spans, span{step.Lane, place{first.DueAt.UnixMicro(), first.ID[:]}, place{last.DueAt.UnixMicro(), last.ID[:]}})
		runs, seqs = append(runs, taken...), append(seqs, numbered...)
	}
	if len(runs) == 0 {
		return nil, nil, nil
	}
	if err := c.unreadyAll(ctx, spans, len(runs)); err != nil {
		return nil, nil, err
	}
	return runs, seqs, c.lease(ctx, request, runs)
}

// unreadyAll takes so many runs out of their lines. Rows that name no pending run
// go with their neighbours.
func (c *change) unreadyAll(ctx context.Context, spans []span, runs int) error {
	gone := int64(-runs)
	for _, sp := range spans {
		result, err := c.unready.ExecContext(ctx, sp.lane, sp.first.due, sp.first.id, sp.last.due, sp.last.id)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return err
		}
		gone += n
	}
	c.undealt += max(gone, 0)
	return nil
}

// step takes up to take runs of one line, in its order.
func (c *change) step(
	ctx context.Context, request *store.ClaimRequest, step store.Step, take int,
) (taken []store.ClaimedRun, seqs []int64, err error) {
	if taken, seqs, err = c.find(ctx, step, take); err != nil || len(taken) == 0 {
		return nil, nil, err
	}
	return taken, seqs, c.startRuns(ctx, request, seqs)
}

// startRuns starts pending runs for a claim.
func (c *change) startRuns(ctx context.Context, request *store.ClaimRequest, seqs []int64) error {
	started, err := c.start.exec(ctx, seqs, request.Claim[:], c.now, request.Worker.Name)
	if err == nil && started != int64(len(seqs)) {
		err = fmt.Errorf("%d of %d pending runs could be started", started, len(seqs))
	}
	return err
}

// find finds the runs of a step, as they are once they have been started.
func (c *change) find(ctx context.Context, step store.Step, take int) (runs []store.ClaimedRun, seqs []int64, err error) {
	rows, err := c.claimStep.QueryContext(ctx, c.now, step.Lane, sinceOf(step), take, max(step.Skip, 0))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports
	for rows.Next() {
		var row queries.FindClaimedRow
		var seq int64
		var id sql.RawBytes
		err := rows.Scan(&seq, &id, &row.Lane, &row.Attempt, &row.MaxAttempts, &row.CrashCount, &row.Fence,
			&row.DueAt, &row.CreatedAt, &row.Timeout, &row.ExpiresAt, &row.Trace, &row.Key, &row.Schedule, &row.OccursAt, &row.Tags, &row.Metadata, &row.Args, &row.Links)
		if err != nil {
			return nil, nil, err
		}
		row.ID, row.Attempt, row.Fence = id, row.Attempt+1, max(row.Fence+1, c.now)
		runs, seqs = append(runs, claimed(&row, c.now)), append(seqs, seq)
	}
	sort.Sort(line{runs, seqs}) // nothing to do as the statement is written; unready depends on it
	return runs, seqs, rows.Err()
}

// line sorts runs, with their numbers, as they wait.
type line struct {
	runs []store.ClaimedRun
	seqs []int64
}

func (l line) Len() int { return len(l.runs) }

func (l line) Less(i, k int) bool {
	return cmp.Or(l.runs[i].DueAt.Compare(l.runs[k].DueAt), bytes.Compare(l.runs[i].ID[:], l.runs[k].ID[:])) < 0
}

func (l line) Swap(i, k int) {
	l.runs[i], l.runs[k] = l.runs[k], l.runs[i]
	l.seqs[i], l.seqs[k] = l.seqs[k], l.seqs[i]
}

func claimed(row *queries.FindClaimedRow, now int64) store.ClaimedRun {
	run := store.ClaimedRun{
		ID:          store.RunID(row.ID),
		Lane:        store.LaneID(row.Lane),
		Attempt:     int(row.Attempt),
		MaxAttempts: int(row.MaxAttempts),
		CrashCount:  int(row.CrashCount),
		Fence:       lease.Fence(row.Fence),
		DueAt:       instant(row.DueAt),
		CreatedAt:   instant(row.CreatedAt),
		Timeout:     duration(row.Timeout),
		Expired:     row.ExpiresAt != nil && *row.ExpiresAt <= now,
		Args:        row.Args,
		Linked:      row.Links != nil,
	}
	if row.Trace != nil {
		run.Trace = *row.Trace
	}
	if row.Key != nil {
		run.Key = *row.Key
	}
	if row.Schedule != nil {
		run.Schedule = *row.Schedule
	}
	if row.OccursAt != nil {
		run.OccursAt = store.ZonedTime(*row.OccursAt)
	}
	if row.Tags != nil {
		run.Tags, _ = tagsOf(row.Tags) // what cannot be read, a run is executed without
	}
	run.Metadata = metadataOf(row.Metadata)
	return run
}

// lease stores the one lease of all the runs.
func (c *change) lease(ctx context.Context, request *store.ClaimRequest, runs []store.ClaimedRun) error {
	ids := make([]byte, 0, idSize*len(runs))
	for i := range runs {
		ids = append(ids, runs[i].ID[:]...)
	}
	var alone int64
	if request.Alone {
		alone = 1
	}
	return c.InsertLease(ctx, queries.InsertLeaseParams{
		ClaimID:        request.Claim[:],
		AcquiredAt:     c.now,
		ExpiresAt:      c.now + request.Duration.Microseconds(),
		Alone:          alone,
		WorkerInstance: request.Worker.Instance[:],
		WorkerName:     request.Worker.Name,
		RunIds:         ids,
	})
}

// claimedBefore returns what a claim that is asked again still holds of what
// it was given.
func (c *change) claimedBefore(ctx context.Context, claim lease.ClaimID, ids []byte) ([]store.ClaimedRun, error) {
	var runs []store.ClaimedRun
	for id := range slices.Chunk(ids, idSize) {
		row, err := c.FindClaimed(ctx, queries.FindClaimedParams{ID: id, ClaimID: claim[:]})
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, claimed(&row, c.now))
	}
	return runs, nil
}
