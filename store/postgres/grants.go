package postgres

import "github.com/durable-worker/durable-worker/store/postgres/internal/examine"

// Role is what a database role is for: it decides what Grants gives it.
type Role = examine.Role

// The roles, from the most privileges to the fewest.
const (
	// RoleOwner migrates. The objects it makes are its own, so it needs no more
	// than to be allowed to make a schema.
	RoleOwner = examine.RoleOwner
	// RoleWorker runs workers and operators' verbs: everything but migrations.
	RoleWorker = examine.RoleWorker
	// RoleProducer enqueues, also within transactions of its own, replaces
	// pending runs by their keys, creates and replaces schedules, sends inputs to runs,
	// and waits for results. It can make workers execute any job with any args, and
	// read those of all runs; it cannot read what others have sent, claim, end or
	// delete a run, pause or delete a schedule, nor change a queue.
	RoleProducer = examine.RoleProducer
	// RoleReader reads everything, args and results included.
	RoleReader = examine.RoleReader
	// RoleScaler counts what waits and what is claimed, for an autoscaler, and
	// sees no args.
	RoleScaler = examine.RoleScaler
)

// Roles lists the roles.
func Roles() []Role { return examine.Roles() }

// Grants returns the statements that give a database role, which has to exist,
// exactly the privileges of a Role in a schema; "" is the default schema. Run
// them as the owner of the schema (those of RoleOwner: as the database's owner)
// after the first migration, and again after each later one, which may add
// tables. They are one transaction, and harmless to repeat.
func Grants(schema string, role Role, name string) (string, error) {
	return examine.Grants(schema, role, name)
}
