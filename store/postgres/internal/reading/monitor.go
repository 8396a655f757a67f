package reading

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// workersMost bounds the workers that are listed: those that reported last.
const workersMost = 10_000

// Workers lists the workers as they last reported.
func (r *Reader) Workers(ctx context.Context) ([]store.WorkerInfo, error) {
	var rows []queries.WorkersRow
	err := r.inspect(ctx, func(b *conn.Batch) {
		b.Add(queries.Workers, conn.Micro(store.ListedFor), int32(workersMost)).Query(conn.Collect(&rows))
	})
	if err != nil {
		return nil, r.db.Fail("workers", err)
	}
	listed, err := toWorkers(rows)
	if err != nil {
		return nil, r.db.Fail("workers", err)
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

// Bounds of what a survey counts.
const (
	// laneCountMost bounds how many runs of one line are counted, and how many that wait for
	// limits.
	laneCountMost = 10_000
	// laneCountLeast is how many are counted however many lanes there are.
	laneCountLeast = 500
	// lanesCountMost bounds how many are counted of all lines together, otherwise.
	lanesCountMost = 50_000
	// heldCountMost bounds the running ones: each is looked up.
	heldCountMost = 2_000
)

// Survey counts what waits and runs. Of a line no more than ten thousand runs are
// counted, and fewer where there are more than five lanes, but five hundred at least; of
// those that are running, two thousand. A number that was not counted to its end is a lower
// bound, and marked as one.
func (r *Reader) Survey(ctx context.Context) (store.Survey, error) {
	survey := store.Survey{Lanes: []store.LaneInfo{}}
	var rows []queries.SurveyLanesRow
	err := r.inspect(ctx, func(b *conn.Batch) {
		b.Add(queries.SurveyedAt).QueryRow(func(row pgx.Row) error { return row.Scan(&survey.At) })
		b.Add(queries.ExpiredLeases, conn.Micro(rules.LeftBehind), int32(laneCountMost)).QueryRow(func(row pgx.Row) error { return row.Scan(&survey.ExpiredLeases.N) })
		b.Add(queries.CountNotices, int32(laneCountMost)).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&survey.Notices.N, &survey.OldestNotice); err != nil {
					return err
				}
			}
			return rows.Err()
		})
		b.Add(queries.SurveyLanes, int32(laneCountLeast), int32(laneCountMost), int32(lanesCountMost), int32(heldCountMost), int32(store.MaxSurveyLanes)).Query(conn.Collect(&rows))
	})
	if err != nil {
		return survey, r.db.Fail("survey", err)
	}
	survey.At, survey.ExpiredLeases.AtLeast = survey.At.UTC(), survey.ExpiredLeases.N >= laneCountMost
	survey.Notices.AtLeast, survey.OldestNotice = survey.Notices.N >= laneCountMost, conn.TimesUTC(survey.OldestNotice)
	for i, row := range rows {
		lane := store.LaneInfo{Queue: row.Queue, Job: row.Job, Paused: row.Paused,
			Pending: store.Count{N: row.Pending, AtLeast: row.Largest >= row.LineMost}, Due: store.Count{N: row.Due, AtLeast: row.LargestDue >= row.LineMost},
			Isolated: store.Count{N: row.Isolated, AtLeast: row.LargestIsolated >= row.LineMost},
			Running:  store.Count{N: row.Running, AtLeast: row.Held >= heldCountMost}}
		if row.Pending > 0 {
			lane.OldestDue = conn.TimesUTC(&rows[i].Oldest)
		}
		survey.Lanes = append(survey.Lanes, lane)
		survey.Partial = row.Lanes >= store.MaxSurveyLanes
	}
	return survey, nil
}
