package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// declareLimits stores what a worker that started at an instant declares, and
// returns what it refuses.
func (s *Store) declareLimits(declared []store.Limit, started, now time.Time) (refused []store.SetAside) {
	for _, one := range declared {
		if err := s.declareLimit(one, started, now); err != nil {
			refused = append(refused, store.SetAside{Kind: rules.KindLimit, Name: one.Name, Again: store.DeclareAgain, Err: err})
		}
	}
	return refused
}

func (s *Store) declareLimit(declared store.Limit, started, now time.Time) error {
	if err := store.CheckLimit(declared); err != nil {
		return err
	}
	hash := declared.Hash()
	known := s.limits.byName[store.LimitName(declared.Name)]
	if known == nil {
		known = s.addLimit(declared)
		known.declaredAt, known.hash, known.hashAt, known.broughtAt = now, hash, now, started
		return nil
	}
	made, err := rules.DeclareLimit(declared, &known.Limit)
	if err != nil {
		return err
	}
	known.declaredAt = now
	version := rules.Declared{Hash: known.hash, At: known.hashAt, Brought: known.broughtAt}
	switch {
	case known.hash == hash:
		known.hashAt = now
	case rules.Supersedes(hash, started, version, now):
		known.Limit = *made
		known.hash, known.hashAt, known.broughtAt, known.edited = hash, now, started, false
		s.announceAll(known, now)
	}
	return nil
}

// addLimit stores a new limit.
func (s *Store) addLimit(one store.Limit) *limit {
	one.ID = store.LimitID(len(s.limits.byID) + 1) //nolint:gosec // memory ends long before
	one.Name, one.State, one.Secret = store.LimitName(one.Name), store.LimitActive, rules.SecretOf(&one)
	known := &limit{Limit: one, lanes: make(map[store.LaneID]bool), gates: make(map[admit.GateID]*gate)}
	s.limits.byID = append(s.limits.byID, known)
	s.limits.byName[one.Name] = known
	return known
}

// announceAll says that each gate of a limit may have room.
func (s *Store) announceAll(known *limit, now time.Time) {
	for _, g := range known.gates {
		s.announce(g, now)
	}
}

// ListLimits lists the limits by name.
func (s *Store) ListLimits(ctx context.Context, filter store.LimitFilter) ([]store.LimitInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list limits: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, infos := s.now(), []store.LimitInfo{}
	named := func(name string) bool {
		return slices.ContainsFunc(filter.Names, func(wanted string) bool { return store.LimitName(wanted) == name })
	}
	for _, known := range s.limits.byID {
		if known.State == store.LimitRemoved || len(filter.Names) > 0 && !named(known.Name) || !filter.Caps && store.IsCap(known.Name) {
			continue
		}
		info := store.LimitInfo{Limit: known.Limit, Edited: known.edited, DeclaredAt: timeOrNil(known.declaredAt), Done: s.limits.tally.Of(known.ID)}
		var next time.Time
		for _, g := range known.gates {
			used, _ := g.used(now)
			info.InUse.N += int64(used)
			waiting, oldest := s.limits.inRound(g)
			if !oldest.IsZero() && (info.OldestDue == nil || oldest.Before(*info.OldestDue)) {
				info.OldestDue = timeOrNil(oldest)
			}
			info.Waiting.N += int64(g.waiting + waiting)
			for _, l := range g.lines {
				if first := l.runs[0].dueAt; info.OldestDue == nil || first.Before(*info.OldestDue) {
					info.OldestDue = timeOrNil(first)
				}
			}
			if at := s.limits.turns.soonest(g.id); g.awaited() && !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		info.NextAt = timeOrNil(next)
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b store.LimitInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos, nil
}

// ChangeLimit changes a limit on behalf of an operator.
func (s *Store) ChangeLimit(ctx context.Context, change store.LimitChange) error {
	if err := firstOf(ctx.Err(), rules.CheckLimitCommand(&change)); err != nil {
		return fmt.Errorf("%s limit: %w", change.Command, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.changeLimit(&change, s.now()); err != nil {
		return fmt.Errorf("%s limit %s: %w", change.Command, change.Limit.Name, err)
	}
	s.hintIf(false)
	return nil
}

func (s *Store) changeLimit(change *store.LimitChange, now time.Time) error {
	name := store.LimitName(change.Limit.Name)
	known := s.limits.byName[name]
	if known == nil && change.Command == store.SetLimit {
		known = s.addLimit(change.Limit)
		known.edited = true
		s.capQueue(known)
		s.noteLimit(change, known, now)
		return nil
	}
	if known == nil || known.State == store.LimitRemoved && change.Command != store.SetLimit && change.Command != store.DeleteLimit {
		return store.ErrNotFound
	}
	switch change.Command {
	case store.ReleasePermit:
		if s.endPermit(known, change, now) {
			s.noteLimit(change, known, now)
		}
		return nil
	case store.LiftPenalty:
		if g := known.gates[admit.GateOf(&known.Limit, change.Key)]; g != nil && g.notBefore.After(now) {
			g.notBefore = time.Time{}
			s.announce(g, now)
			s.noteLimit(change, known, now)
		}
		return nil
	}
	if waiting, held := known.use(now); change.Command == store.DeleteLimit && waiting+held > 0 {
		return rules.LimitInUse(known.Name, waiting, held)
	}
	made, changes, err := rules.ChangedLimit(change, known.Limit)
	if err != nil {
		return err
	}
	known.Limit = made
	if s.capQueue(known); !changes {
		return nil
	}
	known.edited = known.edited || change.Command == store.SetLimit
	s.announceAll(known, now)
	s.noteLimit(change, known, now)
	return nil
}

// use is how many runs wait for a limit, and how many places are held.
func (l *limit) use(now time.Time) (waiting, held int64) {
	for _, g := range l.gates {
		used, _ := g.used(now)
		waiting, held = waiting+int64(g.waiting), held+int64(used)
	}
	return waiting, held
}

// endPermit ends the permit of one owner and reports whether there was one.
func (s *Store) endPermit(known *limit, change *store.LimitChange, now time.Time) (ended bool) {
	g := known.gates[admit.GateOf(&known.Limit, change.Key)]
	if g == nil {
		return false
	}
	g.permits = slices.DeleteFunc(g.permits, func(p *permit) bool {
		if p.owner != change.Owner {
			return false
		}
		if p.run != nil {
			p.run.permits = slices.DeleteFunc(p.run.permits, func(other *permit) bool { return other == p })
		}
		ended = true
		return true
	})
	if ended {
		s.announce(g, now)
	}
	return ended
}

func (s *Store) noteLimit(c *store.LimitChange, known *limit, now time.Time) {
	s.note(change{at: now, kind: rules.KindLimit, subject: known.Name, what: string(c.Command), by: c.By,
		detail: rules.LimitDetail(c, &known.Limit)})
}

// Gate describes one key of a limit.
func (s *Store) Gate(ctx context.Context, limit, key string) (store.GateInfo, error) {
	if err := ctx.Err(); err != nil {
		return store.GateInfo{}, fmt.Errorf("gate: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.limits.byName[store.LimitName(limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.GateInfo{}, fmt.Errorf("limit %s: %w", limit, store.ErrNotFound)
	}
	return s.gateInfo(known, key, s.now()), nil
}

// shown bounds the permits and the waiters of a gate that are shown.
const shown = 100

// permitInfos are the permits by owner, the oldest first.
func (g *gate) permitInfos() (infos []store.PermitInfo) {
	byOwner := map[uuid.UUID]int{}
	for _, p := range g.permits {
		at, known := byOwner[p.owner]
		if !known {
			if at = len(infos); at == shown {
				continue
			}
			byOwner[p.owner] = at
			infos = append(infos, store.PermitInfo{Owner: p.owner, Until: p.until, ExpiresAt: timeOrNil(p.expiresAt)})
		}
		infos[at].Places += p.weight
		if p.run != nil {
			infos[at].Runs = append(infos[at].Runs, p.run.id)
			if p.run.state == store.Running {
				infos[at].Worker = p.run.worker
			}
		}
	}
	return infos
}
