package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// workersMost bounds the workers that are listed: those that reported last.
const workersMost = 10_000

// Workers lists the workers as they last reported.
func (s *Store) Workers(ctx context.Context) ([]store.WorkerInfo, error) {
	var rows []queries.WorkersRow
	err := s.inspect(ctx, func(b *batch) {
		b.add(queries.Workers, micro(store.ListedFor), int32(workersMost)).Query(collect(&rows))
	})
	if err != nil {
		return nil, s.fail("workers", err)
	}
	listed, err := toWorkers(rows)
	if err != nil {
		return nil, s.fail("workers", err)
	}
	return listed, nil
}

func toWorkers(rows []queries.WorkersRow) ([]store.WorkerInfo, error) {
	listed := make([]store.WorkerInfo, len(rows))
	for i, row := range rows {
		presence, err := rules.PresenceOf(row.Report)
		if err != nil {
			return nil, err
		}
		listed[i] = rules.Seen(store.WorkerInfo{Name: row.Name, Instance: row.Instance, StartedAt: row.StartedAt.UTC(), SeenAt: row.ReportedAt.UTC(),
			Leases: int(row.Leases), Presence: presence}, row.Now)
	}
	rules.SortWorkers(listed)
	return listed, nil
}

// Survey counts what waits and runs. Of a line no more than ten thousand runs are
// counted, and fewer where there are many lanes, as for Queues; and no more than so many
// running ones.
func (s *Store) Survey(ctx context.Context) (store.Survey, error) {
	survey := store.Survey{Lanes: []store.LaneInfo{}}
	most, err := s.laneBound(ctx)
	if err != nil {
		return survey, s.fail("survey", err)
	}
	var rows []queries.SurveyLanesRow
	err = s.inspect(ctx, func(b *batch) {
		b.add(queries.SurveyedAt).QueryRow(func(row pgx.Row) error { return row.Scan(&survey.At) })
		b.add(queries.ExpiredLeases, micro(rules.LeftBehind), int32(laneCountMost)).QueryRow(func(row pgx.Row) error { return row.Scan(&survey.ExpiredLeases.N) })
		b.add(queries.SurveyLanes, int32(laneCountMost), int32(store.MaxSurveyLanes), small(int(most))).Query(collect(&rows))
	})
	if err != nil {
		return survey, s.fail("survey", err)
	}
	survey.At, survey.ExpiredLeases.AtLeast = survey.At.UTC(), survey.ExpiredLeases.N >= laneCountMost
	for i, row := range rows {
		more := row.Largest >= most
		lane := store.LaneInfo{Queue: row.Queue, Job: row.Job, Paused: row.Paused,
			Pending: store.Count{N: row.Pending, Estimated: more}, Due: store.Count{N: row.Due, Estimated: more && row.Due > 0},
			Isolated: store.Count{N: row.Isolated, Estimated: row.Isolated >= most},
			Running:  store.Count{N: row.Running, Estimated: row.Held >= laneCountMost}}
		if row.Pending > 0 {
			lane.OldestDue = timesUTC(&rows[i].Oldest)
		}
		survey.Lanes = append(survey.Lanes, lane)
		survey.Partial = row.Lanes >= store.MaxSurveyLanes
	}
	return survey, nil
}

// inspect asks what an operator wants to know.
func (s *Store) inspect(ctx context.Context, ask func(*batch)) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	b := s.guarded(ctx)
	ask(b)
	return s.send(ctx, s.reading, b)
}

func collect[R any](rows *[]R) func(pgx.Rows) error {
	return func(found pgx.Rows) (err error) {
		*rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[R])
		return err
	}
}
