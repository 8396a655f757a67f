package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// runningMost bounds the runs in leases that a survey looks up.
const runningMost = 10_000

// Workers lists the workers as they last reported.
func (s *Store) Workers(ctx context.Context) ([]store.WorkerInfo, error) {
	listed, err := s.listWorkers(ctx)
	if err != nil {
		return nil, fmt.Errorf("workers: %w", s.explain(err))
	}
	return listed, nil
}

func (s *Store) listWorkers(ctx context.Context) ([]store.WorkerInfo, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	now := s.clock.now()
	held, err := reader.CountLeases(ctx, queries.CountLeasesParams{Now: now})
	if err != nil {
		return nil, err
	}
	leases := map[string]int{}
	for _, row := range held {
		leases[string(row.WorkerInstance)] = int(row.Leases)
	}
	rows, err := reader.ListWorkers(ctx)
	if err != nil {
		return nil, err
	}
	listed := []store.WorkerInfo{}
	for _, row := range rows {
		n := leases[string(row.Instance)]
		if now-row.ReportedAt > store.ListedFor.Microseconds() && n == 0 {
			continue
		}
		presence, err := rules.PresenceOf(row.Report)
		if err != nil {
			return nil, err
		}
		instance, err := uuid.FromBytes(row.Instance)
		if err != nil {
			return nil, err
		}
		listed = append(listed, rules.Seen(store.WorkerInfo{Name: row.Name, Instance: instance, StartedAt: instant(row.StartedAt),
			SeenAt: instant(row.ReportedAt), Leases: n, Presence: presence}, instant(now)))
	}
	rules.SortWorkers(listed)
	return listed, nil
}

// Survey counts what waits and runs, up to a bound for each line.
func (s *Store) Survey(ctx context.Context) (store.Survey, error) {
	survey, err := s.survey(ctx)
	if err != nil {
		return survey, fmt.Errorf("survey: %w", s.explain(err))
	}
	return survey, nil
}

func (s *Store) survey(ctx context.Context) (store.Survey, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return store.Survey{}, err
	}
	now := s.clock.now()
	running, some, err := reader.running(ctx)
	if err != nil {
		return store.Survey{}, err
	}
	limited, someLimited, err := reader.waitingByLane(ctx, now)
	if err != nil {
		return store.Survey{}, err
	}
	rows, err := reader.SurveyLanes(ctx, queries.SurveyLanesParams{Most: countMost, Now: now, Lanes: store.MaxSurveyLanes})
	if err != nil {
		return store.Survey{}, err
	}
	expired, err := reader.CountExpired(ctx, queries.CountExpiredParams{Before: now - rules.LeftBehind.Microseconds()})
	if err != nil {
		return store.Survey{}, err
	}
	byName := map[laneName]*store.LaneInfo{}
	for i := range rows {
		row := &rows[i]
		name := laneName{queue: row.Queue, job: row.Job} // of any priority
		info := byName[name]
		if info == nil {
			info = &store.LaneInfo{Queue: row.Queue, Job: row.Job, Paused: row.Paused != 0}
			info.Running.AtLeast = some
			byName[name] = info
		}
		more := max(row.Ordinary, row.Isolated) >= countMost
		info.Pending = store.Count{N: info.Pending.N + row.Ordinary + row.Isolated, AtLeast: info.Pending.AtLeast || more}
		info.Due = store.Count{N: info.Due.N + row.Due, AtLeast: info.Due.AtLeast || more && row.Due > 0}
		info.Running.N += running[row.ID]
		info.Isolated = info.Isolated.Plus(store.Count{N: row.Isolated, AtLeast: row.Isolated >= countMost})
		if l, waits := limited[row.ID]; waits {
			info.Pending = info.Pending.Plus(store.Count{N: l.Pending, AtLeast: someLimited})
			info.Isolated = info.Isolated.Plus(store.Count{N: l.Isolated, AtLeast: someLimited && l.Isolated > 0})
			info.Due = info.Due.Plus(store.Count{N: l.Due, AtLeast: someLimited && l.Due > 0})
			row.Oldest = min(row.Oldest, l.Oldest)
		}
		if at := instant(row.Oldest); row.Oldest != math.MaxInt64 && (info.OldestDue == nil || at.Before(*info.OldestDue)) {
			info.OldestDue = &at
		}
	}
	survey := store.Survey{At: instant(now), Lanes: []store.LaneInfo{}, ExpiredLeases: store.Count{N: expired}, Partial: len(rows) >= store.MaxSurveyLanes}
	for _, info := range byName {
		survey.Lanes = append(survey.Lanes, *info)
	}
	slices.SortFunc(survey.Lanes, func(a, b store.LaneInfo) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Job, b.Job))
	})
	return survey, reader.surveyNotices(ctx, &survey)
}

// surveyNotices counts notices, up to a bound, and finds the first of them.
func (l *lookups) surveyNotices(ctx context.Context, survey *store.Survey) error {
	notices, err := l.CountNotices(ctx, queries.CountNoticesParams{Most: countMost})
	if err != nil || notices.Notices == 0 {
		return err
	}
	oldest := instant(notices.Oldest)
	survey.Notices, survey.OldestNotice = store.Count{N: notices.Notices, AtLeast: notices.Notices >= countMost}, &oldest
	return nil
}

// waitingByLane counts the runs that wait for limits, up to a bound.
func (l *lookups) waitingByLane(ctx context.Context, now int64) (byLane map[int64]queries.CountWaitingLanesRow, some bool, err error) {
	rows, err := l.CountWaitingLanes(ctx, queries.CountWaitingLanesParams{Now: now, Most: countMost})
	byLane, total := map[int64]queries.CountWaitingLanesRow{}, int64(0)
	for _, row := range rows {
		byLane[row.Lane] = row
		total += row.Pending
	}
	return byLane, total >= countMost, err
}

// running counts the runs that claims are executing, by lane, up to a bound.
func (l *lookups) running(ctx context.Context) (byLane map[int64]int64, some bool, err error) {
	byLane = map[int64]int64{}
	leases, err := l.ListHeld(ctx, queries.ListHeldParams{Most: runningMost})
	left := runningMost
	for i := range leases {
		for id := range slices.Chunk(leases[i].RunIds, len(store.RunID{})) {
			if left--; left < 0 {
				return byLane, true, nil
			}
			lane, err := l.FindRunningLane(ctx, queries.FindRunningLaneParams{ID: id, ClaimID: leases[i].ClaimID})
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return nil, false, err
			}
			byLane[lane]++
		}
	}
	return byLane, false, err
}
