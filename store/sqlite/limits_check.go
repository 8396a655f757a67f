package sqlite

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// CheckLimits looks for what must not be.
func (s *Store) CheckLimits(ctx context.Context) ([]store.LimitFault, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("check limits: %w", s.explain(err))
	}
	faults, err := reader.limitFaults(ctx, s.clock.now())
	if err != nil {
		return nil, fmt.Errorf("check limits: %w", s.explain(err))
	}
	return faults, nil
}

func (l *lookups) limitFaults(ctx context.Context, now int64) ([]store.LimitFault, error) {
	rows, err := l.limits.QueryContext(ctx, now, rules.FaultsGates, rules.FaultsMost, rules.FaultsLines)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports
	faults := []store.LimitFault{}
	for rows.Next() {
		var kind, name string
		var gate, used, most int64
		var id []byte
		var texts *string
		var secret []byte
		if err := rows.Scan(&kind, &gate, &id, &used, &name, &most, &texts, &secret); err != nil {
			return nil, err
		}
		var run store.RunID
		copy(run[:], id)
		var of uuid.UUID
		copy(of[:], secret)
		uses, _ := limitsOf(texts) // what cannot be read names no key
		key := admit.KeyOf(admit.GateID(gate), of, uses)
		faults = append(faults, rules.LimitFault(store.LimitFaultKind(kind), name, key, run, int(used), int(most)))
	}
	return faults, rows.Err()
}
