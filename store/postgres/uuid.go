package postgres

import (
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// uuid.UUID knows database/sql, and pgx would therefore send and read it as
// text, at several times the price. These types speak to pgx in binary.

// uuidArray is a parameter of type uuid[].
type uuidArray []uuid.UUID

// orNoIDs makes a list that is never nil.
func orNoIDs(ids uuidArray) uuidArray {
	if ids == nil {
		return uuidArray{}
	}
	return ids
}

// Dimensions reports pgx the length.
func (a uuidArray) Dimensions() []pgtype.ArrayDimension {
	if a == nil {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(len(a)), LowerBound: 1}} //nolint:gosec // far below 2^31
}

// Index returns an element without copying it.
func (a uuidArray) Index(i int) any { return (*binaryUUID)(&a[i]) }

// IndexType is the type of the elements.
func (a uuidArray) IndexType() any { return (*binaryUUID)(nil) }

// binaryUUID is a uuid.UUID as a parameter or a target of a scan.
type binaryUUID uuid.UUID

// UUIDValue hands the value to pgx.
func (u *binaryUUID) UUIDValue() (pgtype.UUID, error) {
	return pgtype.UUID{Bytes: *u, Valid: true}, nil
}

// ScanUUID takes the value from pgx.
func (u *binaryUUID) ScanUUID(v pgtype.UUID) error {
	if !v.Valid {
		return errors.New("cannot scan NULL into a UUID")
	}
	*u = v.Bytes
	return nil
}
