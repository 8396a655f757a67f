package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// storeKeyed is store for a call some of whose runs have keys: one by one, so
// that each sees what the one before it has left.
func (s *Store) storeKeyed(ctx context.Context, c *change, fresh *lanes, call *call) error {
	call.receipts = make([]store.Receipt, len(call.runs))
	for i := range call.runs {
		row, err := s.row(ctx, c, fresh, &call.runs[i])
		if err != nil {
			return err
		}
		if call.receipts[i], err = c.storeOne(ctx, &call.runs[i], row); err != nil {
			return err
		}
	}
	return nil
}

// storeOne stores one run, or does what its key says.
func (c *change) storeOne(ctx context.Context, r *store.NewRun, row queries.InsertRunParams) (store.Receipt, error) {
	receipt := store.Receipt{ID: r.ID, Existing: true}
	verdict := store.TakesKey
	var holder queries.FindHolderRow
	if r.Key.Text != "" {
		_, err := c.FindState(ctx, queries.FindStateParams{ID: r.ID[:]})
		if !errors.Is(err, sql.ErrNoRows) {
			return receipt, err
		}
		holder, err = c.FindHolder(ctx, queries.FindHolderParams{Job: r.Job, Key: r.Key.Text})
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return receipt, err
		}
		verdict = r.Key.Judge(r.ID, c.holderOf(&holder))
	}
	switch verdict {
	case store.LeavesHolder:
		receipt.ID = store.RunID(holder.RunID)
		return receipt, nil
	case store.ReplacesHolder:
		receipt.ID = store.RunID(holder.RunID)
		return receipt, c.replace(ctx, r, &holder, row)
	default:
		stored, err := c.insertOne(ctx, r, row)
		receipt.Existing = !stored
		return receipt, err
	}
}

// holderOf returns the run that holds a key, in the form that the decision takes.
func (c *change) holderOf(row *queries.FindHolderRow) store.KeyHolder {
	if row.State == nil {
		return store.KeyHolder{}
	}
	return store.KeyHolder{
		Stored: true, Latest: store.RunID(row.Latest), State: rules.StateForKey(store.State(*row.State), row.Begun != 0), //nolint:gosec // 0 to 5
		Held: row.HeldTo != nil && *row.HeldTo > c.now,
	}
}

// insertOne stores a run with its place in the line and gives it its key. A run
// without a key may be there.
func (c *change) insertOne(ctx context.Context, r *store.NewRun, row queries.InsertRunParams) (stored bool, err error) {
	rows, err := c.InsertKeyed(ctx, queries.InsertKeyedParams{
		ID: row.ID, CreatedAt: row.CreatedAt, DueAt: row.DueAt, ExpiresAt: row.ExpiresAt, Timeout: row.Timeout, Lane: row.Lane,
		MaxAttempts: row.MaxAttempts, OnCrash: row.OnCrash, Tags: row.Tags, Metadata: row.Metadata, Trace: row.Trace, Args: row.Args, Key: rules.TextOrNil(r.Key.Text),
		Limits: limitsText(r.Limits),
	})
	if err != nil || rows == 0 {
		return false, err
	}
	if err := c.intoLine(ctx, row.Lane, row.DueAt, row.ID, limitsText(r.Limits)); err != nil {
		return false, err
	}
	if r.Key.Text == "" {
		return true, nil
	}
	take := queries.TakeKeyParams{Job: r.Job, Key: r.Key.Text, RunID: row.ID}
	if r.Key.HeldFor > 0 {
		to := c.now + r.Key.HeldFor.Microseconds()
		take.HeldTo = &to
	}
	return true, c.TakeKey(ctx, take)
}

// replace gives a pending run what another has that was enqueued for it, and
// another place in the line.
func (c *change) replace(ctx context.Context, r *store.NewRun, holder *queries.FindHolderRow, row queries.InsertRunParams) error {
	lane := row.Lane
	if *holder.Lane < 0 { // isolated, and stays so
		lane = -lane
	}
	due := max(r.ReplacedDue(instant(c.now), instant(*holder.CreatedAt)).UnixMicro(), 0)
	if err := c.outOfLine(ctx, *holder.Lane, *holder.DueAt, holder.RunID, holder.Limits); err != nil {
		return err
	}
	if err := c.releaseDeleted(ctx, holder.RunID, holder.Limits); err != nil {
		return err
	}
	err := c.ReplaceRun(ctx, queries.ReplaceRunParams{
		ID: holder.RunID, Lane: lane, DueAt: due, ExpiresAt: row.ExpiresAt, Timeout: row.Timeout,
		MaxAttempts: row.MaxAttempts, OnCrash: row.OnCrash, Tags: row.Tags, Metadata: row.Metadata, Trace: row.Trace, Args: row.Args,
		Limits: limitsText(r.Limits),
	})
	if err != nil {
		return err
	}
	if err := c.intoLine(ctx, lane, due, holder.RunID, limitsText(r.Limits)); err != nil {
		return err
	}
	if err := c.DeleteProgress(ctx, queries.DeleteProgressParams{RunID: holder.RunID}); err != nil {
		return err
	}
	return c.SetLatest(ctx, queries.SetLatestParams{Latest: r.ID[:], Job: r.Job, Key: r.Key.Text})
}
