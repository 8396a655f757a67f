package postgres

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// places are where runs wait: the lanes and the limits that they need, with their
// numbers.
type places struct {
	lanes  laneSet
	limits limitSet // nil: no run is limited
}

// limitSet is the limits that some runs need, by name; nil: not known.
type limitSet map[string]*knownLimit

// knownLimit is a limit as it was when it was read. Its number and kind never change.
type knownLimit struct {
	store.Limit

	declared bool // by a worker
}

// limitLane is a lane in which runs of a limit have waited.
type limitLane struct {
	limit store.LimitID
	lane  store.LaneID
}

// limitCache remembers limits, and in which lanes runs of theirs have waited. They are
// committed when they get here, and their rows are never deleted; but a failover may take them
// back, so each statement that stores limited runs verifies them (see queries.EnqueueLimited).
type limitCache struct {
	mu     sync.RWMutex
	byName limitSet
	lanes  map[limitLane]struct{}
}

// limitCacheMost is far above what a program uses.
const limitCacheMost = 100_000

func (c *limitCache) remember(found limitSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byName) > limitCacheMost {
		clear(c.byName)
	}
	maps.Copy(c.byName, found)
}

func (c *limitCache) rememberLanes(known []limitLane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lanes) > limitCacheMost {
		clear(c.lanes)
	}
	for _, one := range known {
		c.lanes[one] = struct{}{}
	}
}

func (c *limitCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byName)
	clear(c.lanes)
}

// find answers admit: nil for a limit that is not known.
func (l limitSet) find(name string) *store.Limit {
	if known := l[name]; known != nil && rules.KnownLimit(known.State, known.declared) {
		return &known.Limit
	}
	return nil
}

// placesOf names the lanes and the limits of the runs.
func placesOf(runs []store.NewRun) places {
	set := places{lanes: laneSet{}}
	last := &store.NewRun{}
	for i := range runs {
		run := &runs[i]
		if !sameLane(last, run) {
			set.lanes[laneOf(run)], last = 0, run
		}
		for j := range run.Limits {
			if set.limits == nil {
				set.limits = limitSet{}
			}
			set.limits[store.LimitName(run.Limits[j].Limit)] = nil
		}
	}
	return set
}

// placeIDs is laneIDs for places: it finds the limits, too, and refuses runs whose
// limits are not known, or may not be used so, before anything is stored, new lanes
// included.
func (s *Store) placeIDs(ctx context.Context, set places, runs []store.NewRun) error {
	if set.limits != nil {
		if err := s.checkLimits(ctx, s.db.Aloof(), set, runs); err != nil {
			return err
		}
	}
	if err := s.laneIDs(ctx, set.lanes); err != nil || set.limits == nil {
		return err
	}
	missing, err := s.findLimitLanes(ctx, s.db.Aloof(), limitLanesOf(set, runs))
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := s.createLimitLanes(ctx, missing); err != nil {
		return err
	}
	s.limits.rememberLanes(missing)
	return nil
}

// placesIn is placeIDs for a transaction of this store, as lanesIn is laneIDs.
func (s *Store) placesIn(ctx context.Context, tx pgx.Tx, set places, runs []store.NewRun) error {
	if set.limits != nil {
		if err := s.checkLimits(ctx, tx, set, runs); err != nil {
			return err
		}
	}
	if err := s.lanesIn(ctx, tx, set.lanes); err != nil || set.limits == nil {
		return err
	}
	return s.limitLanesIn(ctx, tx, set, runs)
}

func (s *Store) limitLanesIn(ctx context.Context, tx pgx.Tx, set places, runs []store.NewRun) error {
	missing, err := s.findLimitLanes(ctx, tx, limitLanesOf(set, runs))
	if err == nil && len(missing) > 0 {
		err = &newLanesError{limits: missing}
	}
	return err
}

// checkLimits fills in the limits and refuses runs that may not use them in this way. Before it
// refuses a run it asks the database, since the cache may be out of date.
func (s *Store) checkLimits(ctx context.Context, in queries.DBTX, set places, runs []store.NewRun) error {
	if err := s.findLimits(ctx, in, set.limits, true); err != nil {
		return err
	}
	if refused(runs, set.limits) == nil {
		return nil
	}
	if err := s.findLimits(ctx, in, set.limits, false); err != nil {
		return err
	}
	return refused(runs, set.limits)
}

// refused returns why the first run that may not be stored is refused.
func refused(runs []store.NewRun, set limitSet) error {
	for i := range runs {
		if len(runs[i].Limits) == 0 {
			continue
		}
		if _, err := admit.UsesOf(runs[i].Limits, set.find); err != nil {
			return err
		}
	}
	return nil
}

// findLimits fills in the limits that the cache, if it is asked, or the database has.
func (s *Store) findLimits(ctx context.Context, in queries.DBTX, set limitSet, cached bool) error {
	var names []string
	s.limits.mu.RLock()
	for name := range set {
		if set[name] = s.limits.byName[name]; set[name] == nil || !cached {
			names = append(names, name)
		}
	}
	s.limits.mu.RUnlock()
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	rows, err := s.db.Queries(in).FindLimits(ctx, queries.FindLimitsParams{Names: names})
	if err != nil {
		return err
	}
	found := make(limitSet, len(rows))
	for i := range rows {
		one := &knownLimit{declared: rows[i].Declared}
		row := rows[i]
		one.Limit = toLimit(&queries.ReadLimitsRow{ID: row.ID, Name: row.Name, Kind: row.Kind, Most: row.Most, Period: row.Period, Burst: row.Burst,
			Buckets: row.Buckets, KeyLeast: row.KeyLeast, KeyMost: row.KeyMost, Action: row.Action, RetryAfter: row.RetryAfter, State: row.State, Secret: row.Secret})
		found[row.Name] = one
	}
	for _, name := range names {
		set[name] = found[name]
	}
	s.limits.remember(found)
	return nil
}

func toLimit(row *queries.ReadLimitsRow) store.Limit {
	limit := store.Limit{
		ID: row.ID, Name: row.Name, Kind: store.LimitKind(row.Kind), Max: int(row.Most), Period: conn.FromMicro(row.Period), Burst: int(row.Burst),
		Buckets: int(row.Buckets), Least: int(row.KeyLeast), Most: int(row.KeyMost), WhenFull: store.LimitAction(row.Action),
		RetryAfter: conn.FromMicro(row.RetryAfter), State: store.LimitState(row.State), Secret: row.Secret,
	}
	return limit.AsRead()
}

// limitLanesOf are the lanes in which the runs may wait for their limits.
func limitLanesOf(set places, runs []store.NewRun) []limitLane {
	seen := map[limitLane]struct{}{}
	for i := range runs {
		run := &runs[i]
		for j := range run.Limits {
			if known := set.limits[store.LimitName(run.Limits[j].Limit)]; known != nil {
				seen[limitLane{known.ID, set.lanes[laneOf(run)]}] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), compareLimitLanes)
}

func compareLimitLanes(a, b limitLane) int {
	if a.limit != b.limit {
		return int(a.limit - b.limit)
	}
	return int(a.lane - b.lane)
}

// findLimitLanes returns those that neither the cache nor the database has.
func (s *Store) findLimitLanes(ctx context.Context, in queries.DBTX, wanted []limitLane) (missing []limitLane, err error) {
	s.limits.mu.RLock()
	missing = slices.DeleteFunc(wanted, func(one limitLane) bool { _, ok := s.limits.lanes[one]; return ok })
	s.limits.mu.RUnlock()
	if len(missing) == 0 {
		return nil, nil
	}
	rows, err := s.db.Queries(in).KnownLimitLanes(ctx, queries.KnownLimitLanesParams(limitLaneColumns(missing)))
	if err != nil {
		return nil, err
	}
	known := make([]limitLane, len(rows))
	for i, row := range rows {
		known[i] = limitLane{row.LimitID, row.Lane}
	}
	s.limits.rememberLanes(known)
	return slices.DeleteFunc(missing, func(one limitLane) bool { return slices.Contains(known, one) }), nil
}

// createLimitLanes makes them on a connection of their own, as createLanes does.
func (s *Store) createLimitLanes(ctx context.Context, missing []limitLane) error {
	return s.db.Repeat(ctx, func() error {
		columns := limitLaneColumns(missing)
		b := s.db.Guarded(ctx)
		b.Add(queries.CreateLimitLanes, columns.Limits, columns.Lanes)
		return s.db.Send(ctx, s.db.Aloof(), b)
	})
}

func limitLaneColumns(all []limitLane) (c queries.CreateLimitLanesParams) {
	for _, one := range all {
		c.Limits, c.Lanes = append(c.Limits, one.limit), append(c.Lanes, one.lane)
	}
	return c
}

// anyLimited reports whether a run has limits.
func anyLimited(runs []store.NewRun) bool {
	return slices.ContainsFunc(runs, func(run store.NewRun) bool { return len(run.Limits) > 0 })
}

// apart divides runs into those that are not limited and those that are.
func apart(runs []store.NewRun) (plain, limited []store.NewRun) {
	if !anyLimited(runs) {
		return runs, nil
	}
	for i := range runs {
		if len(runs[i].Limits) == 0 {
			plain = append(plain, runs[i])
		} else {
			limited = append(limited, runs[i])
		}
	}
	return plain, limited
}

// standing is what the row of a run holds about its limits, as arrays in text.
type standing struct {
	gates, limits, weights, strict, gives *string
}

// standingOf returns that of a run; for one that is not limited all of it is null.
func standingOf(run *store.NewRun, set limitSet) (row standing) {
	if len(run.Limits) == 0 {
		return row
	}
	var gates, weights, strict, gives []string
	heavy := false
	uses := admit.StoredUses(run.Limits, func(name string) *store.Limit { return &set[name].Limit })
	if line := admit.SetOf(uses); line != 0 { // its line comes first
		gates, weights = append(gates, strconv.FormatInt(int64(line), 10)), append(weights, "1")
	}
	for _, use := range uses {
		gate := strconv.FormatInt(int64(use.Gate), 10)
		if use.Mode == store.LimitRelease {
			gives = append(gives, gate+":"+use.Owner.String())
			continue
		}
		gates, weights = append(gates, gate), append(weights, strconv.Itoa(use.Weight))
		heavy = heavy || use.Weight != 1
		if use.Until == store.UntilFinished || use.Until == store.UntilFinishedOrRevived {
			strict = append(strict, gate)
		}
	}
	list := "{" + strings.Join(gates, ",") + "}"
	row.gates, row.limits, row.strict, row.gives = &list, conn.TextArray(store.LimitTexts(run.Limits)), conn.TextArray(strict), conn.TextArray(gives)
	if heavy {
		row.weights = conn.TextArray(weights)
	}
	return row
}

// learnt are the numbers of the limits with the names that they stand for.
func (l limitSet) learnt() (ids []int32, names []string, secrets conn.UUIDs) {
	for _, name := range slices.Sorted(maps.Keys(l)) {
		ids, names, secrets = append(ids, l[name].ID), append(names, name), append(secrets, l[name].Secret)
	}
	return ids, names, secrets
}

// only are those of one run.
func (l limitSet) only(run *store.NewRun) limitSet {
	own := limitSet{}
	for i := range run.Limits {
		name := store.LimitName(run.Limits[i].Limit)
		own[name] = l[name]
	}
	return own
}

// occurrence identifies the schedule and the instant that a run was created for; zero: none.
type occurrence struct {
	schedule   int32
	generation int64
	key        *string
	at, name   *string
}

// addLimited adds the inserts of limited runs. of may be nil.
func addLimited(b *conn.Batch, runs []store.NewRun, set places, of func(i int) occurrence, each func(pgx.Rows) error) {
	ids, names, secrets := set.limits.learnt()
	lines := limitLaneColumns(limitLanesOf(set, runs))
	at := 0
	for _, part := range parts(runs) {
		n := len(part)
		schedules, generations, keys, ats, called := make([]int32, n), make([]int64, n), make([]*string, n), make([]*string, n), make([]*string, n)
		gates, limits, weights, strict, gives := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
		for i := range part {
			if of != nil {
				o := of(at + i)
				schedules[i], generations[i], keys[i], ats[i], called[i] = o.schedule, o.generation, o.key, o.at, o.name
			}
			row := standingOf(&part[i], set.limits)
			gates[i], limits[i], weights[i], strict[i], gives[i] = row.gates, row.limits, row.weights, row.strict, row.gives
		}
		at += n
		c := columnsOf(part, set)
		args := append(c.served(), ids, names, secrets, lines.Limits, lines.Lanes, c.ids)
		args = append(append(args, c.each()...), keyTexts(part), traces(part), schedules, generations, keys, ats, called, gates, limits, weights, strict, gives)
		b.Add(queries.EnqueueLimited, args...).Query(each)
	}
}

// limitsOf reads what the row of a run holds about its limits. It leaves out what cannot be
// read, which only a change by hand can cause.
func limitsOf(texts []string) (uses []store.LimitUse) {
	for _, text := range texts {
		if use, err := store.ParseLimitUse(text); err == nil {
			uses = append(uses, use)
		}
	}
	return uses
}
