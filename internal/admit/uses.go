package admit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// UsesOf are the gates of a run, in their order. find answers nil for a limit
// that is not known. What may not be stored is refused with all that is wrong,
// wrapped in store.ErrInvalid.
func UsesOf(limits []store.LimitUse, find func(name string) *store.Limit) ([]Use, error) {
	var uses []Use
	var faults []error
	for i := range limits {
		said := &limits[i]
		limit := find(store.LimitName(said.Limit))
		if limit == nil {
			faults = append(faults, rules.UnknownLimit(said.Limit))
			continue
		}
		if err := limit.CheckUse(said); err != nil {
			faults = append(faults, err)
		}
		uses = addUses(uses, limit, said)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, errors.Join(faults...))
	}
	Order(uses)
	return uses, nil
}

// StoredUses are the gates of a run that is stored, whatever has become of its
// limits since.
func StoredUses(limits []store.LimitUse, find func(name string) *store.Limit) (uses []Use) {
	for i := range limits {
		if limit := find(store.LimitName(limits[i].Limit)); limit != nil {
			uses = addUses(uses, limit, &limits[i])
		}
	}
	Order(uses)
	return uses
}

// addUses adds the gates of one limit. A gate that is there already, such as the
// one that two keys of a dynamic window share, weighs more.
func addUses(uses []Use, limit *store.Limit, said *store.LimitUse) []Use {
next:
	for _, gate := range Gates(limit, said.Key) {
		for i := range uses {
			if uses[i].Gate == gate {
				uses[i].Weight += said.Places()
				continue next
			}
		}
		use := Use{Gate: gate, Weight: said.Places(), Until: said.Lasting(), WhenFull: said.WhenFull, RetryAfter: said.RetryAfter,
			Mode: said.Mode, OwnedFor: said.OwnedFor,
			Acts: said.WhenFull > store.FullWait || said.WhenFull == store.FullDefault && limit.Action() > store.FullWait}
		if said.Owner != "" {
			use.Owner = OwnerID(said.Owner)
		}
		uses = append(uses, use)
	}
	return uses
}

// Simple reports whether an admission need not read the uses of a run that waits
// in the line of its only gate: Waiter.Uses may be left out.
func Simple(uses []Use) bool {
	if len(uses) != 1 {
		return false
	}
	use := uses[0]
	use.Has, use.Acts = false, false
	return use == (Use{Gate: use.Gate, Weight: 1, Until: store.UntilSettled})
}

// KeyOf is the key of a gate of a run, as the run spells it: what a gate is shown
// by. That of the gate that the keys of a dynamic window share is empty. Secret is that of
// the gate's limit.
func KeyOf(gate GateID, secret uuid.UUID, limits []store.LimitUse) string {
	for i := range limits {
		if gateOf(LimitOf(gate), secret, limits[i].Key) == gate {
			return strings.Clone(limits[i].Key)
		}
	}
	return ""
}
