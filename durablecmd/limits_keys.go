package durablecmd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/operate"
)

// limitsKeysVerb lists the keys of a limit.
type limitsKeysVerb struct {
	watchFlag

	Name string `arg:"" help:"Name of the limit."`
	Top  int    `default:"20" help:"Maximum number of keys to list, at most 1000: those for which most runs wait."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Run prints the keys, those for which most runs wait first.
func (v limitsKeysVerb) Run(ctx context.Context, p *program) error {
	if v.Top < 1 {
		return usage("--top %d: want 1 or more", v.Top)
	}
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.LimitKeys(ctx, v.Name, v.Top)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		return p.printKeys(&list)
	})
}

func (p *program) printKeys(list *operate.LimitKeyList) error {
	if len(list.Keys) == 0 {
		_, err := fmt.Fprintln(p.stdout, "no key is in use, and no run waits")
		return err
	}
	table := p.newTable()
	table.row("KEY", "WAITING", "OLDEST DUE", "IN USE", "PENALIZED UNTIL")
	for i := range list.Keys {
		k := &list.Keys[i]
		penalty := "-"
		if k.NotBefore != nil {
			penalty = k.NotBefore.Format(time.RFC3339)
		}
		table.row(keyText(k), number(k.Waiting), p.agoOrDash(k.OldestDue), strconv.Itoa(k.InUse), penalty)
	}
	if err := table.flush(); err != nil {
		return err
	}
	if list.Partial {
		_, err := fmt.Fprintf(p.stdout, "%s keys; more runs wait than were read, so keys may be missing\n", number(list.Known))
		return err
	}
	if more := list.Known.N - int64(len(list.Keys)); more > 0 {
		_, err := fmt.Fprintf(p.stdout, "%d of %s keys; --top lists more\n", len(list.Keys), number(list.Known))
		return err
	}
	return nil
}

// keyText is a key for people.
func keyText(k *operate.KeyView) string {
	switch {
	case k.Unnamed:
		return "(not known)"
	case k.Key == "":
		return "(no key)"
	default:
		return k.Key
	}
}
