package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// LimitList lists limits, by name.
type LimitList struct {
	Limits []LimitView `json:"limits"`
	Next   *string     `json:"next"` // the After of the next part; nil: this was the last one
}

// LimitRule is what a limit says.
type LimitRule struct {
	Name       string            `json:"name"`
	Kind       store.LimitKind   `json:"kind"`
	Max        int               `json:"max"`
	Period     store.Duration    `json:"period,omitempty"`
	Burst      int               `json:"burst,omitempty"`
	Buckets    int               `json:"buckets,omitempty"`
	Least      int               `json:"least,omitempty"`
	Most       int               `json:"most,omitempty"`
	WhenFull   store.LimitAction `json:"when_full"`
	RetryAfter store.Duration    `json:"retry_after,omitempty"`
	State      store.LimitState  `json:"state"`
	Fault      string            `json:"fault,omitempty"` // why this program cannot apply it: it admits nothing, unless it is off
}

// LimitView is one limit, and what is in use of it.
type LimitView struct {
	LimitRule

	Edited     bool        `json:"edited"`      // an operator's version is in effect, until the code's changes
	DeclaredAt *time.Time  `json:"declared_at"` // by a worker; nil: never
	InUse      store.Count `json:"in_use"`      // places, over all keys; 0 for limits of starts
	Waiting    store.Count `json:"waiting"`     // runs in its lines
	NextAt     *time.Time  `json:"next_at"`     // when the next waiting run may be admitted; nil: none waits, or not before one ends
}

// GateView is one key of a limit.
type GateView struct {
	Limit     LimitRule    `json:"limit"`
	Key       string       `json:"key"`
	InUse     int          `json:"in_use"`
	Permits   []PermitView `json:"permits"` // the oldest first, at most 100
	Waiting   store.Count  `json:"waiting"`
	Waiters   []WaiterView `json:"waiters"`    // in the order in which they are admitted, at most 100
	NotBefore *time.Time   `json:"not_before"` // a penalty; nil: none
	NextAt    *time.Time   `json:"next_at"`
}

// PermitView is the right of one owner to places of a key.
type PermitView struct {
	Owner     uuid.UUID        `json:"owner"` // a claim, a run, or the digest of a named owner
	Places    int              `json:"places"`
	Until     store.LimitUntil `json:"until"`
	ExpiresAt *time.Time       `json:"expires_at"`
	Runs      []store.RunID    `json:"runs"`
	Worker    *string          `json:"worker"`
}

// WaiterView is a run that waits for a key.
type WaiterView struct {
	Run      store.RunID `json:"run"`
	Job      string      `json:"job"`
	Queue    string      `json:"queue"`
	Priority int         `json:"priority"`
	DueAt    time.Time   `json:"due_at"`
}

// LimitKeyList is the keys of a limit that are in use, penalized, or that runs wait for.
type LimitKeyList struct {
	Limit   LimitRule   `json:"limit"`
	Keys    []KeyView   `json:"keys"`    // those for which most runs wait first
	Known   store.Count `json:"known"`   // keys, also those that are not listed
	Partial bool        `json:"partial"` // more runs wait than were read: keys may be missing
}

// KeyView is one key of a limit. What waits for it is shown by Limit.
type KeyView struct {
	Key       string      `json:"key"`        // empty: that of runs without a key, unless it is unnamed
	Unnamed   bool        `json:"unnamed"`    // it has a key that no run that is left says
	InUse     int         `json:"in_use"`     // places; 0 for limits of starts
	Waiting   store.Count `json:"waiting"`    // runs, each counted for one of its limits only
	OldestDue *time.Time  `json:"oldest_due"` // of the waiting runs; nil: none waits
	NotBefore *time.Time  `json:"not_before"` // a penalty; nil: none
}

// ChangedLimit says what was done to a limit.
type ChangedLimit struct {
	Name    string             `json:"name"`
	Command store.LimitCommand `json:"command"`
}

// Limits lists a part of the limits that pass a filter: caps of jobs and queues only when
// asked for.
func (o *Operator) Limits(ctx context.Context, filter store.LimitFilter, part Part) (LimitList, error) {
	for _, name := range filter.Names {
		if err := checkWanted(name); err != nil {
			return LimitList{Limits: []LimitView{}}, err
		}
	}
	limits, err := o.store.ListLimits(ctx, filter)
	var next *string
	if err == nil {
		limits, next, err = cut(limits, part, func(l *store.LimitInfo) place { return place{name: l.Name} })
	}
	list := LimitList{Limits: make([]LimitView, 0, len(limits)), Next: next}
	for i := range limits {
		l := &limits[i]
		list.Limits = append(list.Limits, LimitView{LimitRule: ruleOf(&l.Limit), Edited: l.Edited, DeclaredAt: l.DeclaredAt,
			InUse: l.InUse, Waiting: l.Waiting, NextAt: l.NextAt})
	}
	return list, err
}

// KeysListed is how many keys LimitKeys lists when the caller does not say.
const KeysListed = 20

// LimitKeys lists keys of a limit: at most so many, those for which most runs wait. Zero is
// KeysListed.
func (o *Operator) LimitKeys(ctx context.Context, name string, most int) (LimitKeyList, error) {
	list := LimitKeyList{Keys: []KeyView{}}
	if most == 0 {
		most = KeysListed
	}
	if err := store.CheckLimitName(name); err != nil {
		return list, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	known, err := o.store.LimitKeys(ctx, name, most)
	if err != nil {
		return list, fmt.Errorf("limit %q: %w", name, err)
	}
	list.Limit, list.Known, list.Partial = ruleOf(&known.Limit), known.Known, known.Partial
	for _, key := range known.Keys {
		list.Keys = append(list.Keys, KeyView(key))
	}
	return list, nil
}

// Limit describes one key of a limit: who holds it, and who waits in which order.
func (o *Operator) Limit(ctx context.Context, name, key string) (GateView, error) {
	err := errors.Join(store.CheckLimitName(name), store.CheckLimitKey(key))
	if err != nil {
		return GateView{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	gate, err := o.store.Gate(ctx, name, key)
	if err != nil {
		return GateView{}, fmt.Errorf("limit %q: %w", name, err)
	}
	view := GateView{Limit: ruleOf(&gate.Limit), Key: gate.Key, InUse: gate.InUse, Permits: make([]PermitView, len(gate.Permits)),
		Waiting: gate.Waiting, Waiters: make([]WaiterView, len(gate.Waiters)), NotBefore: gate.NotBefore, NextAt: gate.NextAt}
	for i := range gate.Permits {
		view.Permits[i] = permitView(&gate.Permits[i])
	}
	for i, waiter := range gate.Waiters {
		view.Waiters[i] = WaiterView(waiter)
	}
	return view, nil
}

func permitView(permit *store.PermitInfo) PermitView {
	view := PermitView{Owner: permit.Owner, Places: permit.Places, Until: permit.Until, ExpiresAt: permit.ExpiresAt, Runs: whole(permit.Runs)}
	if permit.Worker != "" {
		view.Worker = &permit.Worker
	}
	return view
}

func ruleOf(l *store.Limit) LimitRule {
	return LimitRule{Name: l.Name, Kind: l.Kind, Max: l.Max, Period: store.Duration(l.Period), Burst: l.Burst, Buckets: l.Buckets,
		Least: l.Least, Most: l.Most, WhenFull: l.Action(), RetryAfter: store.Duration(l.RetryAfter), State: l.State, Fault: l.Fault}
}

// SetLimit makes a limit, or changes what it says: not its kind, and not its state.
// Until the code that declares it changes, the operator's version is in effect.
// Runs that execute continue: a limit that was lowered below what is in use admits
// nothing until enough of them have ended.
func (a *Actor) SetLimit(ctx context.Context, limit store.Limit) (ChangedLimit, error) {
	return a.changeLimit(ctx, store.LimitChange{Command: store.SetLimit, Limit: limit})
}

// ChangeLimit drains, resumes, turns off or deletes a limit (see store.LimitCommand).
func (a *Actor) ChangeLimit(ctx context.Context, name string, command store.LimitCommand) (ChangedLimit, error) {
	return a.changeLimit(ctx, store.LimitChange{Command: command, Limit: store.Limit{Name: name}})
}

// ReleasePermit takes an owner's places of a key away. What the owner executes
// continues, so that more may execute than the limit says.
func (a *Actor) ReleasePermit(ctx context.Context, name, key string, owner uuid.UUID) (ChangedLimit, error) {
	return a.changeLimit(ctx, store.LimitChange{Command: store.ReleasePermit, Limit: store.Limit{Name: name}, Key: key, Owner: owner})
}

// LiftPenalty ends the penalty of a key: its runs may start again.
func (a *Actor) LiftPenalty(ctx context.Context, name, key string) (ChangedLimit, error) {
	return a.changeLimit(ctx, store.LimitChange{Command: store.LiftPenalty, Limit: store.Limit{Name: name}, Key: key})
}

func (a *Actor) changeLimit(ctx context.Context, change store.LimitChange) (ChangedLimit, error) {
	change.By = a.by
	defer a.hub.touch("limits")
	if err := a.store.ChangeLimit(ctx, change); err != nil {
		return ChangedLimit{}, fmt.Errorf("limit %q: %w", change.Limit.Name, err)
	}
	a.note(kindLimit, change.Limit.Name, string(change.Command), "", 0)
	return ChangedLimit{change.Limit.Name, change.Command}, nil
}
