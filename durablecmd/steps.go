package durablecmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// runsStepsVerb is the command runs steps.
type runsStepsVerb struct {
	ID     string   `arg:"" help:"Id of the run, or its first 8 or more characters."`
	Values bool     `help:"Print the values of steps and inputs too."`
	Forget []string `sep:"none" placeholder:"NAME" help:"Forget this step, so that the next execution does it again. Repeatable. Refused while the run executes; recorded in the audit log."`
	JSON   bool     `name:"json" help:"Print JSON."`
}

// Run prints what a run has recorded and was sent, or forgets some of it.
func (v runsStepsVerb) Run(ctx context.Context, p *program) error {
	if len(v.Forget) > 0 && v.Values {
		return usage("give --values or --forget, not both")
	}
	return p.withRun(ctx, v.ID, func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		if len(v.Forget) > 0 {
			return v.forget(ctx, p, o, id)
		}
		reader := o.Operator
		if !v.Values {
			reader = reader.Hiding(operate.HideArgs)
		}
		list, err := reader.Steps(ctx, id)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		return v.print(p, &list)
	})
}

func (v runsStepsVerb) forget(ctx context.Context, p *program, o *operate.Actor, id durable.RunID) error {
	done, err := o.ForgetSteps(ctx, id, v.Forget...)
	if err != nil {
		return err
	}
	if v.JSON {
		return p.printJSON(done)
	}
	_, err = fmt.Fprintf(p.stdout, "%s: forgot %d %s\n", id, done.Steps, plural(int64(done.Steps), "step", "steps"))
	return err
}

// print prints steps, and the inputs below them.
func (v runsStepsVerb) print(p *program, list *operate.StepList) error {
	if len(list.Steps)+len(list.Inputs) == 0 {
		_, err := fmt.Fprintln(p.stdout, "no steps")
		return err
	}
	if err := v.printSteps(p, list); err != nil || len(list.Inputs) == 0 {
		return err
	}
	if len(list.Steps) > 0 {
		if _, err := fmt.Fprintln(p.stdout); err != nil {
			return err
		}
	}
	return v.printInputs(p, list)
}

func (v runsStepsVerb) printSteps(p *program, list *operate.StepList) error {
	if len(list.Steps) == 0 {
		return nil
	}
	table := p.newTable("SIZE", "TRIES", "TOOK", "UNTIL")
	table.row(v.valued("VALUE", "STEP", "KIND", "TRIES", "TOOK", "WHEN", "UNTIL", "SIZE", "ERROR")...)
	for i := range list.Steps {
		s := &list.Steps[i]
		table.row(v.valued(oneLine(s.Value), s.Name, s.Kind.String(), strconv.Itoa(s.Tries), tookText(time.Duration(s.Took)), ago(s.At, list.At),
			untilText(s.Until, list.At), sizeText(s.Size), clipped(orDash(s.Error), 100))...)
	}
	return table.flush()
}

func (v runsStepsVerb) printInputs(p *program, list *operate.StepList) error {
	table := p.newTable("SIZE", "BY")
	table.row(v.valued("VALUE", "INPUT", "CAME", "BY", "SIZE")...)
	for i := range list.Inputs {
		in := &list.Inputs[i]
		came := ago(in.At, list.At)
		if in.GaveUp {
			came = "not in time"
		}
		table.row(v.valued(oneLine(in.Value), in.Name, came, orDash(in.By), sizeText(in.Size))...)
	}
	return table.flush()
}

// valued are cells, and behind them the value if it is to be printed.
func (v runsStepsVerb) valued(value string, cells ...string) []string {
	if !v.Values {
		return cells
	}
	return append(cells, value)
}

func sizeText(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func tookText(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(time.Millisecond).String()
}

func untilText(until *time.Time, now time.Time) string {
	if until == nil {
		return "-"
	}
	return ago(*until, now)
}

// stepsNamed bounds the steps that runs show names.
const stepsNamed = 20

// stepRows are what runs show says of the steps of a run.
func stepRows(list *operate.StepList) (rows [][2]string) {
	for _, wait := range list.Waits {
		text := "the input " + wait.Name
		if wait.Kind == store.StepSleep {
			text = "the end of the sleep " + wait.Name
		}
		if wait.Until != nil {
			text += ", until " + instantOf(*wait.Until, list.At)
		}
		rows = append(rows, [2]string{"waits for", text})
	}
	if len(list.Steps) == 0 {
		return rows
	}
	texts := []string{}
	for _, s := range list.Steps[max(0, len(list.Steps)-stepsNamed):] {
		texts = append(texts, s.Name+" ("+s.Kind.String()+")")
	}
	text := strings.Join(texts, ", ")
	if earlier := len(list.Steps) - len(texts); earlier > 0 {
		text = fmt.Sprintf("%d earlier ones, %s", earlier, text)
	}
	return append(rows, [2]string{"steps", text})
}

// runsSendVerb is the command runs send.
type runsSendVerb struct {
	Words []string `arg:"" name:"id-name" help:"Id of the run, or its first 8 or more characters, and the name of the input. With --key only the name."`
	Value string   `required:"" placeholder:"JSON" help:"Value as JSON; - reads standard input."`
	Job   word     `placeholder:"JOB" help:"With --key: the job of the run."`
	Key   word     `placeholder:"KEY" help:"Send to the unfinished run of --job that holds this unique key, instead of to an id."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// Run sends an input.
func (v runsSendVerb) Run(ctx context.Context, p *program) error {
	if err := v.check(); err != nil {
		return err
	}
	order := operate.InputOrder{Job: string(v.Job), Key: string(v.Key), Name: v.Words[len(v.Words)-1], Value: []byte(v.Value)}
	if v.Value == "-" {
		var err error
		if order.Value, err = p.readArgs(ctx); err != nil {
			return fmt.Errorf("read value: %w", err)
		}
	}
	if err := store.CheckJSON(order.Value); err != nil {
		return usage("--value%w", err)
	}
	if v.Key != "" {
		return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error { return p.send(ctx, o, order, v.JSON) })
	}
	return p.withRun(ctx, v.Words[0], func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		order.Run = id
		return p.send(ctx, o, order, v.JSON)
	})
}

func (v runsSendVerb) check() error {
	switch {
	case (v.Key == "") != (v.Job == ""):
		return usage("--job and --key name a run together: give both, or the id of a run")
	case v.Key != "" && len(v.Words) != 1:
		return usage("give the name of the input alone with --job and --key: they name the run")
	case v.Key == "" && len(v.Words) != 2:
		return usage("give the id of the run and the name of the input; or the name alone with --job and --key")
	}
	if err := store.CheckStepName(v.Words[len(v.Words)-1]); err != nil {
		return usage("%w", err)
	}
	return nil
}

func (p *program) send(ctx context.Context, o *operate.Actor, order operate.InputOrder, asJSON bool) error {
	sent, err := o.Send(ctx, order)
	if err != nil {
		return err
	}
	if asJSON {
		return p.printJSON(sent)
	}
	text := "sent"
	if sent.Existing {
		text = "was sent before"
	}
	_, err = fmt.Fprintf(p.stdout, "%s: %s %s\n", sent.Run, printable(sent.Name), text)
	return err
}
