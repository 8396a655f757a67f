package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// limitsVerb is the command limits.
type limitsVerb struct {
	List    limitsListVerb    `cmd:"" help:"List limits by name, with what is in use and how many runs wait."`
	Show    limitsShowVerb    `cmd:"" help:"Show one key of a limit: who holds its places, and who waits in which order."`
	Keys    limitsKeysVerb    `cmd:"" help:"List the keys of a limit: how many runs wait for each, since when, and what is in use."`
	Set     limitsSetVerb     `cmd:"" help:"Create a limit, or change its values. Runs that are executing continue."`
	Drain   limitsDrainVerb   `cmd:"" help:"Drain a limit: admit no more runs. Runs that are executing continue."`
	Resume  limitsResumeVerb  `cmd:"" help:"Enforce a limit again after drain or off."`
	Off     limitsOffVerb     `cmd:"" help:"Stop enforcing a limit: all of its runs may start."`
	Delete  limitsDeleteVerb  `cmd:"" help:"Delete a limit that is not in use and that no run waits for."`
	Lift    limitsLiftVerb    `cmd:"" help:"End the penalty of a key: its runs may start again."`
	Release limitsReleaseVerb `cmd:"" help:"Take an owner's places away. Its runs continue, so more may execute than the limit allows."`
	Check   limitsCheckVerb   `cmd:"" help:"Find limits that are exceeded, and runs that could never start. Exits 1 if there are any."`
}

type (
	limitsListVerb struct {
		watchFlag

		Name []string `arg:"" optional:"" help:"Only limits of these names."`
		Caps bool     `help:"Also list the caps of jobs (job:NAME) and queues (queue:NAME)."`
		JSON bool     `name:"json" help:"Print JSON."`
	}
	limitsShowVerb struct {
		Name string `arg:"" help:"Name of the limit."`
		Key  string `help:"Key. Default: none, for runs without a key."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	limitsSetVerb struct {
		Name       string         `arg:"" help:"Name of the limit."`
		Kind       word           `help:"Kind of a new limit: semaphore, fixed-window, sliding-window, token-bucket or dynamic-window."`
		Max        *int           `help:"Maximum number of runs of each key that execute concurrently, or start in a period. 0: none starts."`
		Period     *time.Duration `help:"Period of a window or bucket, such as 1h."`
		Burst      *int           `help:"Maximum number of runs that a token bucket lets start together after a pause."`
		Buckets    *int           `help:"Number of parts into which a window is divided."`
		Least      *int           `help:"Smallest share of a key of a dynamic window."`
		Most       *int           `help:"Largest share of a key of a dynamic window."`
		WhenFull   *word          `help:"What happens to a due run when there is no room: wait (in line), retry (due again later), drop (it is cancelled), fail (it ends dead) or cancel-oldest (it waits, and the oldest that executes is cancelled)."`
		RetryAfter *time.Duration `help:"With --when-full retry: time after which the run is due again."`
		JSON       bool           `name:"json" help:"Print JSON."`
	}
	limitsDrainVerb   struct{ limitName }
	limitsResumeVerb  struct{ limitName }
	limitsOffVerb     struct{ limitName }
	limitsDeleteVerb  struct{ limitName }
	limitsReleaseVerb struct {
		Gate  string `arg:"" name:"name=key" help:"Limit and key, such as tenant=acme; without a key: the name."`
		Owner string `arg:"" help:"Owner, as the command limits show prints it."`
		JSON  bool   `name:"json" help:"Print JSON."`
	}
	limitsLiftVerb struct {
		Gate string `arg:"" name:"name=key" help:"Limit and key, such as tenant=acme; without a key: the name."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	limitName struct {
		Name string `arg:"" help:"Name of the limit."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
)

// Run prints the limits.
func (v limitsListVerb) Run(ctx context.Context, p *program) error {
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Limits(ctx, store.LimitFilter{Names: v.Name, Caps: v.Caps || len(v.Name) > 0}, operate.Part{})
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		if len(list.Limits) == 0 {
			_, err := fmt.Fprintln(p.stdout, "no limits")
			return err
		}
		table := p.newTable("NEXT", "KIND")
		table.row("NAME", "KIND", "LIMIT", "STATE", "IN USE", "WAITING", "NEXT")
		for i := range list.Limits {
			l := &list.Limits[i]
			table.row(l.Name, l.Kind.String(), limitText(&l.LimitRule), limitState(l), number(l.InUse), number(l.Waiting), p.agoOrDash(l.NextAt))
		}
		return table.flush()
	})
}

func (p *program) agoOrDash(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return ago(*at, p.now())
}

// limitText is what a limit says, in short.
func limitText(l *operate.LimitRule) string {
	text := strconv.Itoa(l.Max)
	if l.Kind != store.LimitSemaphore {
		text += " in " + time.Duration(l.Period).String()
	}
	switch l.Kind {
	case store.LimitTokenBucket:
		text += fmt.Sprintf(", %d together", l.Burst)
	case store.LimitDynamicWindow:
		text += fmt.Sprintf(", %d to %d a key", l.Least, l.Most)
	}
	if l.WhenFull != store.FullWait {
		text += ", then " + l.WhenFull.String()
	}
	return text
}

func limitState(l *operate.LimitView) string {
	state := l.State.String()
	if l.Edited {
		state += ", edited"
	}
	if l.Fault != "" {
		state += ", faulty"
	}
	return state
}

// Run prints one key of a limit.
func (v limitsShowVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		gate, err := o.Limit(ctx, v.Name, v.Key)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(gate)
		}
		return p.printGate(&gate)
	})
}

func (p *program) printGate(gate *operate.GateView) error {
	table := p.newTable()
	table.row("limit", gate.Limit.Name)
	table.row("key", orDash(&gate.Key))
	table.row("kind", gate.Limit.Kind.String()+", "+limitText(&gate.Limit))
	table.row("state", gate.Limit.State.String())
	if gate.Limit.Fault != "" {
		table.row("faulty", gate.Limit.Fault)
	}
	table.row("in use", strconv.Itoa(gate.InUse))
	table.row("waiting", number(gate.Waiting))
	table.row("next", p.agoOrDash(gate.NextAt))
	if gate.NotBefore != nil {
		table.row("penalized", "until "+gate.NotBefore.Format(time.RFC3339))
	}
	if len(gate.Permits) > 0 {
		table.row("")
		table.row("OWNER", "PLACES", "UNTIL", "EXPIRES", "WORKER", "RUNS")
	}
	for _, permit := range gate.Permits {
		runs := make([]string, len(permit.Runs))
		for i, id := range permit.Runs {
			runs[i] = id.String()
		}
		table.row(permit.Owner.String(), strconv.Itoa(permit.Places), permit.Until.String(), p.agoOrDash(permit.ExpiresAt),
			orDash(permit.Worker), clipped(strings.Join(runs, " "), 150))
	}
	if len(gate.Waiters) > 0 {
		table.row("")
		table.row("PLACE", "RUN", "JOB", "QUEUE", "PRIORITY", "DUE")
	}
	for i, waiter := range gate.Waiters {
		table.row(strconv.Itoa(i+1), waiter.Run.String(), waiter.Job, waiter.Queue, strconv.Itoa(waiter.Priority), ago(waiter.DueAt, p.now()))
	}
	return table.flush()
}

// Run makes or changes a limit.
func (v limitsSetVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Limits(ctx, store.LimitFilter{Names: []string{v.Name}, Caps: true}, operate.Part{})
		if err != nil {
			return err
		}
		limit := store.Limit{Name: v.Name}
		if len(list.Limits) > 0 {
			limit = storedLimit(&list.Limits[0].LimitRule)
		}
		if err := v.onto(&limit); err != nil {
			return err
		}
		changed, err := o.SetLimit(ctx, limit)
		if err != nil || v.JSON {
			return p.changedLimit(v.JSON)(changed, err)
		}
		_, err = fmt.Fprintf(p.stdout, "%s: set to %s\n", printable(changed.Name), limitText(&operate.LimitRule{Kind: limit.Kind, Max: limit.Max,
			Period: store.Duration(limit.Period), Burst: limit.Burst, Least: limit.Least, Most: limit.Most, WhenFull: limit.Action()}))
		return err
	})
}

func storedLimit(l *operate.LimitRule) store.Limit {
	return store.Limit{Name: l.Name, Kind: l.Kind, Max: l.Max, Period: time.Duration(l.Period), Burst: l.Burst, Buckets: l.Buckets,
		Least: l.Least, Most: l.Most, WhenFull: l.WhenFull, RetryAfter: time.Duration(l.RetryAfter)}
}

// onto changes what the flags say.
func (v *limitsSetVerb) onto(limit *store.Limit) error {
	if v.Kind != "" {
		if err := limit.Kind.UnmarshalText([]byte(v.Kind)); err != nil {
			return usage("--kind: %w", err)
		}
	} else if limit.Kind == 0 {
		return usage("there is no limit %q: add --kind to create it", v.Name)
	}
	if v.WhenFull != nil {
		if err := limit.WhenFull.UnmarshalText([]byte(*v.WhenFull)); err != nil {
			return usage("--when-full: %w", err)
		}
		if limit.WhenFull != store.FullRetry {
			limit.RetryAfter = 0
		}
	}
	set(&limit.Max, v.Max)
	set(&limit.Period, v.Period)
	set(&limit.Burst, v.Burst)
	set(&limit.Buckets, v.Buckets)
	set(&limit.Least, v.Least)
	set(&limit.Most, v.Most)
	set(&limit.RetryAfter, v.RetryAfter)
	return nil
}

func (p *program) changedLimit(asJSON bool) func(operate.ChangedLimit, error) error {
	return func(changed operate.ChangedLimit, err error) error {
		if err != nil {
			return err
		}
		if asJSON {
			return p.printJSON(changed)
		}
		_, err = fmt.Fprintf(p.stdout, "%s: %s\n", printable(changed.Name), limitDone[changed.Command])
		return err
	}
}

var limitDone = map[store.LimitCommand]string{ //nolint:gochecknoglobals // a constant table
	store.DrainLimit: "admits nothing more", store.ResumeLimit: "applies", store.DisableLimit: "admits everything",
	store.DeleteLimit: "deleted", store.ReleasePermit: "released", store.LiftPenalty: "not penalized",
}

func (v limitName) change(ctx context.Context, p *program, command store.LimitCommand) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		return p.changedLimit(v.JSON)(o.ChangeLimit(ctx, v.Name, command))
	})
}

// Run admits nothing more.
func (v limitsDrainVerb) Run(ctx context.Context, p *program) error {
	return v.change(ctx, p, store.DrainLimit)
}

// Run lets a limit apply again.
func (v limitsResumeVerb) Run(ctx context.Context, p *program) error {
	return v.change(ctx, p, store.ResumeLimit)
}

// Run turns a limit off.
func (v limitsOffVerb) Run(ctx context.Context, p *program) error {
	return v.change(ctx, p, store.DisableLimit)
}

// Run deletes a limit.
func (v limitsDeleteVerb) Run(ctx context.Context, p *program) error {
	return v.change(ctx, p, store.DeleteLimit)
}

// Run ends a penalty.
func (v limitsLiftVerb) Run(ctx context.Context, p *program) error {
	name, key, _ := strings.Cut(v.Gate, "=")
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		return p.changedLimit(v.JSON)(o.LiftPenalty(ctx, name, key))
	})
}

// Run ends an owner's permit.
func (v limitsReleaseVerb) Run(ctx context.Context, p *program) error {
	owner, err := uuid.Parse(v.Owner)
	if err != nil {
		return usage("owner %q: want a UUID, as the command limits show prints it", v.Owner)
	}
	name, key, _ := strings.Cut(v.Gate, "=")
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		return p.changedLimit(v.JSON)(o.ReleasePermit(ctx, name, key, owner))
	})
}

// limitedBy are the options of --limited-by.
func limitedBy(all []string) (options []durable.Option, err error) {
	for _, text := range all {
		use, err := store.ParseLimitUse(text)
		if err != nil {
			return nil, usage("--limited-by: %w", err)
		}
		options = append(options, durable.LimitedByUse(use))
	}
	return options, nil
}

// limitsCheckVerb looks for limits that are not kept.
type limitsCheckVerb struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// errLimitFaults is what limits check ends with when it has found something.
var errLimitFaults = errors.New("limits are violated")

// Run prints what is not as it has to be, and fails if there is anything.
func (v limitsCheckVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.CheckLimits(ctx)
		if err != nil {
			return err
		}
		if err := v.print(p, &list); err != nil || len(list.Faults) == 0 {
			return err
		}
		return fmt.Errorf("%w: %d %s", errLimitFaults, len(list.Faults), plural(int64(len(list.Faults)), "fault", "faults"))
	})
}

func (v limitsCheckVerb) print(p *program, list *operate.LimitFaults) error {
	if v.JSON {
		return p.printJSON(list)
	}
	if len(list.Faults) == 0 {
		_, err := fmt.Fprintln(p.stdout, "no faults")
		return err
	}
	table := p.newTable()
	table.row("FAULT", "LIMIT", "KEY", "RUN", "WHAT")
	for i := range list.Faults {
		f := &list.Faults[i]
		run := "-"
		if f.Run != nil {
			run = f.Run.String()
		}
		table.row(string(f.Fault), orDash(&f.Limit), orDash(&f.Key), run, f.Text)
	}
	return table.flush()
}
