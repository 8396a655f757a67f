package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// Workers lists the workers as they last reported.
func (s *Store) Workers(ctx context.Context) ([]store.WorkerInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listWorkers(s.now()), nil
}

// listWorkers lists the workers by name. The caller holds mu.
func (s *Store) listWorkers(now time.Time) []store.WorkerInfo {
	leases := map[uuid.UUID]int{}
	for _, held := range s.leases {
		if held.expiresAt.After(now) {
			leases[held.worker.Instance]++
		}
	}
	listed := []store.WorkerInfo{}
	for instance, w := range s.workers {
		if w.presence == nil || now.Sub(w.reportedAt) > store.ListedFor && leases[instance] == 0 {
			continue
		}
		listed = append(listed, rules.Seen(store.WorkerInfo{Name: w.name, Instance: instance, StartedAt: w.startedAt, SeenAt: w.reportedAt,
			Leases: leases[instance], Presence: clonePresence(w.presence)}, now))
	}
	rules.SortWorkers(listed)
	return listed
}

func clonePresence(p *store.Presence) store.Presence {
	c := *p
	c.Queues, c.Jobs = append([]string{}, p.Queues...), append([]string{}, p.Jobs...)
	c.Caps = slices.Clone(p.Caps)
	return c
}

// Survey counts the runs of every lane, exactly.
func (s *Store) Survey(ctx context.Context) (store.Survey, error) {
	if err := ctx.Err(); err != nil {
		return store.Survey{}, fmt.Errorf("survey: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	survey := store.Survey{At: s.now(), Lanes: []store.LaneInfo{}}
	byName := map[laneName]*store.LaneInfo{}
	infoOf := func(l *lane) *store.LaneInfo {
		name := laneName{queue: l.name.queue, job: l.name.job}
		if byName[name] == nil {
			byName[name] = &store.LaneInfo{Queue: name.queue, Job: name.job, Paused: s.queues[name.queue]}
		}
		return byName[name]
	}
	for _, l := range s.leases {
		if survey.At.Sub(l.expiresAt) > rules.LeftBehind {
			survey.ExpiredLeases.N++
		}
	}
	for i := range s.notices {
		survey.Notices.N++
		if at := s.notices[i].dueAt; survey.OldestNotice == nil || at.Before(*survey.OldestNotice) {
			survey.OldestNotice = &at
		}
	}
	for _, l := range s.lanes {
		info := infoOf(l)
		info.Isolated.N += int64(len(l.isolated.runs))
		for _, waiting := range [][]*run{l.plain.runs, l.isolated.runs} {
			addWaiting(info, waiting, survey.At)
		}
	}
	for _, g := range s.limits.gates { // they stand in no line of their lane
		for id, waiting := range g.lines {
			info := infoOf(s.lanes[max(id, -id)-1])
			addWaiting(info, waiting.runs, survey.At)
			if id < 0 {
				info.Isolated.N += int64(len(waiting.runs))
			}
		}
	}
	for _, r := range s.byID {
		if r.state == store.Running {
			infoOf(r.lane).Running.N++
		}
	}
	for _, info := range byName {
		survey.Lanes = append(survey.Lanes, *info)
	}
	slices.SortFunc(survey.Lanes, func(a, b store.LaneInfo) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Job, b.Job))
	})
	return survey, nil
}

// addWaiting counts the runs of a line.
func addWaiting(info *store.LaneInfo, waiting []*run, now time.Time) {
	info.Pending.N += int64(len(waiting))
	for _, r := range waiting {
		if r.dueAt.After(now) {
			break
		}
		info.Due.N++
	}
	if len(waiting) > 0 && (info.OldestDue == nil || waiting[0].dueAt.Before(*info.OldestDue)) {
		info.OldestDue = timeOrNil(waiting[0].dueAt)
	}
}
