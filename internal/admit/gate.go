package admit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// GateID is the number of a gate: the number of its limit times 2^43, plus 43 bits
// of the SHA-256 of the limit's secret and its key in lower case. So a gate names its limit,
// and the gates of a limit are one range. Two keys that have the same bits share a gate,
// which is stricter and never looser. Without the secret, a tenant that chooses its own key
// could compute one that shares a gate with another tenant's: 2^43 digests take a graphics card
// minutes.
type GateID int64

const (
	keyBits = 43
	keyMask = 1<<keyBits - 1
	// firstLimitLine is above every lane's number.
	firstLimitLine = 1 << 30
)

// unkeyed are the bits of the empty key: the first 43 bits of the SHA-256 of
// nothing, e3b0c44298fc1c149afb…
const unkeyed = 0xe3b0c44298fc1c14 >> (64 - keyBits)

// AllPermits is the gate in whose lines runs wait that have the permits of all
// their gates already, as they were retried while their permits last. It belongs
// to no limit and is never full.
const AllPermits GateID = 0

// GateOf is the gate of a limit and a key.
func GateOf(limit *store.Limit, key string) GateID {
	return gateOf(limit.ID, limit.Secret, key)
}

func gateOf(limit store.LimitID, secret uuid.UUID, key string) GateID {
	if key == "" {
		return Unkeyed(limit)
	}
	text := []byte(store.LimitKey(key))
	if secret != (uuid.UUID{}) {
		text = append(secret[:], text...)
	}
	sum := sha256.Sum256(text)
	return GateID(limit)<<keyBits | GateID(binary.BigEndian.Uint64(sum[:8])>>(64-keyBits))
}

// Unkeyed is the gate of a limit without a key.
func Unkeyed(limit store.LimitID) GateID { return GateID(limit)<<keyBits | unkeyed }

// LimitOf is the number of the gate's limit; of a set, that of its first gate.
func LimitOf(gate GateID) store.LimitID { return store.LimitID(max(gate, -gate) >> keyBits) }

// Keyed reports whether the gate's key is not empty.
func Keyed(gate GateID) bool { return gate&keyMask != unkeyed }

// Parent is the gate of the same limit without a key. Of a dynamic window it holds
// what all keys use together.
func Parent(gate GateID) GateID { return gate&^keyMask | unkeyed }

// GateRange is the first and the last gate that a limit can have.
func GateRange(limit store.LimitID) (first, last GateID) {
	first = GateID(limit) << keyBits
	return first, first | keyMask
}

// LimitLine is the line of turns that every worker reads that serves a lane of
// the limit. Lines below it are lanes.
func LimitLine(limit store.LimitID) int32 { return firstLimitLine + limit }

// LineLimit is the limit of a line of turns; zero: the line is that of a lane.
func LineLimit(line int32) store.LimitID { return max(line-firstLimitLine, 0) }

// CompareGates is the order in which a run has its gates: those of a key before
// those without, as a run shall wait in the line of its key rather than in front
// of every other run, then by number.
func CompareGates(a, b GateID) int {
	if ka, kb := Keyed(a), Keyed(b); ka != kb {
		if ka {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

// Order sorts the uses of a run by their gates, as CompareGates does. A run waits
// in the line of the first one at first: see LineOf.
func Order(uses []Use) {
	slices.SortStableFunc(uses, func(a, b Use) int { return CompareGates(a.Gate, b.Gate) })
}

// Gates are the gates that a use of a limit has: that of its key, and, of a
// dynamic window, the one that all keys share.
func Gates(limit *store.Limit, key string) []GateID {
	gate := GateOf(limit, key)
	if limit.Kind == store.LimitDynamicWindow && Keyed(gate) {
		return []GateID{gate, Parent(gate)}
	}
	return []GateID{gate}
}

// Uses are what a run that uses a limit needs of its gates. Put those of all its
// limits together, then Order them.
func Uses(limit *store.Limit, use *store.LimitUse) (uses []Use) {
	one := Use{
		Weight: use.Places(), Until: use.Lasting(), WhenFull: use.WhenFull, RetryAfter: use.RetryAfter, Mode: use.Mode, OwnedFor: use.OwnedFor,
	}
	if use.Owner != "" {
		one.Owner = OwnerID(use.Owner)
	}
	for _, gate := range Gates(limit, use.Key) {
		one.Gate = gate
		uses = append(uses, one)
	}
	return uses
}

// LineOf is the gate in whose line a run waits that is stored, retried or handed
// back: that of its set, or else the first one that it has no permit of, in the
// order of its uses. With no uses left it is AllPermits.
func LineOf(uses []Use) GateID {
	if set := SetOf(uses); set != 0 && !slices.ContainsFunc(uses, func(use Use) bool { return use.Has }) {
		return set
	}
	for i := range uses {
		if !uses[i].Free() {
			return uses[i].Gate
		}
	}
	return AllPermits
}

// OwnerID is the identity of a named owner of permits.
func OwnerID(name string) uuid.UUID {
	sum := sha256.Sum256([]byte(name))
	return uuid.UUID(sum[:16])
}
