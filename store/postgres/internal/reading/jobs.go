package reading

import (
	"context"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Jobs lists the declared jobs.
func (r *Reader) Jobs(ctx context.Context) ([]store.JobInfo, error) {
	if err := r.schema.Usable(ctx); err != nil {
		return nil, r.db.Fail("jobs", err)
	}
	rows, err := r.db.Queries(r.db.Reading).Jobs(ctx)
	if err != nil {
		return nil, r.db.Fail("jobs", err)
	}
	return toJobs(rows), nil
}

func toJobs(rows []queries.JobsRow) []store.JobInfo {
	jobs := make([]store.JobInfo, len(rows))
	for i := range rows {
		jobs[i] = toJob(&rows[i])
	}
	return jobs
}

func toJob(row *queries.JobsRow) store.JobInfo {
	return store.JobInfo{
		Name: row.Name, Queue: row.Queue, Priority: int(row.Priority), MaxAttempts: int(row.MaxAttempts),
		Timeout: store.Duration(conn.FromMicro(row.Timeout)), OnCrash: store.CrashPolicy(row.OnCrash), Retention: store.Duration(conn.FromMicro(row.Retention)), Limits: rules.JobLimits(rules.TextOrNil(row.Limits)),
		Code: rules.JobCodeOf(rules.TextOrNil(row.Code)),
	}
}
