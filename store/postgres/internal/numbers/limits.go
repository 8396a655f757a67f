package numbers

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Places are where runs wait: the lanes and the limits that they need, with their
// numbers.
type Places struct {
	Lanes  LaneSet
	Limits LimitSet // nil: no run is limited
}

// LimitSet is the limits that some runs need, by name; nil: not known.
type LimitSet map[string]*knownLimit

// knownLimit is a limit as it was when it was read. Its number and kind never change.
type knownLimit struct {
	store.Limit

	declared bool // by a worker
}

// LimitLane is a lane in which runs of a limit have waited.
type LimitLane struct {
	limit store.LimitID
	lane  store.LaneID
}

// limitCache remembers limits, and in which lanes runs of theirs have waited. They are
// committed when they get here, and their rows are never deleted; but a failover may take them
// back, so each statement that stores limited runs verifies them (see queries.EnqueueLimited).
type limitCache struct {
	mu     sync.RWMutex
	byName LimitSet
	lanes  map[LimitLane]struct{}
}

// limitCacheMost is far above what a program uses.
const limitCacheMost = 100_000

func (c *limitCache) remember(found LimitSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byName) > limitCacheMost {
		clear(c.byName)
	}
	maps.Copy(c.byName, found)
}

func (c *limitCache) rememberLanes(known []LimitLane) {
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

// ForgetLimits empties the cache of limits, after one was changed.
func (n *Numbers) ForgetLimits() { n.limits.forget() }

// find answers admit: nil for a limit that is not known.
func (l LimitSet) find(name string) *store.Limit {
	if known := l[name]; known != nil && rules.KnownLimit(known.State, known.declared) {
		return &known.Limit
	}
	return nil
}

// PlacesOf names the lanes and the limits of the runs.
func PlacesOf(runs []store.NewRun) Places {
	set := Places{Lanes: LaneSet{}}
	last := &store.NewRun{}
	for i := range runs {
		run := &runs[i]
		if !SameLane(last, run) {
			set.Lanes[LaneOf(run)], last = 0, run
		}
		for j := range run.Limits {
			if set.Limits == nil {
				set.Limits = LimitSet{}
			}
			set.Limits[store.LimitName(run.Limits[j].Limit)] = nil
		}
	}
	return set
}

// PlaceIDs is LaneIDs for places: it finds the limits, too, and refuses runs whose
// limits are not known, or may not be used so, before anything is stored, new lanes
// included.
func (n *Numbers) PlaceIDs(ctx context.Context, set Places, runs []store.NewRun) error {
	if set.Limits != nil {
		if err := n.CheckLimits(ctx, n.db.Aloof(), set, runs); err != nil {
			return err
		}
	}
	if err := n.LaneIDs(ctx, set.Lanes); err != nil || set.Limits == nil {
		return err
	}
	missing, err := n.findLimitLanes(ctx, n.db.Aloof(), LimitLanesOf(set, runs))
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := n.createLimitLanes(ctx, missing); err != nil {
		return err
	}
	n.limits.rememberLanes(missing)
	return nil
}

// PlacesIn is PlaceIDs for a transaction of this store, as LanesIn is LaneIDs.
func (n *Numbers) PlacesIn(ctx context.Context, tx pgx.Tx, set Places, runs []store.NewRun) error {
	if set.Limits != nil {
		if err := n.CheckLimits(ctx, tx, set, runs); err != nil {
			return err
		}
	}
	if err := n.LanesIn(ctx, tx, set.Lanes); err != nil || set.Limits == nil {
		return err
	}
	return n.LimitLanesIn(ctx, tx, set, runs)
}

// LimitLanesIn is LanesIn for the lanes in which the runs may wait for their limits.
func (n *Numbers) LimitLanesIn(ctx context.Context, tx pgx.Tx, set Places, runs []store.NewRun) error {
	missing, err := n.findLimitLanes(ctx, tx, LimitLanesOf(set, runs))
	if err == nil && len(missing) > 0 {
		err = &newLanesError{limits: missing}
	}
	return err
}

// CheckLimits fills in the limits and refuses runs that may not use them in this way. Before it
// refuses a run it asks the database, since the cache may be out of date.
func (n *Numbers) CheckLimits(ctx context.Context, in queries.DBTX, set Places, runs []store.NewRun) error {
	if err := n.FindLimits(ctx, in, set.Limits, true); err != nil {
		return err
	}
	if refused(runs, set.Limits) == nil {
		return nil
	}
	if err := n.FindLimits(ctx, in, set.Limits, false); err != nil {
		return err
	}
	return refused(runs, set.Limits)
}

// refused returns why the first run that may not be stored is refused.
func refused(runs []store.NewRun, set LimitSet) error {
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

// FindLimits fills in the limits that the cache, if it is asked, or the database has.
func (n *Numbers) FindLimits(ctx context.Context, in queries.DBTX, set LimitSet, cached bool) error {
	var names []string
	n.limits.mu.RLock()
	for name := range set {
		if set[name] = n.limits.byName[name]; set[name] == nil || !cached {
			names = append(names, name)
		}
	}
	n.limits.mu.RUnlock()
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	rows, err := n.db.Queries(in).FindLimits(ctx, queries.FindLimitsParams{Names: names})
	if err != nil {
		return err
	}
	found := make(LimitSet, len(rows))
	for i := range rows {
		one := &knownLimit{declared: rows[i].Declared}
		row := rows[i]
		one.Limit = LimitOf(&queries.ReadLimitsRow{ID: row.ID, Name: row.Name, Kind: row.Kind, Most: row.Most, Period: row.Period, Burst: row.Burst,
			Buckets: row.Buckets, KeyLeast: row.KeyLeast, KeyMost: row.KeyMost, Action: row.Action, RetryAfter: row.RetryAfter, State: row.State, Secret: row.Secret})
		found[row.Name] = one
	}
	for _, name := range names {
		set[name] = found[name]
	}
	n.limits.remember(found)
	return nil
}

// LimitOf reads the row of a limit.
func LimitOf(row *queries.ReadLimitsRow) store.Limit {
	limit := store.Limit{
		ID: row.ID, Name: row.Name, Kind: store.LimitKind(row.Kind), Max: int(row.Most), Period: conn.FromMicro(row.Period), Burst: int(row.Burst),
		Buckets: int(row.Buckets), Least: int(row.KeyLeast), Most: int(row.KeyMost), WhenFull: store.LimitAction(row.Action),
		RetryAfter: conn.FromMicro(row.RetryAfter), State: store.LimitState(row.State), Secret: row.Secret,
	}
	return limit.AsRead()
}

// LimitLanesOf are the lanes in which the runs may wait for their limits.
func LimitLanesOf(set Places, runs []store.NewRun) []LimitLane {
	seen := map[LimitLane]struct{}{}
	for i := range runs {
		run := &runs[i]
		for j := range run.Limits {
			if known := set.Limits[store.LimitName(run.Limits[j].Limit)]; known != nil {
				seen[LimitLane{known.ID, set.Lanes[LaneOf(run)]}] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), compareLimitLanes)
}

func compareLimitLanes(a, b LimitLane) int {
	if a.limit != b.limit {
		return int(a.limit - b.limit)
	}
	return int(a.lane - b.lane)
}

// findLimitLanes returns those that neither the cache nor the database has.
func (n *Numbers) findLimitLanes(ctx context.Context, in queries.DBTX, wanted []LimitLane) (missing []LimitLane, err error) {
	n.limits.mu.RLock()
	missing = slices.DeleteFunc(wanted, func(one LimitLane) bool { _, ok := n.limits.lanes[one]; return ok })
	n.limits.mu.RUnlock()
	if len(missing) == 0 {
		return nil, nil
	}
	rows, err := n.db.Queries(in).KnownLimitLanes(ctx, queries.KnownLimitLanesParams(LimitLaneColumns(missing)))
	if err != nil {
		return nil, err
	}
	known := make([]LimitLane, len(rows))
	for i, row := range rows {
		known[i] = LimitLane{row.LimitID, row.Lane}
	}
	n.limits.rememberLanes(known)
	return slices.DeleteFunc(missing, func(one LimitLane) bool { return slices.Contains(known, one) }), nil
}

// createLimitLanes makes them on a connection of their own, as createLanes does.
func (n *Numbers) createLimitLanes(ctx context.Context, missing []LimitLane) error {
	return n.db.Repeat(ctx, func() error {
		columns := LimitLaneColumns(missing)
		b := n.db.Guarded(ctx)
		b.Add(queries.CreateLimitLanes, columns.Limits, columns.Lanes)
		return n.db.Send(ctx, n.db.Aloof(), b)
	})
}

// LimitLaneColumns are limits and lanes as parameters.
func LimitLaneColumns(all []LimitLane) (c queries.CreateLimitLanesParams) {
	for _, one := range all {
		c.Limits, c.Lanes = append(c.Limits, one.limit), append(c.Lanes, one.lane)
	}
	return c
}

// Learnt are the numbers of the limits with the names that they stand for.
func (l LimitSet) Learnt() (ids []int32, names []string, secrets conn.UUIDs) {
	for _, name := range slices.Sorted(maps.Keys(l)) {
		ids, names, secrets = append(ids, l[name].ID), append(names, name), append(secrets, l[name].Secret)
	}
	return ids, names, secrets
}

// Only are those of one run.
func (l LimitSet) Only(run *store.NewRun) LimitSet {
	own := LimitSet{}
	for i := range run.Limits {
		name := store.LimitName(run.Limits[i].Limit)
		own[name] = l[name]
	}
	return own
}

// UsesOf reads what the row of a run holds about its limits. It leaves out what cannot be
// read, which only a change by hand can cause.
func UsesOf(texts []string) (uses []store.LimitUse) {
	for _, text := range texts {
		if use, err := store.ParseLimitUse(text); err == nil {
			uses = append(uses, use)
		}
	}
	return uses
}

// GatesOf is the range of the gates of a limit.
func GatesOf(id store.LimitID) (first, last int64) {
	f, l := admit.GateRange(id)
	return int64(f), int64(l)
}
