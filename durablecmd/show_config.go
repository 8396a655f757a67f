package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// configVerb shows the configuration.
type configVerb struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// shownVariable is one variable as config prints it.
type shownVariable struct {
	Name       string `json:"name"`
	Value      string `json:"value"` // in force
	Default    string `json:"default"`
	Unit       string `json:"unit"`
	Constraint string `json:"constraint"`
	Set        bool   `json:"set"` // by the environment
}

// shownConfig is what config --json prints.
type shownConfig struct {
	Variables []shownVariable `json:"variables"`
	Faults    []string        `json:"faults"` // of the registrations
}

// Run prints every variable, and fails when the registrations have faults.
func (v configVerb) Run(ctx context.Context, p *program) error {
	config, logger, err := p.config("warn")
	if err != nil {
		return err
	}
	app, done, err := p.rehearsal(ctx, config, logger)
	if err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	defer done()
	faults := app.Worker.Faults()
	if err := v.show(p, config, faults); err != nil {
		return err
	}
	if faults != nil {
		return fmt.Errorf("%w registrations: %w", store.ErrInvalid, faults)
	}
	return nil
}

// rehearsal calls Setup with a store in memory, so that the registrations can be
// examined without a database.
func (p *program) rehearsal(ctx context.Context, config Config, logger *slog.Logger) (app *App, done func(), err error) {
	db, err := backend.Open(ctx, "memory:", backend.Config{})
	if err != nil {
		return nil, nil, err
	}
	app = newApp(db, config, p.seams, logger)
	if err := errors.Join(app.setUp(ctx, p.setup), app.stop(ctx)); err != nil {
		db.Close()
		return nil, nil, err
	}
	return app, db.Close, nil
}

func (v configVerb) show(p *program, config Config, faults error) error {
	shown := shownConfig{Faults: []string{}}
	for _, v := range variables() {
		shown.Variables = append(shown.Variables, shownVariable{
			Name: v.name, Value: v.show(config), Default: v.standard, Unit: v.unit, Constraint: v.constraint, Set: config.given[v.name],
		})
	}
	if faults != nil {
		shown.Faults = strings.Split(faults.Error(), "\n")
	}
	if v.JSON {
		return p.printJSON(shown)
	}
	table := p.newTable("WANT", "UNIT", "DEFAULT")
	table.row("VARIABLE", "VALUE", "DEFAULT", "UNIT", "WANT")
	for _, s := range shown.Variables {
		table.row(s.Name, s.Value, s.Default, s.Unit, s.Constraint)
	}
	return table.flush()
}

// keyFlags are the flags that give a run a key.
type keyFlags struct {
	Unique    *string        `xor:"key" placeholder:"KEY" help:"If an unfinished run of the job has this key, store nothing and print that run's id."`
	UniqueFor *time.Duration `help:"With --unique: hold the key for at least this long after the enqueue."`
	Replace   *string        `xor:"key" placeholder:"KEY" help:"If a pending run of the job has this key, replace its args instead."`
	Debounce  *string        `xor:"key" placeholder:"KEY" help:"Like --replace, and the run is due --quiet after the last enqueue."`
	Quiet     *time.Duration `help:"With --debounce: quiet period before the run is due."`
	AtMost    *time.Duration `help:"With --debounce: maximum delay after the first enqueue."`
}

func (k keyFlags) options() ([]durable.Option, error) {
	switch {
	case k.UniqueFor != nil && k.Unique == nil:
		return nil, usage("--unique-for: want --unique KEY too")
	case k.Debounce == nil && (k.Quiet != nil || k.AtMost != nil):
		return nil, usage("--quiet and --at-most: want --debounce KEY too")
	case k.Debounce != nil && k.Quiet == nil:
		return nil, usage("--debounce: want --quiet too, such as 5s")
	case k.UniqueFor != nil:
		return []durable.Option{durable.UniqueFor(*k.Unique, *k.UniqueFor)}, nil
	case k.Unique != nil:
		return []durable.Option{durable.Unique(*k.Unique)}, nil
	case k.Replace != nil:
		return []durable.Option{durable.Replace(*k.Replace)}, nil
	case k.Debounce != nil:
		var atMost time.Duration
		if k.AtMost != nil {
			atMost = *k.AtMost
		}
		return []durable.Option{durable.Debounce(*k.Debounce, *k.Quiet, atMost)}, nil
	default:
		return nil, nil
	}
}

// done says what happened to a run that existed already. A repeat
// of its own enqueue changes nothing.
func (k keyFlags) done(repeat bool) string {
	switch {
	case repeat || k.Replace == nil && k.Debounce == nil:
		return ", nothing was stored"
	default:
		return ", and has been given these args"
	}
}
