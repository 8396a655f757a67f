package claiming

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/admission"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/settling"
)

// Claim claims due runs. A claim that was granted runs before, so that its lease
// cannot be inserted again, returns those.
func (c *Claimer) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	if err := c.schema.Usable(ctx); err != nil {
		return nil, c.db.Fail("claim runs", err)
	}
	worker, err := c.numbers.WorkerOf(ctx, request.Worker)
	if err != nil {
		return nil, c.db.Fail("claim runs", err)
	}
	c.adoptRuns(ctx, request.Steps)
	opened := c.db.Connections.Opened()
	var got admission.Dealing
	err = c.db.Repeat(ctx, func() error {
		if len(request.Admissions) > 0 {
			if err := c.admitter.HandOn(ctx, &request, worker, &got); err != nil || len(got.Runs) > 0 {
				return err
			}
			return c.admitter.AdmitRuns(ctx, &request, worker, &got)
		}
		args := claimArgs(&request, worker)
		if !c.held.Within(conn.HeldFor) { // the cheap statement, which waits for a transaction that holds the row of a run
			if err := c.sendClaim(ctx, queries.ClaimRuns, args, &got); conn.Code(err) != conn.LockNotAvailable {
				return err
			}
			c.rowHeld()
		}
		return c.sendClaim(ctx, queries.ClaimFreeRuns, args, &got) // the one that skips such rows
	})
	switch {
	case err == nil && len(got.Runs) == 0 && !request.Guess:
		err = c.db.Repeat(ctx, func() error { return c.nothing(ctx, request.Claim, &got) })
	case conn.Code(err) == conn.UniqueViolation:
		err = c.db.Repeat(ctx, func() error { return c.granted(ctx, request.Claim, &got) })
	case err == nil && got.Dealt > len(got.Runs):
		c.tellUndealt(ctx, request.Claim)
	}
	if err == nil {
		err = c.nameSchedulesOf(ctx, &got)
	}
	if err != nil {
		return nil, c.db.Fail("claim runs", err)
	}
	c.wake.CountClaimed(len(got.Runs))
	if len(got.Runs) > 1 { // one is settled as a whole
		c.db.Connections.Made(request.Claim, opened)
	}
	c.expectClaim(&request)
	if len(request.Admissions) > 0 {
		return got.Runs, nil
	}
	return inSteps(got.Runs, request.Steps), nil
}

// nameSchedulesOf gives the runs the names of their schedules.
func (c *Claimer) nameSchedulesOf(ctx context.Context, got *admission.Dealing) error {
	if got.Schedules == nil {
		return nil
	}
	names, err := c.numbers.NamesOfSchedules(ctx, got.Schedules)
	if err != nil {
		return err
	}
	for i := range got.Runs {
		if id, of := got.Schedules[got.Runs[i].ID]; of {
			got.Runs[i].Schedule = names[id]
		}
	}
	return nil
}

// granted reads what a claim was given before, and makes it durable: no handler begins under
// a claim that a failover to a synchronous standby would take back.
func (c *Claimer) granted(ctx context.Context, claim lease.ClaimID, got *admission.Dealing) error {
	b := c.db.Guarded(ctx)
	b.Add(queries.Seal)
	b.Add(queries.ClaimedRuns, uuid.UUID(claim)).Query(got.Scan)
	return c.db.Send(ctx, c.db.Engine, b)
}

// nothing finds out why a claim got no run: it was granted some before; or it found only rows
// of ready that name no pending run, so that its lease covers nothing and is deleted; or
// nothing was due.
func (c *Claimer) nothing(ctx context.Context, claim lease.ClaimID, got *admission.Dealing) error {
	var leased bool
	b := c.db.Guarded(ctx)
	b.Add(queries.Leased, uuid.UUID(claim)).QueryRow(func(row pgx.Row) error { return row.Scan(&leased) })
	if err := c.db.Send(ctx, c.db.Engine, b); err != nil || !leased {
		return err
	}
	var undealt []uuid.UUID
	b = c.db.Guarded(ctx)
	b.Add(queries.Seal)
	b.Add(queries.ClaimedRuns, uuid.UUID(claim)).Query(got.Scan)
	b.Add(queries.Undealt, uuid.UUID(claim)).Query(func(rows pgx.Rows) error {
		undealt = undealt[:0]
		return conn.ScanIDs(rows, func(id uuid.UUID) { undealt = append(undealt, id) })
	})
	b.Add(queries.Unlease, uuid.UUID(claim), int32(settling.OfNone))
	err := c.db.Send(ctx, c.db.Engine, b)
	if err == nil && len(got.Runs) == 0 {
		c.warnUndealt(undealt)
	}
	return err
}

// tellUndealt names the runs that a claim could not start. It is for people:
// when it fails, the claim is still valid.
func (c *Claimer) tellUndealt(ctx context.Context, claim lease.ClaimID) {
	var undealt []uuid.UUID
	b := c.db.Guarded(ctx)
	b.Add(queries.Undealt, uuid.UUID(claim)).Query(func(rows pgx.Rows) error {
		undealt = undealt[:0]
		return conn.ScanIDs(rows, func(id uuid.UUID) { undealt = append(undealt, id) })
	})
	if err := c.db.Send(ctx, c.db.Engine, b); err != nil {
		c.db.Log.Warn("rows of ready named runs that are not pending: dropped", "event", "claim.rows_dropped", "error", err)
		return
	}
	c.warnUndealt(undealt)
}

func (c *Claimer) warnUndealt(ids []uuid.UUID) {
	if n := len(ids); n > 0 {
		c.db.Log.Warn("rows of ready named runs that are not pending: dropped", "event", "claim.rows_dropped", "rows", n, "runs", ids[:min(n, undealtNamed)])
	}
}

// undealtNamed bounds the runs that one message names.
const undealtNamed = 10

// rowHeld remembers that a transaction holds the row of a pending run.
func (c *Claimer) rowHeld() {
	c.held.Mark()
	c.db.Log.Warn("pending run locked by another transaction; claiming around it", "event", "claim.row_locked", "for", conn.HeldFor.String())
}

func claimArgs(request *store.ClaimRequest, worker int32) []any {
	n := len(request.Steps)
	lanes, froms := make([]int32, n), make([]time.Time, n)
	skips, takes := make([]int32, n), make([]int32, n)
	for i, step := range request.Steps {
		lanes[i], froms[i] = step.Lane, step.From // the zero time lies before every run
		skips[i], takes[i] = conn.Small(step.Skip), conn.Small(step.Take)
	}
	return []any{uuid.UUID(request.Claim), worker, lanes, froms, skips, takes, conn.Small(request.Limit),
		conn.Micro(request.Duration), request.Alone}
}

// Touch writes the worker's row, on one of the connections that reclaim.
func (c *Claimer) Touch(ctx context.Context, worker store.WorkerID) error {
	if err := c.schema.Usable(ctx); err != nil {
		return c.db.Fail("touch", err)
	}
	var rows int64
	b := c.db.Guarded(ctx)
	b.Add(queries.TouchWorker, worker.Instance).Exec(func(tag pgconn.CommandTag) error {
		rows = tag.RowsAffected()
		return nil
	})
	err := c.db.SendInBackground(ctx, b)
	if err == nil && rows == 0 {
		_, err = c.numbers.RegisterWorker(ctx, worker)
	}
	if err != nil {
		return c.db.Fail("touch", err)
	}
	return nil
}
