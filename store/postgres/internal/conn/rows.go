package conn

import (
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// ScanIDs calls each with the id that each row consists of.
func ScanIDs(rows pgx.Rows, each func(uuid.UUID)) error {
	var id uuid.UUID
	for rows.Next() {
		if err := rows.Scan((*BinaryUUID)(&id)); err != nil {
			return err
		}
		each(id)
	}
	return rows.Err()
}

// ScanInto reads ids into a set.
func ScanInto(set map[store.RunID]struct{}) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		return ScanIDs(rows, func(id uuid.UUID) { set[id] = struct{}{} })
	}
}

// ScanFreed is ScanIDs for a statement that frees places: each row also has the lines of
// all turns for them.
func ScanFreed(rows pgx.Rows, freed *[]store.LineID, each func(uuid.UUID)) error {
	var id uuid.UUID
	var lines []store.LineID
	for rows.Next() {
		if err := rows.Scan((*BinaryUUID)(&id), &lines); err != nil {
			return err
		}
		each(id)
	}
	*freed = append(*freed, lines...)
	return rows.Err()
}

// Collect reads all rows into a slice.
func Collect[R any](rows *[]R) func(pgx.Rows) error {
	return func(found pgx.Rows) (err error) {
		*rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[R])
		return err
	}
}

// Small converts a count to the integer type of the database.
func Small(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// ClaimIDs converts claims to parameters.
func ClaimIDs(claims []lease.ClaimID) UUIDs {
	ids := make(UUIDs, len(claims))
	for i, claim := range claims {
		ids[i] = uuid.UUID(claim)
	}
	return ids
}
