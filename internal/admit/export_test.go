package admit

import (
	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// GateFor is the gate of a limit without a secret.
func GateFor(limit store.LimitID, key string) GateID { return gateOf(limit, uuid.UUID{}, key) }
