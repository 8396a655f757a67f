package conn

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Milliseconds returns a duration as a setting of the server, at least one millisecond.
func Milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// Micro returns a duration as it is stored, in microseconds.
func Micro(d time.Duration) int64 { return d.Microseconds() }

// FromMicro converts microseconds to a duration; too many become the longest duration.
func FromMicro(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}

// TimeOrNull is a parameter whose zero time is NULL.
func TimeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// TextArray writes an array in PostgreSQL's text format; nil becomes NULL.
func TextArray(items []string) *string {
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

// OrEmpty returns the list, which is never nil.
func OrEmpty(items []string) []string {
	if items == nil {
		return []string{}
	}
	return items
}

// TimesUTC returns the instant in UTC; nil stays nil.
func TimesUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// StorableFault makes any text fit for a column.
func StorableFault(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// uuid.UUID implements the interfaces of database/sql, so pgx would send and read it as
// text, at several times the cost. These types use the binary format.

// UUIDs is a uuid[] as a parameter or a target of a scan.
type UUIDs []uuid.UUID

// OrNoIDs returns the list, which is never nil.
func OrNoIDs(ids UUIDs) UUIDs {
	if ids == nil {
		return UUIDs{}
	}
	return ids
}

// Dimensions returns the length, for pgx.
func (a UUIDs) Dimensions() []pgtype.ArrayDimension {
	if a == nil {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(len(a)), LowerBound: 1}} //nolint:gosec // far below 2^31
}

// Index returns an element without copying it.
func (a UUIDs) Index(i int) any { return (*BinaryUUID)(&a[i]) }

// IndexType is the type of the elements.
func (a UUIDs) IndexType() any { return (*BinaryUUID)(nil) }

// SetDimensions makes room for as many elements as pgx has read.
func (a *UUIDs) SetDimensions(dimensions []pgtype.ArrayDimension) error {
	*a = nil
	if len(dimensions) > 0 {
		*a = make(UUIDs, dimensions[0].Length)
	}
	return nil
}

// ScanIndex returns where pgx stores an element.
func (a UUIDs) ScanIndex(i int) any { return (*BinaryUUID)(&a[i]) }

// ScanIndexType is the type of what ScanIndex returns.
func (a UUIDs) ScanIndexType() any { return (*BinaryUUID)(nil) }

// BinaryUUID is a uuid.UUID as a parameter or a target of a scan.
type BinaryUUID uuid.UUID

// UUIDValue hands the value to pgx.
func (u *BinaryUUID) UUIDValue() (pgtype.UUID, error) {
	return pgtype.UUID{Bytes: *u, Valid: true}, nil
}

// ScanUUID takes the value from pgx.
func (u *BinaryUUID) ScanUUID(v pgtype.UUID) error {
	if !v.Valid {
		return errors.New("cannot scan NULL into a UUID")
	}
	*u = v.Bytes
	return nil
}

// NumberArray writes an array of numbers as PostgreSQL reads it from text.
func NumberArray[N int32 | int64](numbers []N) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	b.WriteByte('}')
	return b.String()
}

// IDArray writes an array of ids as PostgreSQL reads it from text.
func IDArray(ids []uuid.UUID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = id.String()
	}
	return "{" + strings.Join(words, ",") + "}"
}

// JSONText writes texts and numbers.
func JSONText(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // cannot happen
		return "{}"
	}
	return string(text)
}
