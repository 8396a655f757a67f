package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
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
	// pending runs by their keys, and waits for results. It can make workers
	// execute any job with any args, and read those of all runs; it cannot claim,
	// end or delete a run, nor change a queue or a schedule.
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
		{"SELECT", "meta, jobs, lanes, queues, runs, ready, unique_keys, workers, schedules, problems, attempts, progress"},
		{"INSERT", "lanes, queues, runs, ready, unique_keys"},
		{"UPDATE (name)", "queues"},
		{"UPDATE", "unique_keys"},
		{"UPDATE (lane, due_at, timeout, expires_at, max_attempts, on_crash, args, tags, trace, attempt)", "runs"},
		{"DELETE", "ready, progress"}, // of a run that is replaced
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

// Grants returns the statements that give a database role, which has to exist,
// exactly the privileges of a Role in a schema; "" is the default schema. Run
// them as the owner of the schema (those of RoleOwner: as the database's owner)
// after the first migration, and again after each later one, which may add
// tables. They are one transaction, and harmless to repeat.
func Grants(schema string, role Role, name string) (string, error) {
	if schema == "" {
		schema = defaultSchema
	}
	if !schemaPattern.MatchString(schema) || name == "" {
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
	fmt.Fprintf(&b, "BEGIN;\nREVOKE ALL ON ALL TABLES IN SCHEMA %[1]s FROM %[2]s;\nREVOKE ALL ON SCHEMA %[1]s FROM %[2]s;\nGRANT USAGE ON SCHEMA %[1]s TO %[2]s;\n", in, to)
	for _, p := range given {
		fmt.Fprintf(&b, "GRANT %s ON %s TO %s;\n", p.may, p.tables(in), to)
	}
	for _, p := range withheld[role] {
		fmt.Fprintf(&b, "REVOKE %s ON %s FROM %s;\n", p.may, p.tables(in), to)
	}
	for _, p := range regained[role] {
		fmt.Fprintf(&b, "GRANT %s ON %s TO %s;\n", p.may, p.tables(in), to)
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
