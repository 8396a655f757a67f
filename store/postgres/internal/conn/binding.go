package conn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// A caller's connection does not know our types, and its driver may not know
// arrays. So parameters go through these adapters as what every driver can send in
// every mode: numbers, truth values, and text, arrays as their literals.

// pgxBinding sends batches in a transaction of pgx.
type pgxBinding struct{ tx pgx.Tx }

// BindPgx returns a sender that sends in a transaction of pgx.
func BindPgx(tx pgx.Tx) Sender { return pgxBinding{tx} }

// BindSQL returns a sender that sends in a transaction of database/sql.
func BindSQL(tx *sql.Tx) Sender { return sqlBinding{tx: tx, known: pgtype.NewMap()} }

// SendBatch sends the batch with its parameters made plain.
func (d pgxBinding) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	plain := &pgx.Batch{}
	for _, query := range b.QueuedQueries {
		plain.Queue(query.SQL, plainArgs(query.Arguments)...).Fn = query.Fn
	}
	return d.tx.SendBatch(ctx, plain)
}

// sqlBinding sends batches in a transaction of database/sql, statement by statement.
type sqlBinding struct {
	tx    *sql.Tx
	known *pgtype.Map
}

// SendBatch prepares to send; the results' Close does it.
func (d sqlBinding) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return &sqlResults{ctx: ctx, binding: d, queries: b.QueuedQueries}
}

// sqlResults is a batch as it is being sent.
type sqlResults struct {
	ctx     context.Context //nolint:containedctx // pgx's interface gives it to SendBatch only
	binding sqlBinding
	queries []*pgx.QueuedQuery // still to be sent
	err     error
}

// Close sends what is left and returns the first error.
func (r *sqlResults) Close() error {
	for r.err == nil && len(r.queries) > 0 {
		if fn := r.queries[0].Fn; fn != nil {
			r.err = fn(r)
		} else {
			_, r.err = r.Exec()
		}
	}
	return r.err
}

// Exec sends the next statement.
func (r *sqlResults) Exec() (pgconn.CommandTag, error) {
	rows, err := r.Query()
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	return pgconn.CommandTag{}, err
}

// Query sends the next statement and returns its rows, which have to be closed.
func (r *sqlResults) Query() (pgx.Rows, error) {
	query := r.queries[0]
	r.queries = r.queries[1:]
	args := plainArgs(query.Arguments)
	for i, arg := range args {
		if id, ok := arg.(pgtype.UUID); ok {
			args[i] = uuid.UUID(id.Bytes).String()
		}
	}
	found, err := r.binding.tx.QueryContext(r.ctx, query.SQL, args...) //nolint:rowserrcheck // Close checks
	if err != nil {
		return &sqlRows{err: err}, err
	}
	return &sqlRows{rows: found, known: r.binding.known}, nil
}

// QueryRow is not used by the statements that go through an adapter.
func (r *sqlResults) QueryRow() pgx.Row {
	return &sqlRows{err: errors.New("a batch of database/sql cannot ask for a single row")}
}

// Tx is none: the caller's transaction is not this batch's.
func (r *sqlResults) Tx() pgx.Tx { return nil }

// sqlRows are the rows of database/sql as pgx has them.
type sqlRows struct {
	rows  *sql.Rows // nil: there was an error
	known *pgtype.Map
	err   error
}

// Close ends the reading.
func (r *sqlRows) Close() {
	if r.rows != nil {
		r.err = errors.Join(r.err, r.rows.Err(), r.rows.Close())
		r.rows = nil
	}
}

// Err says what went wrong, once closed.
func (r *sqlRows) Err() error { return r.err }

// Next goes to the next row, and closes after the last.
func (r *sqlRows) Next() bool {
	if r.rows == nil {
		return false
	}
	if r.rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Scan reads a row, uuids and arrays of text and of numbers included.
func (r *sqlRows) Scan(targets ...any) error {
	if r.rows == nil {
		return errors.Join(r.err, sql.ErrNoRows)
	}
	for i, target := range targets {
		switch target := target.(type) {
		case *BinaryUUID:
			targets[i] = (*uuid.UUID)(target)
		case *[]string, *[]int32:
			targets[i] = r.known.SQLScanner(target)
		}
	}
	return r.rows.Scan(targets...)
}

// CommandTag is not known from database/sql.
func (r *sqlRows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }

// FieldDescriptions are not known from database/sql.
func (r *sqlRows) FieldDescriptions() []pgconn.FieldDescription { return nil }

// Values are not read in this way.
func (r *sqlRows) Values() ([]any, error) {
	return nil, errors.New("rows of database/sql can only be read with Scan")
}

// RawValues are not known from database/sql.
func (r *sqlRows) RawValues() [][]byte { return nil }

// Conn is not known from database/sql.
func (r *sqlRows) Conn() *pgx.Conn { return nil }

// TypeMap knows the types that Scan reads.
func (r *sqlRows) TypeMap() *pgtype.Map { return r.known }

// plainArgs are parameters that every driver can send.
func plainArgs(args []any) []any {
	plain := make([]any, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case UUIDs:
			plain[i] = Literal(arg, func(id uuid.UUID) string { return id.String() })
		case []uuid.UUID:
			plain[i] = Literal(arg, uuid.UUID.String)
		case []bool:
			plain[i] = Literal(arg, strconv.FormatBool)
		case []int16:
			plain[i] = Literal(arg, number)
		case []int32:
			plain[i] = Literal(arg, number)
		case []int64:
			plain[i] = Literal(arg, number)
		case []string:
			plain[i] = Literal(arg, Quoted)
		case []*string:
			plain[i] = Literal(arg, func(text *string) string { return orNull(text, Quoted) })
		case []*time.Time:
			plain[i] = Literal(arg, func(t *time.Time) string { return orNull(t, stamp) })
		case *string:
			plain[i] = orNil(arg, func(text string) string { return text })
		case *time.Time:
			plain[i] = orNil(arg, func(t time.Time) string { return t.UTC().Format(timeForm) })
		case time.Time:
			plain[i] = arg.UTC().Format(timeForm)
		case nil, string, bool, int16, int32, int64, pgtype.UUID:
			plain[i] = arg
		default:
			panic(fmt.Sprintf("postgres: a parameter of type %T cannot be sent through a caller's transaction", arg))
		}
	}
	return plain
}

// Literal writes an array as PostgreSQL reads it from text.
func Literal[T any](items []T, write func(T) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(write(item))
	}
	b.WriteByte('}')
	return b.String()
}

func number[T int16 | int32 | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func orNull[T any](value *T, write func(T) string) string {
	if value == nil {
		return "NULL"
	}
	return write(*value)
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`) //nolint:gochecknoglobals // never changes

// Quoted writes a text as an element of an array.
func Quoted(text string) string { return `"` + arrayEscapes.Replace(text) + `"` }

// timeForm is an instant as PostgreSQL reads it from text.
const timeForm = "2006-01-02 15:04:05.999999Z"

func stamp(t time.Time) string { return `"` + t.UTC().Format(timeForm) + `"` }

func orNil[T any](value *T, write func(T) string) any {
	if value == nil {
		return nil
	}
	return write(*value)
}
