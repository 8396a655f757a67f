package api

import (
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func limitRoutes() []route {
	return []route{
		{"GET /limits", []string{"name", "caps", "cursor", "limit"}, listLimits},
		{"GET /limits/key", []string{"name", "key"}, showGate},
		{"GET /limits/keys", []string{"name", "limit"}, listKeys},
		{"PATCH /limits", []string{"name"}, changeLimit},
		{"DELETE /limits", []string{"name"}, deleteLimit},
		{"POST /limits/release", nil, releasePermit},
		{"GET /locks", []string{"prefix", "limit"}, listLocks},
		{"GET /locks/forced", []string{"limit"}, listForced},
		{"DELETE /locks", []string{"name", "slot", "reason"}, releaseLock},
	}
}

func listLimits(c *call) (answer, error) {
	part := c.part()
	filter := store.LimitFilter{Names: part.Names, Caps: c.Switch("caps") || len(part.Names) > 0}
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Limits(c.r.Context(), filter, part)
	return ok(list), err
}

// name is the parameter of what a request is about.
func (c *call) name() string {
	name := c.Text("name")
	if name == "" && !c.Given("name") {
		c.Refuse("name", "want a name")
	}
	return name
}

func showGate(c *call) (answer, error) {
	name, key := c.name(), c.Text("key")
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	gate, err := c.op.Limit(c.r.Context(), name, key)
	return ok(gate), err
}

func listKeys(c *call) (answer, error) {
	name, most := c.name(), int(c.Number("limit", 1, store.MaxKeysListed, operate.KeysListed))
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.LimitKeys(c.r.Context(), name, most)
	return ok(list), err
}

// limitPatch is what a limit shall say, or the state that it shall have. What is left
// out stays as it is.
type limitPatch struct {
	State *store.LimitState `json:"state"`
	limitChange
}

type limitChange struct {
	Kind       *store.LimitKind   `json:"kind"` // of a new limit
	Max        *int               `json:"max"`
	Period     *store.Duration    `json:"period"`
	Burst      *int               `json:"burst"`
	Buckets    *int               `json:"buckets"`
	Least      *int               `json:"least"`
	Most       *int               `json:"most"`
	WhenFull   *store.LimitAction `json:"when_full"`
	RetryAfter *store.Duration    `json:"retry_after"`
}

func changeLimit(c *call) (answer, error) {
	name := c.name()
	var given limitPatch
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	if given.State != nil {
		if !reflect.ValueOf(given.limitChange).IsZero() {
			return answer{}, wire.InBody("/state", "change the state, or what the limit says, and not both in one request")
		}
		return c.setLimitState(name, *given.State)
	}
	list, err := c.op.Limits(c.r.Context(), store.LimitFilter{Names: []string{name}, Caps: true}, operate.Part{})
	if err != nil {
		return answer{}, err
	}
	limit := store.Limit{Name: name}
	switch {
	case len(list.Limits) > 0:
		l := &list.Limits[0].LimitRule
		limit = store.Limit{Name: l.Name, Kind: l.Kind, Max: l.Max, Period: time.Duration(l.Period), Burst: l.Burst, Buckets: l.Buckets,
			Least: l.Least, Most: l.Most, WhenFull: l.WhenFull, RetryAfter: time.Duration(l.RetryAfter)}
	case given.Kind == nil:
		return answer{}, fmt.Errorf("limit %q: %w; give a kind to create it", name, store.ErrNotFound)
	}
	given.onto(&limit)
	changed, err := c.op.SetLimit(c.r.Context(), limit)
	return ok(changed), err
}

// onto changes what was given.
func (l *limitChange) onto(limit *store.Limit) {
	set(&limit.Kind, l.Kind)
	set(&limit.Max, l.Max)
	set((*store.Duration)(&limit.Period), l.Period)
	set(&limit.Burst, l.Burst)
	set(&limit.Buckets, l.Buckets)
	set(&limit.Least, l.Least)
	set(&limit.Most, l.Most)
	set(&limit.WhenFull, l.WhenFull)
	set((*store.Duration)(&limit.RetryAfter), l.RetryAfter)
}

func (c *call) setLimitState(name string, state store.LimitState) (answer, error) {
	commands := map[store.LimitState]store.LimitCommand{store.LimitActive: store.ResumeLimit, store.LimitDraining: store.DrainLimit, store.LimitOff: store.DisableLimit}
	command, possible := commands[state]
	if !possible {
		return answer{}, wire.InBody("/state", "want active, draining or off")
	}
	changed, err := c.op.ChangeLimit(c.r.Context(), name, command)
	return ok(changed), err
}

func deleteLimit(c *call) (answer, error) {
	name := c.name()
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	changed, err := c.op.ChangeLimit(c.r.Context(), name, store.DeleteLimit)
	return ok(changed), err
}

func releasePermit(c *call) (answer, error) {
	var given struct {
		Name  string    `json:"name"`
		Key   string    `json:"key"`
		Owner uuid.UUID `json:"owner"`
	}
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	changed, err := c.op.ReleasePermit(c.r.Context(), given.Name, given.Key, given.Owner)
	return ok(changed), err
}

func listLocks(c *call) (answer, error) {
	prefix, limit := c.Text("prefix"), int(c.Number("limit", 1, store.LargestPage, 50))
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Locks(c.r.Context(), prefix, limit)
	return ok(list), err
}

func listForced(c *call) (answer, error) {
	limit := int(c.Number("limit", 1, store.LargestPage, 50))
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	var list operate.ForcedList
	list, err := c.op.ForcedReleases(c.r.Context(), limit)
	return ok(list), err
}

// maxSlot bounds the number of a slot.
const maxSlot = 1 << 30

func releaseLock(c *call) (answer, error) {
	name, slot, reason := c.name(), int(c.Number("slot", 0, maxSlot, 0)), c.Text("reason")
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	released, err := c.op.ReleaseLock(c.r.Context(), name, slot, reason)
	return ok(released), err
}
