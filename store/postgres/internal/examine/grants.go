package examine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Role is what a database role is for: it decides what Grants gives it.
type Role string

// The roles, from the most privileges to the fewest.
const (
	// RoleOwner migrates. The objects it makes are its own, so it needs no more
	// than to be allowed to make a schema.
	RoleOwner Role = "owner"
	// RoleWorker runs workers and operators' verbs: everything but migrations.
	RoleWorker Role = "worker"
	// RoleProducer enqueues, also within transactions of its own, replaces
	// pending runs by their keys, creates and replaces schedules, sends inputs to runs,
	// and waits for results. It can make workers execute any job with any args, and
	// read those of all runs; it cannot read what others have sent, claim, end or
	// delete a run, pause or delete a schedule, nor change a queue.
	RoleProducer Role = "producer"
	// RoleReader reads everything, args and results included.
	RoleReader Role = "reader"
	// RoleScaler counts what waits and what is claimed, for an autoscaler, and
	// sees no args.
	RoleScaler Role = "scaler"
)

// Roles lists the roles.
func Roles() []Role { return []Role{RoleOwner, RoleWorker, RoleProducer, RoleReader, RoleScaler} }

// privilege is one GRANT on tables of the schema.
type privilege struct{ may, on string }

// everything means all tables of the schema.
const everything = "*"

// privileges are those of each role. Locking a row asks for the right to update
// one of its columns, whichever: where a role only locks, that is one it may
// change without harm. Identity columns need no rights on their sequences.
//
//nolint:gochecknoglobals // never changes
var privileges = map[Role][]privilege{
	RoleWorker: {
		{"SELECT, INSERT, UPDATE, DELETE", everything},
	},
	RoleProducer: {
		{"SELECT", "meta, jobs, lanes, queues, runs, ready, waiting, unique_keys, workers, schedules, problems, attempts, progress, limits, limit_lanes, permits, edges, members, batches"},
		{"SELECT (run_id)", "steps"},
		{"SELECT (run_id, name, n, size, digest)", "inputs"},
		{"INSERT", "lanes, queues, runs, ready, waiting, turns, limit_lanes, unique_keys, inputs, notices, edges, members, batches, batch_changes, schedules, skips"},
		{"UPDATE (name)", "queues, batches"},
		{"UPDATE", "unique_keys"},
		{"UPDATE (lane, due_at, timeout, expires_at, max_attempts, on_crash, args, tags, metadata, trace, attempt, occurs_at, gates, limits, weights, strict, gives, links)", "runs"},
		{"UPDATE (generation, spec, job, queue, priority, max_attempts, timeout, on_crash, args, tags, limits, edited, fault, next_at, waiting, look_at)", "schedules"}, // of one that is replaced
		{"DELETE", "ready, waiting, progress, permits"}, // of a run that is replaced
	},
	RoleReader: {
		{"SELECT", everything},
	},
	RoleScaler: {
		{"SELECT", "jobs, lanes, ready, leases"},
	},
}

// withheld are privileges that a role does not get with everything: the version is
// the migration's, and what the audit says is not changed. Its oldest rows are
// deleted by the sweep.
//
//nolint:gochecknoglobals // never changes
var withheld = map[Role][]privilege{
	RoleWorker: {
		{"INSERT, UPDATE, DELETE", "meta"},
		{"UPDATE", "audit"},
	},
}

// regained are privileges that a role has in spite of those withheld: a step of a
// bulk change adds its runs to the change's row.
//
//nolint:gochecknoglobals // never changes
var regained = map[Role][]privilege{
	RoleWorker: {
		{"UPDATE (runs)", "audit"},
	},
}

// callers are the roles that enqueue and send inputs by the functions of the schema, which act
// with the privileges of their caller.
//
//nolint:gochecknoglobals // never changes
var callers = []Role{RoleWorker, RoleProducer}

// Grants returns the statements that give a database role, which has to exist,
// exactly the privileges of a Role in a schema; "" is the default schema. Run
// them as the owner of the schema (those of RoleOwner: as the database's owner)
// after the first migration, and again after each later one, which may add
// tables. They are one transaction, and harmless to repeat.
func Grants(schema string, role Role, name string) (string, error) {
	if schema == "" {
		schema = conn.DefaultSchema
	}
	if !storable.Schema.MatchString(schema) || name == "" {
		return "", fmt.Errorf("grants: %w: schema %q, role name %q", store.ErrInvalid, schema, name)
	}
	to := pgx.Identifier{name}.Sanitize()
	if role == RoleOwner {
		return "DO $grant$ BEGIN\n    EXECUTE pg_catalog.format('GRANT CREATE ON DATABASE %I TO %I', pg_catalog.current_database(), " + literalOf(name) + ");\nEND $grant$;\n", nil
	}
	given, ok := privileges[role]
	if !ok {
		return "", fmt.Errorf("grants: %w: role %q: want one of %v", store.ErrInvalid, role, Roles())
	}
	in := pgx.Identifier{schema}.Sanitize()
	var b strings.Builder
	fmt.Fprintf(&b, "BEGIN;\nREVOKE ALL ON ALL TABLES IN SCHEMA %[1]s FROM %[2]s;\nREVOKE ALL ON ALL FUNCTIONS IN SCHEMA %[1]s FROM %[2]s;\n"+
		"REVOKE ALL ON SCHEMA %[1]s FROM %[2]s;\nGRANT USAGE ON SCHEMA %[1]s TO %[2]s;\n", in, to)
	for _, p := range given {
		fmt.Fprintf(&b, "GRANT %s ON %s TO %s;\n", p.may, p.tables(in), to)
	}
	for _, p := range withheld[role] {
		fmt.Fprintf(&b, "REVOKE %s ON %s FROM %s;\n", p.may, p.tables(in), to)
	}
	for _, p := range regained[role] {
		fmt.Fprintf(&b, "GRANT %s ON %s TO %s;\n", p.may, p.tables(in), to)
	}
	if slices.Contains(callers, role) {
		fmt.Fprintf(&b, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO %s;\n", in, to)
	}
	b.WriteString("COMMIT;\n")
	return b.String(), nil
}

// tables writes the tables of a privilege.
func (p privilege) tables(schema string) string {
	if p.on == everything {
		return "ALL TABLES IN SCHEMA " + schema
	}
	return schema + "." + strings.ReplaceAll(p.on, ", ", ", "+schema+".")
}

// literalOf writes a value as a literal.
func literalOf(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }

// examinePrivileges looks for privileges that the role lacks for what its program
// does: to work, or at least to enqueue, or to read.
func (e *Examiner) examinePrivileges(ctx context.Context, f *store.Findings) error {
	const name = "privileges"
	const hint = "have the owner of the schema run what `migrate grants --for worker` prints; nothing, if the program "
	lacks := map[Role]string{}
	for _, role := range []Role{RoleWorker, RoleProducer, RoleReader} {
		rows, err := e.db.Queries(e.db.General).MissingPrivileges(ctx, needs(role, e.db.Names.Schema))
		if err != nil {
			return err
		}
		lacks[role] = lacking(rows)
	}
	mayCall, err := e.db.Queries(e.db.General).MayCallFunctions(ctx, queries.MayCallFunctionsParams{SchemaName: e.db.Names.Schema})
	if err != nil {
		return err
	}
	if lacks[RoleProducer] == "" && !mayCall {
		f.Warn("functions", "the role may not execute all functions by which SQL enqueues runs and sends inputs", "have the owner of the schema run what `migrate grants` prints again; nothing, if no program or trigger of this role calls them")
	}
	switch {
	case lacks[RoleWorker] == "":
		f.Fine(name, "the role may do all that workers and operators do")
	case lacks[RoleProducer] == "":
		f.Warn(name, "the role may enqueue, and cannot work: it lacks "+lacks[RoleWorker], hint+"only enqueues")
	case lacks[RoleReader] == "":
		f.Warn(name, "the role may only read: to enqueue it lacks "+lacks[RoleProducer], hint+"only reads")
	default:
		f.Fail(name, "the role lacks "+lacks[RoleReader], hint+"only counts for an autoscaler")
	}
	return nil
}

// needs lists what a role has to have, one privilege at a time.
func needs(role Role, schema string) queries.MissingPrivilegesParams {
	list := queries.MissingPrivilegesParams{SchemaName: schema}
	given := slices.Concat(privileges[role], regained[role])
	if slices.ContainsFunc(given, func(p privilege) bool { return p.on == everything }) {
		given = append(given, privilege{"SELECT", "meta, audit"})
	}
	for _, one := range given {
		may, columns, _ := strings.Cut(strings.TrimSuffix(one.may, ")"), " (")
		for table := range strings.SplitSeq(one.on, ", ") {
			for privilege := range strings.SplitSeq(may, ", ") {
				for column := range strings.SplitSeq(columns, ", ") {
					list.Privileges, list.Tables, list.Columns = append(list.Privileges, privilege), append(list.Tables, table), append(list.Columns, column)
				}
			}
		}
	}
	return list
}

// lacking names the first of the privileges that are missing.
func lacking(rows []queries.MissingPrivilegesRow) string {
	const most = 6
	var words []string
	for _, row := range rows[:min(len(rows), most)] {
		words = append(words, row.May+" on "+row.TableName)
	}
	if len(rows) > most {
		words = append(words, fmt.Sprintf("and %d more", len(rows)-most))
	}
	return strings.Join(words, ", ")
}
