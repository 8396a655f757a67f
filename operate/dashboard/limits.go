package dashboard

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// limitPage is the page of one limit, and of one of its keys when one is asked for.
type limitPage struct {
	operate.LimitView

	Key   string
	Gate  *operate.GateView // nil: no key is asked for
	Keys  operate.LimitKeyList
	Full  int
	Keyed bool
}

// limitList is the page of the limits.
type limitList struct {
	operate.LimitList

	Pager pager
}

func (d *dashboard) limits(ctx context.Context, r *request) (view, error) {
	if name := r.form.Get("name"); name != "" {
		return d.limit(ctx, r, name)
	}
	list, err := d.operator.Limits(ctx, store.LimitFilter{Caps: true}, r.part())
	return view{page: "limits", title: "Limits", section: "limits", data: limitList{list, r.pagerOf("limits", list.Next)}}, err
}

// limitOf is one limit, or ErrNotFound.
func (d *dashboard) limitOf(ctx context.Context, name string) (operate.LimitView, error) {
	list, err := d.operator.Limits(ctx, store.LimitFilter{Names: []string{name}, Caps: true}, operate.Part{})
	if err == nil && len(list.Limits) == 0 {
		err = fmt.Errorf("limit %q: %w", clip(200, name), store.ErrNotFound)
	}
	if err != nil {
		return operate.LimitView{}, err
	}
	return list.Limits[0], nil
}

func (d *dashboard) limit(ctx context.Context, r *request, name string) (view, error) {
	limit, err := d.limitOf(ctx, name)
	if err != nil {
		return view{}, err
	}
	_, keyed := r.form["key"]
	shown := limitPage{LimitView: limit, Key: r.form.Get("key"), Keyed: keyed}
	if shown.Keys, err = d.operator.LimitKeys(ctx, name, operate.KeysListed); err != nil {
		return view{}, err
	}
	if keyed || shown.Alone() {
		gate, err := d.operator.Limit(ctx, name, shown.Key)
		if err != nil {
			return view{}, err
		}
		shown.Gate = &gate
		if limit.Max > 0 {
			shown.Full = shareOf(float64(gate.InUse) / float64(limit.Max))
		}
	}
	return view{page: "limit", title: limit.Name, section: "limits", data: &shown}, nil
}

// Alone reports whether all runs of the limit share one key, as far as is known.
func (p *limitPage) Alone() bool {
	keys := p.Keys.Keys
	return p.Kind != store.LimitDynamicWindow && (len(keys) == 0 || len(keys) == 1 && keys[0].Key == "" && !keys[0].Unnamed)
}

// Share is how long the bar of a key is that so many runs wait for, in percent: the first key
// has the longest.
func (p *limitPage) Share(waiting int64) int {
	return shareOf(float64(waiting) / float64(max(p.Keys.Keys[0].Waiting.N, 1)))
}

// limitText is what a limit says, for people.
func limitText(l operate.LimitRule) string {
	period := brief(time.Duration(l.Period))
	switch l.Kind {
	case store.LimitSemaphore:
		return plural(int64(l.Max), "run", "runs") + " concurrently"
	case store.LimitTokenBucket:
		return fmt.Sprintf("%s every %s, up to %s together", number(int64(l.Max)), period, number(int64(l.Burst)))
	case store.LimitDynamicWindow:
		return fmt.Sprintf("%s every %s, shared by the keys, %d to %d each", number(int64(l.Max)), period, l.Least, l.Most)
	default:
		return fmt.Sprintf("%s every %s", number(int64(l.Max)), period)
	}
}

// askLimit asks before a limit is changed, or what to change it to.
func (d *dashboard) askLimit(ctx context.Context, r *request) (view, error) {
	name, action := r.form.Get("name"), r.form.Get("action")
	if action == "set" {
		return d.askLimitRule(ctx, r, name)
	}
	q, known := map[string]question{
		"drain":  {Title: "Drain limit %s?", Verb: "Drain", Says: "It admits nothing more. What it has admitted continues, and the other runs wait until it is resumed."},
		"resume": {Title: "Resume limit %s?", Verb: "Resume", Says: "It is enforced again."},
		"off":    {Title: "Turn limit %s off?", Verb: "Turn off", Danger: true, Says: "It admits everything, also what waits, immediately and at the same time. It can be resumed."},
		"delete": {Title: "Delete limit %s?", Verb: "Delete", Danger: true, Word: "delete", Says: "It is refused while runs wait or hold places. A worker that declares it creates it again."},
		"release": {Title: "Release the places of an owner, of limit %s?", Verb: "Release", Danger: true,
			Says: "The places are free immediately. What the owner executes continues, so that more may execute than the limit says."},
	}[action]
	if !known {
		return view{}, fmt.Errorf("%w: action %q: want set, drain, resume, off, delete or release", store.ErrInvalid, clip(50, action))
	}
	q.To, q.Title, q.Back = "limits/change", fmt.Sprintf(q.Title, clip(200, name)), back(r.form, "limits")
	return r.ask("limits", q, "name", name, "action", action, "key", r.form.Get("key"), "owner", r.form.Get("owner")), nil
}

// askLimitRule asks for the numbers of a limit.
func (d *dashboard) askLimitRule(ctx context.Context, r *request, name string) (view, error) {
	limit, err := d.limitOf(ctx, name)
	if err != nil {
		return view{}, err
	}
	value := func(name, otherwise string) string {
		if r.form.Has(name) {
			return r.form.Get(name)
		}
		return otherwise
	}
	rows := [][]input{{{Name: "max", Label: "Max", Kind: "numeric", Value: value("max", strconv.Itoa(limit.Max)), Note: "0: nothing starts"}}}
	if limit.Period > 0 {
		rows[0] = append(rows[0], input{Name: "period", Label: "Every", Value: value("period", time.Duration(limit.Period).String())})
	}
	switch limit.Kind {
	case store.LimitTokenBucket:
		rows = append(rows, []input{{Name: "burst", Label: "Together, after a pause", Kind: "numeric", Value: value("burst", strconv.Itoa(limit.Burst))}})
	case store.LimitDynamicWindow:
		rows = append(rows, []input{{Name: "least", Label: "Each key at least", Kind: "numeric", Value: value("least", strconv.Itoa(limit.Least))},
			{Name: "most", Label: "at most", Kind: "numeric", Value: value("most", strconv.Itoa(limit.Most))}})
	}
	return r.ask("limits", question{To: "limits/change", Title: "Change limit " + clip(200, limit.Name), Verb: "Change", Keep: "Keep it as it is", Rows: rows,
		Back: back(r.form, "limits"),
		Says: "It applies from now on. Runs that execute continue: a limit below what is in use admits nothing until enough of them have ended. Your version counts until the code that declares it changes."},
		"name", name, "action", "set"), nil
}

func (d *dashboard) changeLimit(ctx context.Context, r *request) (view, error) {
	asked, err := d.askLimit(ctx, r)
	if err != nil {
		return view{}, err
	}
	name, action := r.form.Get("name"), r.form.Get("action")
	words := map[string]string{"delete": "remove"}
	what := action
	if word, other := words[action]; other {
		what = word
	}
	answer, err := r.answered(ctx, asked, what, "limits", func(ctx context.Context) (err error) {
		switch action {
		case "set":
			return d.setLimit(ctx, r, name)
		case "release":
			owner, fault := uuid.Parse(r.form.Get("owner"))
			if fault != nil {
				return fmt.Errorf("%w: owner: %w", store.ErrInvalid, fault)
			}
			_, err = r.do.ReleasePermit(ctx, name, r.form.Get("key"), owner)
		default:
			_, err = r.do.ChangeLimit(ctx, name, store.LimitCommand(action))
		}
		return err
	})
	if action == "delete" && err == nil && answer.to != "" {
		return view{to: "limits?did=remove"}, nil
	}
	return answer, err
}

// setLimit stores the numbers of the form.
func (d *dashboard) setLimit(ctx context.Context, r *request, name string) error {
	old, err := d.limitOf(ctx, name)
	if err != nil {
		return err
	}
	limit := store.Limit{Name: old.Name, Kind: old.Kind, Max: old.Max, Period: time.Duration(old.Period), Burst: old.Burst, Buckets: old.Buckets,
		Least: old.Least, Most: old.Most, WhenFull: old.WhenFull, RetryAfter: time.Duration(old.RetryAfter)}
	for name, field := range map[string]*int{"max": &limit.Max, "burst": &limit.Burst, "least": &limit.Least, "most": &limit.Most} {
		if text := strings.TrimSpace(r.form.Get(name)); text != "" {
			if *field, err = strconv.Atoi(text); err != nil {
				return fmt.Errorf("%w: %s %q: want a whole number", store.ErrInvalid, name, clip(50, text))
			}
		}
	}
	if text := strings.TrimSpace(r.form.Get("period")); text != "" {
		if limit.Period, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("%w: every %q: want a duration such as 1m or 24h", store.ErrInvalid, clip(50, text))
		}
	}
	_, err = r.do.SetLimit(ctx, limit)
	return err
}
