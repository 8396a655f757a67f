package postgres

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/durable-worker/durable-worker/store"
)

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// micro returns a duration as it is stored, in microseconds.
func micro(d time.Duration) int64 { return d.Microseconds() }

// fromMicro converts microseconds to a duration; too many become the longest duration.
func fromMicro(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}

// timeOrNull is a parameter whose zero time is NULL.
func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// textArray writes an array in PostgreSQL's text format; nil becomes NULL.
func textArray(items []string) *string {
	if len(items) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for j := range len(item) {
			if item[j] == '"' || item[j] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(item[j])
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	text := b.String()
	return &text
}

// orEmpty returns the list, which is never nil.
func orEmpty(items []string) []string {
	if items == nil {
		return []string{}
	}
	return items
}

func timesUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func crashPolicy(n int16) store.CrashPolicy { return store.CrashPolicy(n) }

// storableFault makes any text fit for a column.
func storableFault(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// uuid.UUID implements the interfaces of database/sql, so pgx would send and read it as
// text, at several times the cost. These types use the binary format.

// uuidArray is a uuid[] as a parameter or a target of a scan.
type uuidArray []uuid.UUID

// orNoIDs returns the list, which is never nil.
func orNoIDs(ids uuidArray) uuidArray {
	if ids == nil {
		return uuidArray{}
	}
	return ids
}

// Dimensions returns the length, for pgx.
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

// SetDimensions makes room for as many elements as pgx has read.
func (a *uuidArray) SetDimensions(dimensions []pgtype.ArrayDimension) error {
	*a = nil
	if len(dimensions) > 0 {
		*a = make(uuidArray, dimensions[0].Length)
	}
	return nil
}

// ScanIndex returns where pgx stores an element.
func (a uuidArray) ScanIndex(i int) any { return (*binaryUUID)(&a[i]) }

// ScanIndexType is the type of what ScanIndex returns.
func (a uuidArray) ScanIndexType() any { return (*binaryUUID)(nil) }

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
