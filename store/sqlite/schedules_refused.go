package sqlite

import (
	"context"
	"errors"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// refusedOnItsOwn is a schedule whose decision SQLite has not taken.
type refusedOnItsOwn struct {
	row *queries.DueSchedulesRow
	err error
}

// judgeRefused rests the schedules with a fault that are to blame for what was refused. It
// fails when none is known to be: no decision was stored, so that nothing is lost
// with the transaction, and those that were refused rest for a moment, in which the
// ones behind them have their turn.
func (m *materializing) judgeRefused(ctx context.Context) error {
	if len(m.refused) == 0 {
		return nil
	}
	own := rules.OwnFault(m.taken, len(m.refused), primary(m.refused[0].err) == sqlite3.SQLITE_CONSTRAINT)
	for _, one := range m.refused {
		if !own {
			if again, blamed := m.store.resting.Doubt(one.row.Name, m.store.elapsed()); blamed {
				m.pass(one.row.Name, one.err, again)
			}
			continue
		}
		aside := func(err error) {
			m.pass(one.row.Name, err, m.store.resting.Put(one.row.Name, m.store.elapsed()))
		}
		if err := m.around(ctx, func() error { return m.one(ctx, one.row, one.err.Error()) }, aside); err != nil {
			return err
		}
	}
	if !own && len(m.done.SetAside) == 0 {
		return errors.Join(rules.ErrNoneAdvanced, m.refused[0].err)
	}
	return nil
}

// pass skips a schedule that is set aside.
func (m *materializing) pass(name string, err error, again time.Duration) {
	m.resting = append(m.resting, name)
	m.done.SetAside = append(m.done.SetAside, store.SetAside{Kind: "schedule", Name: name, Again: again, Err: err})
}
