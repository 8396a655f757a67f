package admission

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// Dealing is the outcome of a claim.
type Dealing struct {
	Runs  []store.ClaimedRun
	Dealt int // rows of ready that it deleted; 0: not known

	Schedules map[store.RunID]int32 // of the runs that have one; nil: none has
}

// Scan reads the runs of a claim.
func (d *Dealing) Scan(rows pgx.Rows) error { return d.scanEach(rows, func() {}) }

// scanEach is scan for rows that have more columns at their end. It calls each after each row.
func (d *Dealing) scanEach(rows pgx.Rows, each func(), more ...any) error {
	d.Runs, d.Dealt, d.Schedules = d.Runs[:0], 0, nil
	var trace, key, metadata *string // null for most
	var schedule *int32
	var occursAt *string
	var timeout *int64
	for rows.Next() {
		if len(d.Runs) == 1 && d.Dealt > 1 {
			d.Runs = slices.Grow(d.Runs, d.Dealt-1) // each row says how many there are
		}
		d.Runs = append(d.Runs, store.ClaimedRun{}) // scanned in place
		run := &d.Runs[len(d.Runs)-1]
		err := rows.Scan(append([]any{(*conn.BinaryUUID)(&run.ID), &run.Lane, &run.Attempt, &run.MaxAttempts, &run.CrashCount, (*int64)(&run.Fence),
			&run.DueAt, &run.CreatedAt, &timeout, &run.Expired, &trace, &key, &schedule, &occursAt, &run.Tags, &metadata, &run.Args, &run.Linked, &d.Dealt}, more...)...)
		if err != nil {
			return err
		}
		if timeout != nil {
			run.Timeout = conn.FromMicro(*timeout)
		}
		if trace != nil {
			run.Trace = *trace
		}
		if key != nil {
			run.Key = *key
		}
		if metadata != nil {
			run.Metadata = store.MetadataOf([]byte(*metadata))
		}
		if schedule != nil {
			if d.Schedules == nil {
				d.Schedules = map[store.RunID]int32{}
			}
			d.Schedules[run.ID] = *schedule
		}
		if occursAt != nil {
			run.OccursAt = store.ZonedTime(*occursAt)
		}
		each()
	}
	return rows.Err()
}
