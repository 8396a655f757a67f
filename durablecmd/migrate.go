package durablecmd

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/store/backend"
)

// migrateVerb is the command migrate.
type migrateVerb struct {
	Up     migrateUpVerb     `cmd:"" help:"Apply the missing migrations. Exits 1 if the schema is too new for this program."`
	Status migrateStatusVerb `cmd:"" help:"Show the schema's version."`
	SQL    migrateSQLVerb    `cmd:"" name:"sql" help:"Print the migrations as SQL, for a tool of your own. Needs no database."`
	Grants migrateGrantsVerb `cmd:"" help:"Print the SQL that grants database roles exactly the privileges they need. Needs no database."`
	Check  migrateCheckVerb  `cmd:"" help:"Exit 1 unless the schema is compatible with this program."`
}

type (
	migrateUpVerb struct {
		JSON bool `name:"json" help:"Print JSON."`
	}
	migrateStatusVerb struct {
		JSON bool `name:"json" help:"Print JSON."`
	}
	migrateCheckVerb struct {
		JSON bool `name:"json" help:"Print JSON."`
	}
	migrateSQLVerb    struct{}
	migrateGrantsVerb struct {
		Role word   `required:"" placeholder:"NAME" help:"Name of the database role."`
		For  string `placeholder:"KIND" enum:",owner,worker,producer,reader,scaler" default:"" help:"What the role is for: owner (migrates), worker (and operators), producer (only enqueues), reader, scaler. Default: three roles, NAME_producer, NAME_worker and NAME_reader."`
	}
)

// schemaStatus is what status and check print.
type schemaStatus struct {
	Version       int    `json:"version"` // 0: none yet
	Wanted        int    `json:"wanted"`
	MinCompatible int    `json:"min_compatible"`
	Serves        bool   `json:"serves"`
	Database      string `json:"database"`
}

// Run brings the schema up to date. It fails where the schema is too new for this
// program, as after a rollback: nothing can be applied, and no worker would start.
func (v migrateUpVerb) Run(ctx context.Context, p *program) error {
	return p.withStore(ctx, created, func(ctx context.Context, store backend.Store, _ Config) error {
		have, want, minCompatible, err := store.Schema(ctx)
		if err == nil && have >= want {
			err = serves(p.name, have, want, minCompatible)
		}
		if err != nil {
			return err
		}
		applied, err := store.Migrate(ctx)
		if err != nil {
			return err
		}
		if have, _, _, err = store.Schema(ctx); err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(map[string]int{"applied": applied, "version": have})
		}
		_, err = fmt.Fprintf(p.stdout, "applied %d, the schema is at version %d\n", applied, have)
		return err
	})
}

// Run prints the schema's version.
func (v migrateStatusVerb) Run(ctx context.Context, p *program) error {
	_, err := p.schemaStatus(ctx, v.JSON)
	return err
}

// Run fails unless the schema serves this program.
func (v migrateCheckVerb) Run(ctx context.Context, p *program) error {
	status, err := p.schemaStatus(ctx, v.JSON)
	if err != nil {
		return err
	}
	return serves(p.name, status.Version, status.Wanted, status.MinCompatible)
}

func (p *program) schemaStatus(ctx context.Context, asJSON bool) (schemaStatus, error) {
	var status schemaStatus
	err := p.withStore(ctx, asItIs, func(ctx context.Context, store backend.Store, config Config) error {
		have, want, minCompatible, err := store.Schema(ctx)
		if err != nil {
			return err
		}
		status = schemaStatus{Version: have, Wanted: want, MinCompatible: minCompatible,
			Serves: serves(p.name, have, want, minCompatible) == nil, Database: backend.Redact(config.DatabaseURL)}
		if asJSON {
			return p.printJSON(status)
		}
		_, err = fmt.Fprintf(p.stdout, "%s is at version %d, this program needs %d\n", printable(status.Database), have, want)
		return err
	})
	return status, err
}

// Run prints the migrations.
func (migrateSQLVerb) Run(p *program) error {
	config, _, err := p.config("warn")
	if err != nil {
		return err
	}
	text, err := backend.MigrationsSQL(config.DatabaseURL, config.Schema)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(p.stdout, text)
	return err
}

// Run prints the grants of one role, or of the three that most programs need.
func (v migrateGrantsVerb) Run(p *program) error {
	config, _, err := p.config("warn")
	if err != nil {
		return err
	}
	roles := map[string]string{v.For: string(v.Role)}
	kinds := []string{v.For}
	if v.For == "" {
		kinds = []string{"producer", "worker", "reader"}
		for _, kind := range kinds {
			roles[kind] = string(v.Role) + "_" + kind
		}
	}
	dsn := config.DatabaseURL
	if !config.given[varDatabaseURL] {
		dsn = "postgres://" // only PostgreSQL has roles
	}
	for _, kind := range kinds {
		text, err := backend.Grants(dsn, config.Schema, kind, roles[kind])
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.stdout, "-- %s, a %s: run as the owner of the schema, after each migration\n%s\n", printable(roles[kind]), kind, text); err != nil {
			return err
		}
	}
	return nil
}
