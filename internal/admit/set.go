package admit

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// SetOf is the gate in whose line runs wait that need the same gates, two or more,
// and have none of them: minus the number of the first one's limit times 2^43, minus
// 43 bits of the SHA-256 of all of them. It belongs to no limit and is never full.
// So the first run of such a line does not block another one that could start.
// Zero: the run waits in the lines of its gates themselves. It has only one, or it
// may not wait for all of them, or a named owner may have a permit.
func SetOf(uses []Use) GateID {
	if len(uses) < 2 {
		return 0
	}
	hash := sha256.New()
	for i := range uses {
		use := &uses[i]
		if use.Mode != store.LimitAcquireAndRelease || use.Owner != (uuid.UUID{}) || use.Acts {
			return 0
		}
		var gate [8]byte
		binary.BigEndian.PutUint64(gate[:], uint64(use.Gate)) //nolint:gosec // the bits of it
		_, _ = hash.Write(gate[:])
	}
	bits := GateID(binary.BigEndian.Uint64(hash.Sum(nil)) >> (64 - keyBits))
	return -(uses[0].Gate&^keyMask | bits)
}

// IsSet reports whether a gate is that of a set.
func IsSet(gate GateID) bool { return gate < 0 }

// HomeOf is whose share the runs of a line count for, where keys take turns: that of
// the first key that they have, or that of the line.
func HomeOf(line GateID, uses []Use) GateID {
	for i := range uses {
		if Keyed(uses[i].Gate) {
			return uses[i].Gate
		}
	}
	return line
}
